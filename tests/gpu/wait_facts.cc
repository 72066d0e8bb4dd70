// P1, P2, P3: streams that wait: what a thread inside the driver because of one holds up, which
// calls wait for it, and which copies pass it.
#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/gpu/facts.h"

namespace whorl::facts {
namespace {

// PTX of a module for every device from sm_80 on.
constexpr char kModule[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry nothing() { ret; }\n";

void* pages(std::size_t bytes) {
  void* const memory = std::aligned_alloc(4096, bytes);
  std::fill_n(static_cast<char*>(memory), bytes, '\0');
  return memory;
}

} // namespace

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

namespace {

/// Call that a thread makes behind a stream that waits.
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

void while_a_stream_waits(const Question& question) {
  const CUcontext context = enter();
  const auto call = question.prepare();
  const Word word;
  word.hold(new_stream());
  time_it(context, call);
}

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

} // namespace

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

} // namespace whorl::facts
