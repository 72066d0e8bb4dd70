#include "tests/support/ptx/launch.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <thread>

namespace whorl::test::ptx {
namespace {

/// Returns a number of instructions after which another thread's turn comes, if nothing ends the
/// turn before: 16 to 2,048.
unsigned length_of_turn(Random& random) { return 16U << random.below(8); }

[[noreturn]] void report(const Kernel& kernel, const Thread& thread, const char* what) {
  const Instruction& instruction = kernel.code[thread.next - 1];
  throw Error(kernel.name + ": " + what + " in block (" + std::to_string(thread.slots[kCtaid]) +
              ", " + std::to_string(thread.slots[kCtaid + 1]) + "), thread " +
              std::to_string(thread.slots[kTid]) + ", line " + std::to_string(instruction.line) +
              ": " + kernel.line(instruction.line));
}

/// Executes instructions until the thread's turn ends.
void take_turn(const Kernel& kernel, Thread& thread, unsigned most) {
  const Instruction* const code = kernel.code.data();
  thread.state = Thread::State::kRuns;
  try {
    for (unsigned n = 0; n < most && thread.state == Thread::State::kRuns; ++n) {
      const Instruction& instruction = code[thread.next++];
      if (instruction.guard == Instruction::kNoGuard ||
          read<bool>(thread, instruction.guard) == instruction.guard_value) {
        instruction.run(thread, instruction);
      }
    }
  } catch (const Error& error) {
    report(kernel, thread, error.what());
  }
}

void make_known(View& view, const View& other) {
  view.device = std::max(view.device, other.device);
  view.system = std::max(view.system, other.system);
}

void start(Block& block, const Launch& launch, unsigned x, unsigned y) {
  const Kernel& kernel = *block.kernel;
  // Zeroed memory that is not touched takes no room: most registers are hardly used.
  block.slots = {static_cast<std::uint64_t*>(
                     std::calloc(kernel.slots * launch.threads, sizeof(std::uint64_t))),
                 std::free};
  block.shared.resize((kernel.shared_bytes + 7) / 8);
  for (std::uint64_t& word : block.shared) word = block.random->next(); // nothing may rely on zeros
  block.id = block.memory->new_block();
  block.threads = std::vector<Thread>(launch.threads);
  const View now = block.memory->now();
  for (unsigned n = 0; n < launch.threads; ++n) {
    Thread& thread = block.threads[n];
    thread.slots = block.slots.get() + n * kernel.slots;
    thread.block = &block;
    thread.view = now;
    thread.slots[kTid] = n;
    thread.slots[kNtid] = launch.threads;
    thread.slots[kCtaid] = x;
    thread.slots[kCtaid + 1] = y;
    thread.slots[kNctaid] = launch.x;
    thread.slots[kNctaid + 1] = launch.y;
    for (const int dimension : {kNtid + 1, kNtid + 2, kNctaid + 2}) thread.slots[dimension] = 1;
    thread.slots[kParameters] = reinterpret_cast<std::uintptr_t>(launch.parameter);
    std::copy(kernel.constants.begin(), kernel.constants.end(), thread.slots + kFirstConstant);
    block.ready.push_back(n);
  }
}

/// Lets the threads of a block go on once all that have not left are at the barrier.
void open_barrier(Block& block) {
  bool any = false;
  for (const Thread& thread : block.threads) {
    if (thread.state == Thread::State::kAtBarrier) any = any || thread.vote;
  }
  for (std::uint32_t n = 0; n < block.threads.size(); ++n) {
    Thread& thread = block.threads[n];
    if (thread.state != Thread::State::kAtBarrier) continue;
    if (thread.ballot != UINT16_MAX) write(thread, thread.ballot, any);
    thread.view = block.view;
    thread.state = Thread::State::kYields;
    block.ready.push_back(n);
  }
  block.waiting = 0;
}

/// Gives a turn to one thread of a block. Returns false once all threads have left.
bool run_some(Block& block) {
  if (block.ready.empty() && block.waiting > 0) open_barrier(block);
  if (block.ready.empty()) return false;
  std::uint32_t& chosen = block.ready[block.random->below(block.ready.size())];
  Thread& thread = block.threads[chosen];
  take_turn(*block.kernel, thread, length_of_turn(*block.random));
  Observer observer = block.observer(thread);
  if (thread.state == Thread::State::kAtBarrier || thread.state == Thread::State::kDone) {
    thread.stores.move_to(block.stores);
    make_known(block.view, thread.view);
    if (thread.state == Thread::State::kAtBarrier) ++block.waiting;
    chosen = block.ready.back();
    block.ready.pop_back();
  }
  block.memory->drain(observer);
  return true;
}

} // namespace

void run(const Kernel& kernel, const Launch& launch, Memory& memory, AddressSpace& space) {
  constexpr unsigned kTurns = 1024; ///< turns after which threads of the host may run, too
  Random random(launch.seed);
  std::vector<Block> blocks(std::size_t{launch.x} * launch.y);
  std::vector<Block*> running;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    Block& block = blocks[b];
    const auto x = static_cast<unsigned>(b % launch.x), y = static_cast<unsigned>(b / launch.x);
    if (static_cast<int>(y) == launch.absent) continue;
    block.kernel = &kernel;
    block.parameter = launch.parameter;
    block.device = launch.device + (launch.spread ? static_cast<int>(y) : 0);
    block.clock_rate = launch.clock_rate;
    block.memory = &memory;
    block.space = &space;
    block.random = &random;
    start(block, launch, x, y);
    running.push_back(&block);
  }
  for (unsigned turn = 1; !running.empty(); ++turn) {
    Block*& block = running[random.below(running.size())];
    if (!run_some(*block)) {
      Observer observer = block->observer(block->threads[0]);
      memory.publish(observer, Scope::kSystem);
      block = running.back();
      running.pop_back();
    }
    if (turn % kTurns == 0) std::this_thread::yield();
  }
}

} // namespace whorl::test::ptx
