#include "bindings/torch/src/lifetime.h"

#include <Python.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace whorl_torch {
namespace {

class WithoutGil {
 public:
  WithoutGil() : state_(Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}
  ~WithoutGil() {
    if (state_ != nullptr) PyEval_RestoreThread(state_);
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

struct Registry {
  std::mutex mutex;
  std::vector<std::weak_ptr<Members>> groups;
};
/// Never destroyed: groups may outlive static objects.
Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

} // namespace

Members::Members(const Communicator::Place& place, whorlComm_t existing)
    : comm(existing == nullptr ? std::make_shared<Communicator>(place)
                               : std::make_shared<Communicator>(place, existing)),
      queue(std::make_shared<WorkQueue>([it = comm] { it->interrupt(); })),
      p2p(std::make_shared<PointToPoint>(place)),
      process_(static_cast<int>(getpid())) {}

bool Members::in_process_that_made_it() const { return process_ == static_cast<int>(getpid()); }

void Members::shut_down(std::chrono::milliseconds patience) {
  if (!in_process_that_made_it() || shut_down_.exchange(true)) return;
  const WithoutGil without_gil;
  queue->close(patience);
  p2p->close(patience);
  comm->destroy();
}

void Members::abort(const std::exception_ptr& reason) {
  if (!in_process_that_made_it()) return;
  const WithoutGil without_gil;
  queue->interrupt(reason);
  p2p->interrupt(reason);
}

std::shared_ptr<Members> make_members(const Communicator::Place& place, whorlComm_t existing) {
  auto members = std::make_shared<Members>(place, existing);
  const std::lock_guard lock(registry().mutex);
  std::erase_if(registry().groups, [](const auto& group) { return group.expired(); });
  registry().groups.push_back(members);
  return members;
}

void end_members(std::shared_ptr<Members> members) {
  if (members->in_process_that_made_it()) return members->shut_down(kPatience);
  new std::shared_ptr<Members>(std::move(members)); // its threads cannot be joined here
}

void shut_down_all_groups() {
  std::vector<std::shared_ptr<Members>> left;
  {
    const std::lock_guard lock(registry().mutex);
    for (const auto& group : registry().groups) {
      if (auto members = group.lock()) left.push_back(std::move(members));
    }
  }
  const auto deadline = std::chrono::steady_clock::now() + kExitPatience;
  for (const auto& members : left) {
    members->shut_down(std::max(std::chrono::milliseconds(0),
                                std::chrono::duration_cast<std::chrono::milliseconds>(
                                    deadline - std::chrono::steady_clock::now())));
  }
  // Destroyed with the interpreter gone, if nobody else holds them: keep them.
  for (auto& members : left) new std::shared_ptr<Members>(std::move(members));
}

} // namespace whorl_torch
