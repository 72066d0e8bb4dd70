// P8: graphs that streams of two processes replay, and that wait for each other through words in
// shared memory.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <thread>

#include "tests/gpu/facts.h"

namespace whorl::facts {
namespace {

constexpr int kReplays = 1000;
constexpr unsigned kMaxWords = 256;

/// Returns the device's address of both processes' words.
CUdeviceptr words_of(void* memory) {
  CUdeviceptr words = 0;
  NEED(cuMemHostRegister(memory, 4096, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
  NEED(cuMemHostGetDevicePointer(&words, memory, 0));
  return words;
}

/// Captures that `side` writes `count` words of the other side, waits for its own and resets them.
CUgraph rounds(CUstream stream, CUdeviceptr words, int side, unsigned count) {
  std::array<CUstreamBatchMemOpParams, 3 * kMaxWords> all{};
  unsigned n = 0;
  const auto word = [&](int of, unsigned i) {
    return words + 4 * (kMaxWords * static_cast<unsigned>(of) + i);
  };
  const auto write = [&](CUdeviceptr at, std::uint32_t value) {
    all[n].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    all[n].writeValue.address = at;
    all[n++].writeValue.value = value;
  };
  CUgraph graph = nullptr;
  NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  for (int turn = 0; turn < 2; ++turn) { // two barriers, each with words of its own
    const unsigned begin = static_cast<unsigned>(turn) * count;
    n = 0;
    for (unsigned i = 0; i < count; ++i) write(word(1 - side, begin + i), 1);
    for (unsigned i = 0; i < count; ++i) {
      all[n].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
      all[n].waitValue.address = word(side, begin + i);
      all[n].waitValue.value = 1;
      all[n++].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    }
    for (unsigned i = 0; i < count; ++i) write(word(side, begin + i), 0);
    NEED(cuStreamBatchMemOp(stream, n, all.data(), 0));
  }
  NEED(cuStreamEndCapture(stream, &graph));
  return graph;
}

void replay(void* memory, int side, unsigned count) {
  enter();
  const CUstream stream = new_stream();
  const CUgraph graph = rounds(stream, words_of(memory), side, count);
  CUgraphExec executable = nullptr;
  NEED(cuGraphInstantiate(&executable, graph, 0));
  const auto began = Clock::now();
  for (int i = 0; i < kReplays; ++i) NEED(cuGraphLaunch(executable, stream));
  NEED(cuStreamSynchronize(stream));
  if (side == 1) return;
  const double us = std::chrono::duration<double, std::micro>(Clock::now() - began).count();
  std::printf("%d replays of two barriers, %.1f us each\n", kReplays, us / kReplays);
}

void two_processes_replay(unsigned count) {
  void* const memory =
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  const pid_t other = fork();
  if (other == 0) {
    alarm(10);
    replay(memory, 1, count);
    std::_Exit(0);
  }
  replay(memory, 0, count);
  waitpid(other, nullptr, 0);
}

/// Asks when the driver reports the destruction of a graph that has an executable one.
void user_objects() {
  static std::atomic<bool> gone{false};
  enter();
  const CUstream stream = new_stream();
  const CUdeviceptr memory = device_memory(4096);
  CUuserObject object = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  NEED(cuUserObjectCreate(
      &object, &gone, [](void* flag) { static_cast<std::atomic<bool>*>(flag)->store(true); }, 1,
      CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  NEED(cuMemsetD8Async(memory, 1, 64, stream));
  NEED(cuStreamEndCapture(stream, &graph));
  NEED(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  NEED(cuGraphInstantiate(&executable, graph, 0));
  const auto wait = [] {
    for (int i = 0; i < 1000 && !gone; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return gone ? "gone" : "there";
  };
  NEED(cuGraphDestroy(graph));
  std::printf("after cuGraphDestroy %s", wait());
  NEED(cuGraphLaunch(executable, stream));
  NEED(cuStreamSynchronize(stream));
  NEED(cuGraphExecDestroy(executable));
  std::printf(", after cuGraphExecDestroy %s\n", wait());
}

} // namespace

void ask_about_graphs() {
  for (const unsigned count : {1U, 63U}) {
    ask("P8 two processes replay " + std::to_string(count) +
            " captured waits for each other's words",
        [=] { two_processes_replay(count); });
  }
  ask("P8 the user object of a captured graph", user_objects);
}

} // namespace whorl::facts
