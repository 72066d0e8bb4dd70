// Threads of whorl in the simulation, in place of base/thread.cc: a thread for which nobody waits
// is a fibre that dies with the rank that started it.
#include "base/thread.h"
#include "simulation/world.h"

namespace whorl {

using simulation::world;

Result<std::thread> start_thread(const char* name, std::function<void()>) {
  world().fail(fmt::format("a thread {} is started, for which somebody will wait", name));
  return Status::error(Code::kSystemError, "the simulation has no such threads");
}

Status start_detached_thread(const char* name, std::function<void()> body) {
  world().add_to_process(name, std::move(body));
  return {};
}

bool in_own_thread() noexcept { return false; }

void Threads::join() { threads_.clear(); }

} // namespace whorl
