#include "simulation/system.h"

#include <cerrno>

#include "simulation/world.h"

namespace whorl::simulation {

std::uint64_t SimulatedSystem::now_ns() noexcept {
  Scheduler& scheduler = world().scheduler();
  if (scheduler.running()) scheduler.advance(20);
  return scheduler.now_ns();
}

void SimulatedSystem::sleep_ns(std::uint64_t duration_ns) noexcept {
  Scheduler& scheduler = world().scheduler();
  scheduler.sleep(scheduler.now_ns() + duration_ns);
}

void SimulatedSystem::yield() noexcept { sleep_ns(world().random().below(3'000)); }

int SimulatedSystem::populate(void*, std::size_t) noexcept { return 0; }

int SimulatedSystem::memfd_create(const char*) noexcept { return -ENOSYS; }

int SimulatedSystem::futex_wait(const std::atomic<std::uint32_t>* word, std::uint32_t expected,
                                std::uint64_t timeout_ns) noexcept {
  return world().futex_wait(word, expected, timeout_ns) ? 0 : -ETIMEDOUT;
}

int SimulatedSystem::futex_wake(std::atomic<std::uint32_t>* word) noexcept {
  // What is destroyed after a run may still ring.
  if (World::running() != nullptr) world().futex_wake(word);
  return 0;
}

} // namespace whorl::simulation
