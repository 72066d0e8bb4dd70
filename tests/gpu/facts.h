#pragma once

// Helpers of driver_facts: each question has a process of its own.

#include <cuda.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>
#include <string>
#include <vector>

namespace whorl::facts {

using Clock = std::chrono::steady_clock;

/// Ends the process if a call fails on which the question depends.
inline void need(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::printf("not answered: %s gives %d\n", what, static_cast<int>(result));
  std::fflush(stdout);
  std::_Exit(0);
}
#define NEED(call) ::whorl::facts::need(call, #call)

/// Prints the question, and forks a process to answer it, which is killed after ten seconds in its
/// context.
void ask(const std::string& question, const std::function<void()>& answer);

inline constexpr unsigned kAnswerSeconds = 10; ///< limit of an answer, from its context on

/// Makes the device's context current, and lets the time of the answer begin.
inline CUcontext enter() {
  CUcontext context = nullptr;
  NEED(cuInit(0));
  NEED(cuDevicePrimaryCtxRetain(&context, 0));
  NEED(cuCtxSetCurrent(context));
  alarm(kAnswerSeconds); // to make the context may have taken long
  return context;
}

inline CUstream new_stream(int priority = 0) {
  CUstream stream = nullptr;
  NEED(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, priority));
  return stream;
}

/// Word that streams wait for.
class Word {
 public:
  Word() {
    void* memory = nullptr;
    NEED(cuMemHostAlloc(&memory, 4096, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE));
    word_ = new (memory) std::atomic<std::uint32_t>(0);
    NEED(cuMemHostGetDevicePointer(&address_, memory, 0));
  }
  void hold(CUstream stream) const {
    NEED(cuStreamWaitValue32(stream, address_, 1, CU_STREAM_WAIT_VALUE_GEQ));
  }
  void open() const { word_->store(1); }
  std::uint32_t value() const { return word_->load(); }
  CUdeviceptr address() const { return address_; }

 private:
  std::atomic<std::uint32_t>* word_;
  CUdeviceptr address_ = 0;
};

CUdeviceptr device_memory(std::size_t bytes);

/// Call that may wait for streams or invalidate captures.
struct Question {
  const char* name;
  std::function<std::function<CUresult()>()> prepare; ///< returns the call
};
std::vector<Question> questions();         ///< all
std::vector<Question> mapping_questions(); ///< those of the driver's virtual memory management

/// Runs `call` in a thread and prints how long it took, or that it did not return. Ends the
/// process.
void time_it(CUcontext context, const std::function<CUresult()>& call);
/// Opens or closes a handle of another process while a stream waits.
void map_while_a_stream_waits(bool close);

/// P1: asks what a thread inside the driver because of a waiting stream holds up.
void ask_about_a_held_driver();
/// P2: asks which calls wait for a stream.
void ask_about_waiting_streams();
/// P3: asks whether copies pass streams that wait.
void ask_about_queues();
/// P4: asks which calls spoil a capture.
void ask_about_captures();
/// P5: asks about handles of memory, and ids.
void ask_about_handles();
/// P7: asks about the memory behind mappings, here and in other processes.
void ask_about_mappings();
/// P6: asks about the view of a running kernel, and about kernels that run at the same time.
void ask_about_kernels();
/// P8: asks about graphs that wait for words of another process.
void ask_about_graphs();

} // namespace whorl::facts
