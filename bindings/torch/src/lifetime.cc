#include "bindings/torch/src/lifetime.h"

#include <Python.h>
#include <unistd.h>

#include <algorithm>

#include "bindings/torch/src/errors.h"
#include "bindings/torch/src/executor.h"

namespace whorl_torch {
namespace {

// Depth whose lane deeper callbacks share: an endless chain needs no new lane for each link.
constexpr int kMaxDepth = 4;

/// Time in which the calling thread does not hold the lock of the interpreter.
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
  std::vector<std::weak_ptr<GroupResources>> groups;
};
/// Returns the groups of the process, which are never destroyed: they may outlive static objects.
Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

} // namespace

GroupResources::GroupResources(const Communicator::Place& place, whorlComm_t existing)
    : p2p(std::make_shared<PointToPoint>(place)),
      place_(place),
      lanes_{make_lane(0, existing)},
      process_(static_cast<int>(getpid())) {}

Lane GroupResources::make_lane(int depth, whorlComm_t existing) const {
  Communicator::Place place = place_;
  if (depth > 0) {
    place.prefix = c10::str(place_.prefix, "callbacks/", depth, "/");
    place.name = c10::str("callbacks (depth ", depth, ") of ", place_.name);
  }
  Lane lane;
  lane.comm = existing == nullptr ? std::make_shared<Communicator>(place)
                                  : std::make_shared<Communicator>(place, existing);
  lane.queue = std::make_shared<WorkQueue>([comm = lane.comm] { comm->interrupt(); }, depth);
  lane.streams = std::make_shared<DeviceStreams>();
  return lane;
}

Lane GroupResources::lane(int depth) {
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<std::size_t>(std::min(depth, kMaxDepth));
  while (lanes_.size() <= index) {
    lanes_.push_back(make_lane(static_cast<int>(lanes_.size()), nullptr));
    if (ended_) lanes_.back().queue->interrupt(ended_);
  }
  return lanes_[index];
}

std::vector<Lane> GroupResources::lanes() {
  const std::lock_guard lock(mutex_);
  return lanes_;
}

void GroupResources::set_timeout(std::chrono::milliseconds timeout) {
  p2p->set_timeout(timeout);
  const std::lock_guard lock(mutex_);
  place_.timeout = timeout;
  for (const Lane& lane : lanes_) lane.comm->set_timeout(timeout);
}

whorlResult_t GroupResources::state() {
  for (const Lane& lane : lanes()) {
    const whorlResult_t state = lane.comm->state();
    if (state != whorlSuccess && state != whorlInProgress) return state;
  }
  return whorlSuccess;
}

bool GroupResources::in_process_that_made_it() const {
  return process_ == static_cast<int>(getpid());
}

void GroupResources::refuse_in_step() {
  if (!Executor::in_step()) return;
  fail<c10::DistBackendError>(
      "whorl: the handler of a signal cannot end a process group while its thread waits in one; "
      "let "
      "the handler raise an exception, which ends the wait");
}

void GroupResources::shut_down(Deadline deadline) {
  refuse_in_step();
  if (!in_process_that_made_it() || shut_down_.exchange(true)) return;
  const WithoutGil without_gil;
  // Lanes are drained in order: callbacks of one lane issue operations on the next lane, which
  // accepts these until the callbacks have run.
  std::size_t drained = 0;
  for (std::vector<Lane> all = lanes(); drained < all.size(); all = lanes()) {
    all[drained++].queue->drain(deadline);
  }
  {
    const std::lock_guard lock(mutex_);
    if (!ended_) ended_ = shut_down_error();
  }
  p2p->close(deadline);
  const std::vector<Lane> all = lanes();
  for (; drained < all.size(); ++drained) all[drained].queue->drain(deadline);
  for (const Lane& lane : all) {
    lane.queue->join();
    if (!lane.streams->idle_by(deadline)) lane.comm->interrupt();
    lane.comm->destroy();
  }
}

void GroupResources::abort(const std::exception_ptr& reason) {
  refuse_in_step();
  if (!in_process_that_made_it()) return;
  const WithoutGil without_gil;
  {
    const std::lock_guard lock(mutex_);
    if (!ended_) ended_ = reason;
  }
  for (const Lane& lane : lanes()) lane.queue->interrupt(reason);
  p2p->interrupt(reason);
}

std::shared_ptr<GroupResources> make_resources(const Communicator::Place& place,
                                               whorlComm_t existing) {
  auto resources = std::make_shared<GroupResources>(place, existing);
  const std::lock_guard lock(registry().mutex);
  std::erase_if(registry().groups, [](const auto& group) { return group.expired(); });
  registry().groups.push_back(resources);
  return resources;
}

void end_resources(std::shared_ptr<GroupResources> resources) {
  // The handler of a signal that drops the last reference leaves the group to the end of the
  // process.
  if (resources->in_process_that_made_it() && !Executor::in_step()) {
    return resources->shut_down(deadline_in(kShutdownGrace));
  }
  new std::shared_ptr<GroupResources>(std::move(resources)); // its threads cannot be joined here
}

void shut_down_all_groups() {
  WaitOfProgram::interpreter_ends();
  std::vector<std::shared_ptr<GroupResources>> left;
  {
    const std::lock_guard lock(registry().mutex);
    for (const auto& group : registry().groups) {
      if (auto resources = group.lock()) left.push_back(std::move(resources));
    }
  }
  const Deadline deadline = deadline_in(kExitGrace);
  for (const auto& resources : left) resources->shut_down(deadline);
  // Destroyed with the interpreter gone, if nobody else holds them: keep them.
  for (auto& resources : left) new std::shared_ptr<GroupResources>(std::move(resources));
}

} // namespace whorl_torch
