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

namespace {

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
