#include "simulation/world.h"

namespace whorl::simulation {
namespace {

const char* name_of(Order order) noexcept {
  switch (order) {
    case Order::kRelaxed:
      return "relaxed";
    case Order::kConsume:
    case Order::kAcquire:
      return "acquire";
    case Order::kRelease:
      return "release";
    case Order::kAcqRel:
      return "acq_rel";
    default:
      return "seq_cst";
  }
}

} // namespace

World& world() noexcept {
  static World only;
  return only;
}

void World::begin(std::uint64_t seed, bool trace) {
  seed_ = seed;
  trace_ = trace;
  random_ = Random(seed);
  failure_.clear();
  arena_.clear();
  races_.clear();
  scheduler_.clear(random_);
  atomics_.clear(random_.one_of(100U, 80U, 50U, 20U));
  death_notice_ns_ = random_.one_of<std::uint64_t>(0, 100'000, 3'000'000);
}

std::size_t World::add(std::string name, std::function<void()> body) {
  const std::size_t fibre = scheduler_.add(std::move(body));
  names_[fibre] = std::move(name);
  return fibre;
}

void World::add_to_process(std::string name, std::function<void()> body) {
  const std::size_t fibre = scheduler_.add_to_process(std::move(body));
  names_[fibre] = std::move(name);
  atomics_.begin_life(fibre, scheduler_.current());
}

void World::run() {
  running_ = this;
  scheduler_.run();
  running_ = nullptr;
}

void World::fail(std::string what) {
  if (failure_.empty()) {
    failure_ = std::move(what);
    note("FAILED: {}", failure_);
  }
  scheduler_.stop();
}

bool World::knows_death(std::size_t fibre) {
  if (!scheduler_.died(fibre)) return false;
  if (scheduler_.now_ns() < scheduler_.died_ns(fibre) + death_notice_ns_) return false;
  atomics_.synchronise(scheduler_.current(), fibre); // by the kernel
  return true;
}

void World::before_access() {
  if (scheduler_.accesses() > kMaxAccesses) {
    fail(fmt::format("no end after {} accesses", kMaxAccesses));
  }
  scheduler_.before_access();
}

void World::before_store(const volatile void* at, std::size_t bytes) {
  before_access();
  require(arena_.backed(arena_.offset_of(at), bytes), "{} writes to {}, which has no memory",
          names_[scheduler_.current()], arena_.describe(arena_.offset_of(at)));
}

std::uint64_t World::load(const volatile void* at, std::size_t bytes, Order order) {
  before_access();
  const auto loaded =
      atomics_.load(scheduler_.current(), at, bytes, order, scheduler_.now_ns(), random_);
  note_atomic("load", at, order, loaded.value, loaded.latest);
  return loaded.value;
}

void World::store(volatile void* at, std::size_t bytes, std::uint64_t value, Order order) {
  before_store(at, bytes);
  atomics_.store(scheduler_.current(), at, bytes, value, order, scheduler_.now_ns());
  note_atomic("store", at, order, value, value);
}

std::uint64_t World::compare_exchange(volatile void* at, std::size_t bytes, std::uint64_t expected,
                                      std::uint64_t desired, Order order, Order failure) {
  before_store(at, bytes);
  const std::size_t fibre = scheduler_.current();
  const std::uint64_t old = atomics_.latest(at, bytes);
  if (old == expected) {
    atomics_.modify(fibre, at, bytes, order, scheduler_.now_ns(),
                    [&](std::uint64_t) { return desired; });
  } else {
    atomics_.load_latest(fibre, at, bytes, failure);
  }
  note_atomic("compare_exchange", at, order, old == expected ? desired : old, old);
  return old;
}

void World::fence(Order order) {
  before_access();
  atomics_.fence(scheduler_.current(), order);
  note("fence {}", name_of(order));
}

void World::read(const volatile void* at, std::size_t bytes) {
  before_access();
  const std::size_t fibre = scheduler_.current(), offset = arena_.offset_of(at);
  note("read  {} ({} bytes)", arena_.describe(offset), bytes);
  if (const auto race = races_.read(fibre, atomics_.view(fibre), offset, bytes)) {
    report(*race, false, offset, bytes);
  }
}

void World::write(const volatile void* at, std::size_t bytes) {
  before_store(at, bytes);
  const std::size_t fibre = scheduler_.current(), offset = arena_.offset_of(at);
  note("write {} ({} bytes)", arena_.describe(offset), bytes);
  if (const auto race = races_.write(fibre, atomics_.view(fibre), offset, bytes)) {
    report(*race, true, offset, bytes);
  }
}

void World::report(const Race& race, bool writes, std::size_t offset, std::size_t bytes) {
  fail(fmt::format("data race: {} {} {} bytes at {}, but the {} of {} by {} did not happen before",
                   names_[scheduler_.current()], writes ? "writes" : "reads", bytes,
                   arena_.describe(offset), race.other_writes ? "write" : "read",
                   arena_.describe(race.offset), names_[race.other]));
}

bool World::futex_wait(const volatile void* word, std::uint32_t expected,
                       std::uint64_t timeout_ns) {
  before_access();
  const auto found = static_cast<std::uint32_t>(atomics_.latest(word, sizeof expected));
  note("futex wait {} while {}, is {}", arena_.describe(arena_.offset_of(word)), expected, found);
  if (found != expected) return true;
  if (random_.chance(5)) return true; // for no reason
  return scheduler_.sleep(scheduler_.now_ns() + timeout_ns, word);
}

void World::futex_wake(const volatile void* word) {
  before_access();
  note("futex wake {}", arena_.describe(arena_.offset_of(word)));
  scheduler_.wake(word);
}

void World::note_atomic(const char* what, const volatile void* at, Order order, std::uint64_t value,
                        std::uint64_t other) {
  if (!trace_) return;
  note("{} {} {}: {:#x}{}", what, arena_.describe(arena_.offset_of(at)), name_of(order), value,
       value == other ? "" : fmt::format(" (other value {:#x})", other));
}

void World::write_note(const std::string& text) {
  const std::size_t fibre = scheduler_.current();
  fmt::print("{:7} {:9.3f} us  {:8} {}\n", scheduler_.accesses(),
             static_cast<double>(scheduler_.now_ns() - 1'000'000'000) / 1000,
             fibre < scheduler_.fibres() ? names_[fibre] : "", text);
}

} // namespace whorl::simulation
