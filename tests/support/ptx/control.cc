// Branches, barriers, fences and the clock.
#include <chrono>

#include "tests/support/ptx/instruction_set.h"
#include "tests/support/ptx/launch.h"

namespace whorl::test::ptx {
namespace {

void branch(Thread& t, const Instruction& i) { t.next = i.target; }
void leave(Thread& t, const Instruction&) { t.state = Thread::State::kDone; }

void wait_at_barrier(Thread& t, const Instruction&) {
  t.state = Thread::State::kAtBarrier;
  t.vote = false;
  t.ballot = UINT16_MAX;
}
/// Waits at the barrier for the votes of all threads: the first operand is the result.
void vote_at_barrier(Thread& t, const Instruction& i) {
  t.state = Thread::State::kAtBarrier;
  t.vote = read<bool>(t, i.slots[2]);
  t.ballot = i.slots[0];
}

/// Orders what is before it and what follows, in both directions.
template <Scope kScope>
void fence(Thread& t, const Instruction&) {
  Observer observer = t.block->observer(t);
  t.block->memory->publish(observer, kScope);
  t.block->memory->observe(observer, kScope);
}

void read_clock(Thread& t, const Instruction& i) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  write(t, i.slots[0], static_cast<std::uint64_t>(std::chrono::nanoseconds(now).count()));
}

void sleep_a_little(Thread& t, const Instruction&) { t.state = Thread::State::kYields; }

} // namespace

void add_control(Handlers& handlers) {
  handlers["bra"] = handlers["bra.uni"] = branch;
  handlers["ret"] = handlers["exit"] = leave;
  handlers["bar.sync"] = handlers["barrier.sync"] = wait_at_barrier;
  handlers["bar.red.or.pred"] = handlers["barrier.red.or.pred"] = vote_at_barrier;
  handlers["membar.cta"] = handlers["fence.acq_rel.cta"] = fence<Scope::kBlock>;
  handlers["membar.gl"] = handlers["fence.acq_rel.gpu"] = handlers["fence.sc.gpu"] =
      fence<Scope::kDevice>;
  handlers["membar.sys"] = handlers["fence.acq_rel.sys"] = handlers["fence.sc.sys"] =
      fence<Scope::kSystem>;
  handlers["nanosleep.u32"] = sleep_a_little;
  handlers["mov.u64.%globaltimer"] = read_clock;
}

Handler find_handler(const std::string& opcode) {
  static const Handlers handlers = [] {
    Handlers all;
    add_integers(all);
    add_bits(all);
    add_floats(all);
    add_conversions(all);
    add_control(all);
    return all;
  }();
  const auto found = handlers.find(opcode);
  return found == handlers.end() ? nullptr : found->second;
}

} // namespace whorl::test::ptx
