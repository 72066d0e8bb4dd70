// Prints the behaviour of this machine's CUDA driver where the documentation leaves it open and
// whorl depends on it, one line for each fact. Each question has a process of its own, which is
// killed after ten seconds in its context; then the line says "hangs". Arguments choose facts:
// `driver_facts P1 P6`; without any, all are asked. Also runs on a pretended device
// (tests/support/fake_cuda), which answers as it was programmed.
#include <cuda.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/gpu/facts.h"

namespace whorl::facts {

void ask(const std::string& question, const std::function<void()>& answer) {
  std::printf("%s: ", question.c_str());
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60); // enter() sets another limit
    answer();
    std::fflush(stdout);
    std::_Exit(0); // drops queued work
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    if (signal == SIGALRM) {
      std::puts("hangs");
    } else {
      std::printf("ends with signal %d\n", signal);
    }
  }
}

CUdeviceptr device_memory(std::size_t bytes) {
  CUdeviceptr memory = 0;
  NEED(cuMemAlloc(&memory, bytes));
  return memory;
}

namespace {

/// Runs `call` in a thread and prints how long it took, or that it did not return.
void time_it(CUcontext context, const std::function<CUresult()>& call) {
  std::atomic<bool> done{false};
  std::atomic<int> code{0};
  const auto began = Clock::now();
  std::thread([&, context] {
    cuCtxSetCurrent(context);
    code = call();
    done = true;
  }).detach();
  while (!done && Clock::now() - began < std::chrono::seconds(2)) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  const double ms = std::chrono::duration<double, std::milli>(Clock::now() - began).count();
  if (done) {
    std::printf("returns %d after %.2f ms\n", code.load(), ms);
  } else {
    std::puts("blocks for 2 s and more");
  }
  std::fflush(stdout);
  std::_Exit(0); // the thread may still use these variables
}

// PTX of a module for every device from sm_80 on.
constexpr char kModule[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry nothing() { ret; }\n";

void* pages(std::size_t bytes) {
  void* const memory = std::aligned_alloc(4096, bytes);
  std::fill_n(static_cast<char*>(memory), bytes, '\0');
  return memory;
}

// --- P1: one thread is inside the driver because of a waiting stream -----------------------------

/// What a thread does behind a stream that waits.
struct Behind {
  const char* what;
  void (*call)(CUstream held, CUdeviceptr memory);
};
constexpr Behind kBehind[] = {
    {"frees memory", [](CUstream, CUdeviceptr memory) { cuMemFree(memory); }},
    {"queues 2000 operations",
     [](CUstream held, CUdeviceptr memory) {
       for (int i = 0; i < 2000; ++i) cuMemsetD8Async(memory, 1, 64, held);
     }},
    {"copies to pageable memory",
     [](CUstream held, CUdeviceptr memory) {
       static std::vector<char> pageable(1 << 20);
       cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(pageable.data()), memory, 1 << 20, held);
     }},
    {"copies from pageable memory",
     [](CUstream held, CUdeviceptr memory) {
       static std::vector<char> pageable(1 << 20);
       cuMemcpyAsync(memory, reinterpret_cast<CUdeviceptr>(pageable.data()), 1 << 20, held);
     }},
    {"synchronises with it", [](CUstream held, CUdeviceptr) { cuStreamSynchronize(held); }},
    {"synchronises with its context", [](CUstream, CUdeviceptr) { cuCtxSynchronize(); }},
    {"waits for an event",
     [](CUstream held, CUdeviceptr) {
       CUevent event = nullptr;
       cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
       cuEventRecord(event, held);
       cuEventSynchronize(event);
     }},
    {"loads a module", [](CUstream, CUdeviceptr) { cuModuleLoadData(new CUmodule, kModule); }},
};

void other_streams_go_on(const Behind& behind) {
  const CUcontext context = enter();
  static Word word, arrived;
  const CUstream held = new_stream(), other = new_stream();
  const CUdeviceptr from = device_memory(1 << 20), unused = device_memory(1 << 20);
  void* const to = pages(1 << 20);
  NEED(cuMemHostRegister(to, 1 << 20, CU_MEMHOSTREGISTER_PORTABLE));
  word.hold(held);
  std::thread([=] {
    cuCtxSetCurrent(context);
    behind.call(held, unused);
  }).detach();
  std::this_thread::sleep_for(std::chrono::milliseconds(500)); // no signal shows that it is inside
  time_it(context, [=] {
    cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(to), from, 1 << 20, other);
    cuStreamWriteValue32(other, arrived.address(), 1, CU_STREAM_WRITE_VALUE_DEFAULT);
    return cuStreamSynchronize(other);
  });
}

// --- P2: calls while a stream waits --------------------------------------------------------------

std::vector<Question> questions() {
  std::vector<Question> all{
      {"cuMemAlloc", [] { return [] { return cuMemAlloc(new CUdeviceptr, 1 << 20); }; }},
      {"cuMemFree", [] { return [memory = device_memory(1 << 20)] { return cuMemFree(memory); }; }},
      {"cuMemHostRegister",
       [] {
         return [memory = pages(1 << 20)] {
           return cuMemHostRegister(memory, 1 << 20, CU_MEMHOSTREGISTER_PORTABLE);
         };
       }},
      {"cuMemHostUnregister",
       [] {
         void* const memory = pages(1 << 20);
         NEED(cuMemHostRegister(memory, 1 << 20, CU_MEMHOSTREGISTER_PORTABLE));
         return [memory] { return cuMemHostUnregister(memory); };
       }},
      {"cuModuleLoadData", [] { return [] { return cuModuleLoadData(new CUmodule, kModule); }; }},
      {"cuStreamCreate",
       [] { return [] { return cuStreamCreate(new CUstream, CU_STREAM_NON_BLOCKING); }; }},
      {"cuStreamQuery of another stream",
       [] { return [stream = new_stream()] { return cuStreamQuery(stream); }; }},
      {"cuStreamSynchronize of another stream",
       [] { return [stream = new_stream()] { return cuStreamSynchronize(stream); }; }},
      {"cuEventQuery",
       [] {
         CUevent event = nullptr;
         NEED(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
         return [event] { return cuEventQuery(event); };
       }},
      {"cuEventCreate",
       [] { return [] { return cuEventCreate(new CUevent, CU_EVENT_DISABLE_TIMING); }; }},
      {"cuIpcGetMemHandle",
       [] {
         return [memory = device_memory(4 << 20)] {
           CUipcMemHandle handle;
           return cuIpcGetMemHandle(&handle, memory);
         };
       }},
      {"cuStreamGetCtx of the default stream",
       [] { return [] { return cuStreamGetCtx(nullptr, new CUcontext); }; }},
      {"cuStreamIsCapturing of the default stream",
       [] { return [] { return cuStreamIsCapturing(nullptr, new CUstreamCaptureStatus); }; }},
  };
  for (Question& one : mapping_questions()) all.push_back(std::move(one));
  return all;
}

void while_a_stream_waits(const Question& question) {
  const CUcontext context = enter();
  const auto call = question.prepare();
  const Word word;
  word.hold(new_stream());
  time_it(context, call);
}

// --- P3: whether a copy passes a stream that waits -----------------------------------------------

void copy_passes(const char* connections, int waiting, bool other_priority) {
  if (connections != nullptr) {
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", connections, 1);
    setenv("CUDA_DEVICE_MAX_COPY_CONNECTIONS", connections, 1);
  }
  const CUcontext context = enter();
  int least = 0, greatest = 0;
  NEED(cuCtxGetStreamPriorityRange(&least, &greatest));
  const CUstream last = new_stream(other_priority ? greatest : least);
  const CUdeviceptr from = device_memory(1 << 20);
  void* const to = pages(1 << 20);
  NEED(cuMemHostRegister(to, 1 << 20, CU_MEMHOSTREGISTER_PORTABLE));
  static Word word;
  static std::atomic<int> queued{0}; // three steps for each stream
  std::thread([=] {
    cuCtxSetCurrent(context);
    for (int i = 0; i < waiting; ++i) {
      const CUstream held = new_stream(least);
      ++queued;
      word.hold(held);
      ++queued;
      NEED(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(to), from, 4096, held));
      ++queued;
    }
  }).detach();
  for (int i = 0; i < 300 && queued < 3 * waiting; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (queued < 3 * waiting) {
    constexpr const char* kSteps[] = {"creating", "the wait of", "the copy of"};
    std::printf("%s stream %d blocks; ", kSteps[queued % 3], queued / 3 + 1);
  }
  time_it(context, [=] {
    cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(to), from, 1 << 20, last);
    return cuStreamSynchronize(last);
  });
}

// --- P4: calls while a stream is captured --------------------------------------------------------

void in_a_capture(const Question& question, bool other_thread, bool relaxed) {
  const CUcontext context = enter();
  const auto call = question.prepare();
  const CUstream captured = new_stream();
  NEED(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUresult code = CUDA_SUCCESS;
  const auto make = [&] {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    cuCtxSetCurrent(context);
    if (relaxed) NEED(cuThreadExchangeStreamCaptureMode(&mode));
    code = call();
  };
  if (other_thread) {
    std::thread(make).join();
  } else {
    make();
  }
  CUgraph graph = nullptr;
  const CUresult end = cuStreamEndCapture(captured, &graph);
  std::printf("gives %d, the capture %s (%d)\n", static_cast<int>(code),
              end == CUDA_SUCCESS ? "survives" : "is spoilt", static_cast<int>(end));
}

/// Asks about calls that only look at the stream being captured, and about the default stream while
/// a blocking stream is captured.
void look_at_a_captured_stream(const char* what, bool by_default, bool relaxed,
                               CUresult (*look)(CUstream)) {
  ask(std::string("P4 ") + what +
          (by_default ? " of the default stream beside a blocking stream" : "") +
          " in its capture" + (relaxed ? ", relaxed" : ""),
      [=] {
        enter();
        CUstream captured = nullptr;
        NEED(cuStreamCreate(&captured, by_default ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
        NEED(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        if (relaxed) NEED(cuThreadExchangeStreamCaptureMode(&mode));
        const CUresult code = look(by_default ? nullptr : captured);
        CUgraph graph = nullptr;
        const CUresult end = cuStreamEndCapture(captured, &graph);
        std::printf("gives %d, the capture %s (%d)\n", static_cast<int>(code),
                    end == CUDA_SUCCESS ? "survives" : "is spoilt", static_cast<int>(end));
      });
}

constexpr struct {
  const char* name;
  CUresult (*call)(CUstream);
} kLooks[] = {
    {"cuStreamGetId",
     [](CUstream stream) {
       unsigned long long id = 0;
       return cuStreamGetId(stream, &id);
     }},
    {"cuStreamGetCtx",
     [](CUstream stream) {
       CUcontext context = nullptr;
       return cuStreamGetCtx(stream, &context);
     }},
    {"cuStreamGetPriority",
     [](CUstream stream) {
       int priority = 0;
       return cuStreamGetPriority(stream, &priority);
     }},
    {"cuStreamIsCapturing",
     [](CUstream stream) {
       CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
       return cuStreamIsCapturing(stream, &status);
     }},
};

// --- P5: handles and ids -------------------------------------------------------------------------

struct Exported {
  CUipcMemHandle handle;
  CUdeviceptr address;
  unsigned long long id;
};

Exported exported(std::size_t bytes, unsigned char value) {
  Exported one{};
  one.address = device_memory(bytes);
  NEED(cuMemsetD8Async(one.address, value, bytes, nullptr));
  NEED(cuCtxSynchronize());
  NEED(cuIpcGetMemHandle(&one.handle, one.address));
  NEED(cuPointerGetAttribute(&one.id, CU_POINTER_ATTRIBUTE_BUFFER_ID, one.address));
  return one;
}

int first_byte(CUdeviceptr address) {
  static unsigned char byte = 0;
  const CUstream stream = new_stream();
  NEED(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(&byte), address, 1, stream));
  NEED(cuStreamSynchronize(stream));
  return byte;
}

/// Opens or closes a handle of another process while a stream waits.
void map_while_a_stream_waits(bool close) {
  int to[2];
  if (pipe(to) != 0) return;
  if (fork() == 0) {
    alarm(10);
    enter();
    const Exported one = exported(4 << 20, 1);
    if (write(to[1], &one, sizeof one) < 0) std::_Exit(1);
    pause();
  }
  const CUcontext context = enter();
  Exported one{};
  if (read(to[0], &one, sizeof one) != sizeof one) return;
  static CUdeviceptr at = 0;
  const auto open = [one] {
    return cuIpcOpenMemHandle(&at, one.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  };
  if (close) NEED(open());
  const Word word;
  word.hold(new_stream());
  time_it(context, [close, open] { return close ? cuIpcCloseMemHandle(at) : open(); });
}

/// Maps memory of another process, which then frees it.
void freed_while_mapped(std::size_t bytes) {
  int to[2], from[2];
  if (pipe(to) != 0 || pipe(from) != 0) return;
  char go = 0;
  if (fork() == 0) {
    alarm(10);
    enter();
    const Exported first = exported(bytes, 1);
    if (write(to[1], &first, sizeof first) < 0 || read(from[0], &go, 1) != 1) std::_Exit(1);
    NEED(cuMemFree(first.address));
    const Exported second = exported(bytes, 2);
    if (write(to[1], &second, sizeof second) < 0) std::_Exit(1);
    static_cast<void>(!read(from[0], &go, 1));
    std::_Exit(0);
  }
  enter();
  Exported first{}, second{};
  CUdeviceptr old = 0, twice = 0, fresh = 0;
  if (read(to[0], &first, sizeof first) != sizeof first) return;
  const auto open = [](CUdeviceptr* at, const Exported& one) {
    return static_cast<int>(cuIpcOpenMemHandle(at, one.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  };
  const int once = open(&old, first), again = open(&twice, first);
  std::printf("opened %d, once more %d (%s pointer)", once, again,
              old == twice ? "the same" : "another");
  if (again == 0) cuIpcCloseMemHandle(twice);
  if (write(from[1], &go, 1) < 0 || read(to[0], &second, sizeof second) != sizeof second) return;
  std::printf("; allocated anew at %s address, id %s",
              first.address == second.address ? "the same" : "another",
              second.id > first.id ? "grows" : "does not grow");
  const int opened = open(&fresh, second);
  std::printf("; opened beside the old mapping: %d", opened);
  if (opened == 0) std::printf(", shows %s memory", first_byte(fresh) == 2 ? "the new" : "the OLD");
  const int closed = static_cast<int>(cuIpcCloseMemHandle(old));
  const int after = opened == 0 ? 0 : open(&fresh, second);
  std::printf("; the old one closed: %d", closed);
  if (opened != 0) std::printf(", then the new one opened: %d", after);
  if (after == 0) std::printf(", shows %s memory", first_byte(fresh) == 2 ? "the new" : "the OLD");
  std::puts("");
  static_cast<void>(!write(from[1], &go, 1));
}

void contexts_across_release() {
  unsigned long long ids[2] = {};
  const CUcontext first = enter();
  NEED(cuCtxGetId(first, &ids[0]));
  NEED(cuDevicePrimaryCtxRelease(0));
  const CUcontext second = enter();
  NEED(cuCtxGetId(second, &ids[1]));
  std::printf("%s CUcontext, %s id\n", first == second ? "the same" : "another",
              ids[0] == ids[1] ? "the SAME" : "another");
}

void ids_of_default_streams() {
  const CUcontext context = enter();
  const auto print = [context](const char* thread) {
    cuCtxSetCurrent(context);
    for (std::uintptr_t handle = 0; handle < 3; ++handle) {
      unsigned long long id = 0;
      NEED(cuStreamGetId(reinterpret_cast<CUstream>(handle), &id));
      std::printf("%s%llu", handle == 0 ? thread : ", ", id);
    }
  };
  print("of 0, 1, 2 in one thread ");
  std::thread([&] { print("; in another "); }).join();
  cuCtxSetCurrent(nullptr);
  CUcontext none = nullptr;
  std::printf("; without a context cuStreamGetCtx gives %d\n",
              static_cast<int>(cuStreamGetCtx(nullptr, &none)));
}

void ask_about_a_held_driver() {
  for (const Behind& behind : kBehind) {
    ask(std::string("P1 a copy in a free stream, while a thread ") + behind.what +
            " behind a stream that waits",
        [&] { other_streams_go_on(behind); });
  }
}

void ask_about_waiting_streams() {
  for (const Question& one : questions()) {
    ask(std::string("P2 ") + one.name + " while a stream waits",
        [&] { while_a_stream_waits(one); });
  }
  for (const bool close : {false, true}) {
    ask(std::string(close ? "P2 cuIpcCloseMemHandle" : "P2 cuIpcOpenMemHandle") +
            " while a stream waits",
        [=] { map_while_a_stream_waits(close); });
  }
}

void ask_about_queues() {
  for (const char* const connections : {static_cast<const char*>(nullptr), "1", "8", "32"}) {
    for (const int waiting : {1, 40}) {
      for (const bool other : {true, false}) {
        ask("P3 a copy behind " + std::to_string(waiting) + " waiting streams, " +
                (connections == nullptr ? "default" : connections) + " connections, " +
                (other ? "other" : "same") + " priority",
            [=] { copy_passes(connections, waiting, other); });
      }
    }
  }
}

void ask_about_captures() {
  for (const auto& look : kLooks) {
    for (const bool by_default : {false, true}) {
      for (const bool relaxed : {false, true}) {
        look_at_a_captured_stream(look.name, by_default, relaxed, look.call);
      }
    }
  }
  for (const Question& one : questions()) {
    for (const bool other : {false, true}) {
      for (const bool relaxed : {false, true}) {
        ask(std::string("P4 ") + one.name + " in a global capture, " +
                (other ? "by another thread" : "by its thread") + (relaxed ? ", relaxed" : ""),
            [&] { in_a_capture(one, other, relaxed); });
      }
    }
  }
}

void ask_about_handles() {
  for (const std::size_t bytes : {std::size_t{512}, std::size_t{4} << 20}) {
    ask("P5 memory of " + std::to_string(bytes) + " bytes that is freed while mapped elsewhere",
        [=] { freed_while_mapped(bytes); });
  }
  ask("P5 the primary context, released and retained", contexts_across_release);
  ask("P5 ids of the default streams", ids_of_default_streams);
}

/// Facts by name, in the order in which they are asked.
struct Fact {
  const char* name;
  void (*ask)();
};
constexpr Fact kFacts[] = {
    {"P1", ask_about_a_held_driver}, {"P6", ask_about_kernels},  {"P8", ask_about_graphs},
    {"P7", ask_about_mappings},      {"P5", ask_about_handles},  {"P2", ask_about_waiting_streams},
    {"P3", ask_about_queues},        {"P4", ask_about_captures},
};

} // namespace
} // namespace whorl::facts

int main(int argc, char** argv) {
  using namespace whorl::facts; // NOLINT: the program is this
  const std::vector<std::string> chosen(argv + 1, argv + argc);
  for (const std::string& name : chosen) {
    const bool known = std::any_of(std::begin(kFacts), std::end(kFacts),
                                   [&](const Fact& fact) { return fact.name == name; });
    if (!known) {
      std::fprintf(stderr, "driver_facts: there is no fact %s; there are P1 to P8\n", name.c_str());
      return 2;
    }
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  ask("the driver", [] {
    int version = 0;
    char name[256] = {};
    enter();
    NEED(cuDriverGetVersion(&version));
    NEED(cuDeviceGetName(name, sizeof name, 0));
    std::printf("is for CUDA %d.%d, device 0 is %s\n", version / 1000, version % 1000 / 10, name);
  });
  for (const Fact& fact : kFacts) {
    if (chosen.empty() || std::find(chosen.begin(), chosen.end(), fact.name) != chosen.end()) {
      fact.ask();
    }
  }
  return 0;
}
