#include "bindings/torch/src/process_group.h"

#include <ATen/MemoryOverlap.h>

#include <algorithm>
#include <limits>

#include "bindings/torch/src/errors.h"
#include "bindings/torch/src/profile.h"
#include "bindings/torch/src/signals.h"
#include "bindings/torch/src/store.h"
#include "bindings/torch/src/types.h"

namespace whorl_torch {
namespace {

/// Returns the prefix of all keys of the next group of `size` ranks that this rank makes in
/// `store`. A store may outlive a group that is made again under the same name, so the attempts are
/// counted: by size, because ranks that were not in a smaller group of that name have made fewer.
std::string next_prefix(c10d::Store& store, int rank, int size) {
  const std::int64_t attempt = store.add(c10::str("whorl/attempts/", size, "/", rank), 1);
  return c10::str("whorl/", size, "/", attempt, "/");
}

/// Returns the prefix of all keys in `store` of a group whose ranks have a communicator already.
/// Rank 0 takes a number, because ranks may have made different numbers of groups in the store
/// before. Ends the communicator before an exception leaves the function.
std::string agreed_prefix(c10d::Store& store, int rank, whorlComm_t comm) {
  try {
    std::int64_t number = rank == 0 ? store.add("whorl/derived", 1) : 0;
    check(whorlBroadcast(&number, &number, 1, whorlInt64, 0, comm, nullptr), comm);
    return c10::str("whorl/derived/", number, "/");
  } catch (...) {
    whorlCommAbort(comm);
    throw_if_interrupted();
    throw;
  }
}

Communicator::Place make_place(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                               const ProcessGroupWhorl::Options& options, whorlComm_t comm) {
  const std::string prefix =
      comm == nullptr ? next_prefix(*store, rank, size) : agreed_prefix(*store, rank, comm);
  return {.store = store,
          .prefix = prefix,
          .rank = rank,
          .size = size,
          .name = c10::str("process group ", options.name),
          .timeout = options.timeout,
          .processes = std::make_shared<ProcessLiveness>(store, prefix + "processes/", rank),
          .ranks = {}};
}

/// Throws where a message could not be queued because of a capture. Called before the other side
/// gets its header.
void refuse_capture(const std::shared_ptr<DeviceRun>& run, const char* operation) {
  if (run == nullptr || !run->captured()) return;
  fail<c10::ValueError>(
      "whorl: ", operation,
      ": the current stream is being captured into a graph, which cannot repeat a "
      "message; issue it outside the capture");
}

} // namespace

ProcessGroupWhorl::ProcessGroupWhorl(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                     int size, c10::intrusive_ptr<Options> options,
                                     const c10::intrusive_ptr<ProcessGroupWhorl>& world)
    : ProcessGroupWhorl(store, rank, size, std::move(options), nullptr, world.get()) {}

ProcessGroupWhorl::ProcessGroupWhorl(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                     int size, c10::intrusive_ptr<Options> options,
                                     whorlComm_t comm, const ProcessGroupWhorl* world)
    : Backend(rank, size),
      options_(std::move(options)),
      store_(store),
      place_(make_place(store, rank, size, *options_, comm)),
      resources_(make_resources(place_, comm)) {
  init();
  if (world != nullptr) {
    place_.processes->fall_back_on(world->place_.processes, options_->global_ranks_in_group);
  }
  if (options_->eager) meet();
}

void ProcessGroupWhorl::meet() {
  try {
    place_.processes->exchange(resources_->lane(0).comm->get(), size_);
  } catch (...) {
    end_resources(std::exchange(resources_, nullptr));
    throw_if_interrupted();
    throw;
  }
}

ProcessGroupWhorl::~ProcessGroupWhorl() { end_resources(std::move(resources_)); }

void ProcessGroupWhorl::abort_group() {
  resources_->abort(backend_error("whorl rank ", rank_, ": ", place_.name, " was aborted"));
}

void ProcessGroupWhorl::set_timeout(std::chrono::milliseconds timeout) {
  options_->timeout = timeout;
  resources_->set_timeout(timeout);
}

std::shared_ptr<DeviceRun> ProcessGroupWhorl::device_part(const char* title, const Tensors& outputs,
                                                          const Tensors& inputs) {
  const auto device = common_device(title, outputs, inputs);
  if (!device) return nullptr;
  {
    const std::lock_guard lock(devices_mutex_);
    if (std::find(devices_.begin(), devices_.end(), *device) == devices_.end()) {
      devices_.push_back(*device);
    }
  }
  Tensors tensors = outputs;
  tensors.insert(tensors.end(), inputs.begin(), inputs.end());
  return std::make_shared<DeviceRun>(*device, std::move(tensors));
}

WorkPtr ProcessGroupWhorl::make_work(const Call& call, Tensors outputs, Tensors inputs,
                                     std::function<void()> body, std::shared_ptr<DeviceRun> run) {
  if (body) {
    body = profiled({call.title, *this, options_->global_ranks_in_group, inputs, outputs},
                    std::move(body));
  }
  auto work =
      c10::make_intrusive<WhorlWork>(WhorlWork::Description{.type = call.type,
                                                            .title = call.title,
                                                            .rank = rank_,
                                                            .sequence = sequence_.fetch_add(1) + 1,
                                                            .outputs = std::move(outputs),
                                                            .inputs = std::move(inputs),
                                                            .device = std::move(run)},
                                     std::move(body));
  work->set_abort([group = std::weak_ptr(resources_)] {
    if (const auto resources = group.lock()) {
      resources->abort(backend_error("whorl: an operation of the process group was aborted"));
    }
  });
  return work;
}

ProcessGroupWhorl::WorkResult ProcessGroupWhorl::issue(const Call& call, Tensors outputs,
                                                       Tensors inputs,
                                                       std::function<void(const Target&)> body) {
  const Lane lane = resources_->lane(CallbackScope::depth());
  const std::shared_ptr<DeviceRun> run = device_part(call.title, outputs, inputs);
  // A server also takes operations on a device, since ranks that share the device wait there for
  // each other's calls. It does not take a captured one: the capture might end before it comes to
  // that.
  const bool captured = run != nullptr && run->captured();
  const bool async = (call.async || coalescing_) && !captured;
  if (!async) Executor::refuse_wait_in_step(); // what is in the queue would be carried out later
  WorkPtr work = make_work(
      call, std::move(outputs), std::move(inputs),
      [comm = lane.comm, streams = lane.streams, timeout = call.timeout, body = std::move(body),
       run] {
        const whorlComm_t handle = comm->get(timeout);
        if (run == nullptr) return body({handle});
        run->queue(*streams, comm, [&](void* stream) { body({handle, stream}); });
      },
      run);
  lane.queue->push(work, async);
  if (!async) {
    const WaitOfProgram waits;
    lane.queue->help_until(*work);
  }
  if (coalescing_) coalesced_.push_back(work);
  return work;
}

ProcessGroupWhorl::WorkResult ProcessGroupWhorl::endCoalescing() {
  coalescing_ = false;
  return c10::make_intrusive<CoalescedWork>(rank_, std::exchange(coalesced_, {}));
}

ProcessGroupWhorl::WorkResult ProcessGroupWhorl::barrier(const c10d::BarrierOptions& options) {
  // Other ranks go on only when this rank's devices have done what has been queued there by now.
  std::vector<c10::Device> devices;
  {
    const std::lock_guard lock(devices_mutex_);
    devices = devices_;
  }
  const auto point = std::make_shared<DevicePoint>(devices);
  return issue(
      describe(c10d::OpType::BARRIER, "whorl:barrier", options), {}, {},
      [point, streams = resources_->lane(CallbackScope::depth()).streams](const Target& on) {
        point->wait();
        streams->synchronize(); // waits for collectives that nobody has waited for
        check(whorlBarrier(on.comm, on.stream), on.comm);
      });
}

/// Waits for all ranks through the store, and so can name missing ones whatever state the
/// communicators are in.
void ProcessGroupWhorl::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  const auto timeout = options.timeout.count() > 0 ? options.timeout : options_->timeout;
  const Deadline deadline = deadline_in(timeout);
  const std::string key = c10::str(place_.prefix, "monitored/", monitored_barriers_++, "/");
  const std::string go = key + "go", heard = key + "heard", all_heard = key + "all heard";
  const std::atomic<bool> never{false};
  const auto mine = [&](int rank) { return c10::str(key, rank); };
  if (rank_ != 0) {
    store_->set(mine(rank_), std::string("here"));
    if (!wait_for_key(*store_, go, deadline, never)) {
      throw_if_interrupted();
      fail<c10::DistBackendError>("whorl: monitoredBarrier: rank ", rank_,
                                  " has come, and rank 0 did not answer within ", timeout.count(),
                                  " ms: rank 0 has not come, or its own error names the rank that "
                                  "has not");
    }
    const std::string answer = store_->get_to_str(go);
    if (answer != "go") fail<c10::DistBackendError>(answer);
    try {
      if (store_->add(heard, 1) == size_ - 1) store_->set(all_heard, std::string("heard"));
    } catch (const std::exception&) { // rank 0 has left, with the store
    }
    return;
  }
  std::string missing;
  for (int rank = 1; rank < size_; ++rank) {
    if (wait_for_key(*store_, mine(rank), deadline, never)) continue;
    throw_if_interrupted();
    missing += c10::str(missing.empty() ? "" : ", ", rank);
    if (!wait_all_ranks) break;
  }
  if (missing.empty()) {
    store_->set(go, std::string("go"));
    // The store may end with this process, so the others hear first; a dead rank never does.
    const Deadline limit = std::min(deadline, deadline_in(kShutdownGrace));
    try {
      if (size_ > 1 && wait_for_key(*store_, all_heard, limit, never)) {
        for (const std::string& read : {go, heard, all_heard}) store_->deleteKey(read);
        for (int rank = 1; rank < size_; ++rank) store_->deleteKey(mine(rank));
      }
    } catch (const std::exception&) { // all have come; keys that stay do no harm
    }
    return throw_if_interrupted();
  }
  const std::string sentence = c10::str("whorl: monitoredBarrier: rank 0 waited ", timeout.count(),
                                        " ms for rank ", missing, ", which did not come");
  store_->set(go, sentence);
  fail<c10::DistBackendError>(sentence);
}

ProcessGroupWhorl::WorkResult ProcessGroupWhorl::send(Tensors& tensors, int destination, int tag) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "whorl: send takes one tensor");
  check_tensor(tensors[0], "send");
  check_root(destination, "send");
  TORCH_CHECK_VALUE(destination != rank_, "whorl: rank ", rank_, " cannot send to itself");
  const auto run = device_part("whorl:send", tensors, {});
  refuse_capture(run, "send");
  WorkPtr work = make_work({c10d::OpType::SEND, "whorl:send"}, tensors, tensors,
                           resources_->p2p->sender(tensors[0], destination, tag, run), run);
  resources_->p2p->send(work, destination, true);
  if (coalescing_) coalesced_.push_back(work);
  return work;
}

ProcessGroupWhorl::WorkResult ProcessGroupWhorl::receive(Tensors& tensors, int source, int tag,
                                                         c10d::OpType type, const char* title) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "whorl: recv takes one tensor");
  check_tensor(tensors[0], "recv");
  // The copy into it would fail once the message has come, and messages after it would be lost.
  TORCH_CHECK_VALUE(at::has_internal_overlap(tensors[0]) != at::MemOverlap::Yes,
                    "whorl: recv: elements of the tensor share memory, as those of an expanded "
                    "tensor do; receive into a tensor of its own memory and copy from that");
  auto request = std::make_shared<ReceiveRequest>();
  request->device = device_part(title, tensors, {});
  refuse_capture(request->device, "recv");
  request->work = make_work({type, title}, tensors, tensors, nullptr, request->device);
  request->target = tensors[0];
  if (request->device == nullptr) request->dense = dense_like(tensors[0]);
  request->tag = tag;
  WorkPtr work = request->work;
  resources_->p2p->receive(std::move(request), source, true);
  if (coalescing_) coalesced_.push_back(work);
  return work;
}

ProcessGroupWhorl::WorkResult ProcessGroupWhorl::recv(Tensors& tensors, int source, int tag) {
  check_root(source, "recv");
  TORCH_CHECK_VALUE(source != rank_, "whorl: rank ", rank_, " cannot receive from itself");
  return receive(tensors, source, tag, c10d::OpType::RECV, "whorl:recv");
}

ProcessGroupWhorl::WorkResult ProcessGroupWhorl::recvAnysource(Tensors& tensors, int tag) {
  TORCH_CHECK_VALUE(size_ > 1, "whorl: recv from any rank: the group has no other rank");
  return receive(tensors, kAnySource, tag, c10d::OpType::RECVANYSOURCE, "whorl:recvAnySource");
}

void ProcessGroupWhorl::check_root(std::int64_t root, const char* operation) const {
  TORCH_CHECK_VALUE(root >= 0 && root < size_, "whorl: ", operation, ": rank ", root,
                    " is not in this group of ", size_, " ranks");
}

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 8)
c10d::ErrorType ProcessGroupWhorl::getError() {
  switch (resources_->state()) {
    case whorlSuccess:
    case whorlInProgress:
      return c10d::ErrorType::SUCCESS;
    case whorlRemoteError:
      return c10d::ErrorType::REMOTE_ERROR;
    default:
      return c10d::ErrorType::COMM_ERROR;
  }
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupWhorl::split(
    const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
    const c10::intrusive_ptr<c10d::Backend::Options>& options) {
  const auto mine = std::find(ranks.begin(), ranks.end(), rank_);
  const bool member = mine != ranks.end();
  // The subgroups are disjoint, so the lowest rank of each identifies it.
  const int color = member ? *std::min_element(ranks.begin(), ranks.end()) : WHORL_SPLIT_NOCOLOR;
  const int key = static_cast<int>(mine - ranks.begin());
  auto child = child_options(options);
  const whorlComm_t made =
      make_child("whorl:split", *child,
                 [color, key](whorlComm_t parent, whorlComm_t* out, whorlConfig_t* config) {
                   return whorlCommSplit(parent, color, key, out, config);
                 });
  if (!member) return nullptr;
  return c10::intrusive_ptr<ProcessGroupWhorl>::reclaim(
      new ProcessGroupWhorl(store, key, static_cast<int>(ranks.size()), std::move(child), made));
}

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 13)
c10::intrusive_ptr<c10d::Backend> ProcessGroupWhorl::shrink(
    const std::vector<std::int64_t>& ranks_to_exclude, int shrink_flags,
    const c10::intrusive_ptr<c10d::Backend::Options>& options) {
  const std::vector<int> excluded(ranks_to_exclude.begin(), ranks_to_exclude.end());
  auto child = child_options(options);
  // Operations under way would otherwise be waited for, since those of a group have an order.
  if ((shrink_flags & WHORL_SHRINK_ABORT) != 0) resources_->lane(0).comm->revoke();
  const whorlComm_t made = make_child(
      "whorl:shrink", *child,
      [excluded, shrink_flags](whorlComm_t parent, whorlComm_t* out, whorlConfig_t* config) {
        return whorlCommShrink(parent, excluded.data(), static_cast<int>(excluded.size()), out,
                               config, shrink_flags);
      });
  int rank = 0, size = 0;
  check(whorlCommUserRank(made, &rank), made);
  check(whorlCommCount(made, &size), made);
  return c10::intrusive_ptr<ProcessGroupWhorl>::reclaim(
      new ProcessGroupWhorl(store_, rank, size, std::move(child), made));
}
#endif

c10::intrusive_ptr<ProcessGroupWhorl::Options> ProcessGroupWhorl::child_options(
    const c10::intrusive_ptr<c10d::Backend::Options>& given) const {
  auto child = c10::make_intrusive<Options>(given ? given->timeout : options_->timeout);
  child->eager = options_->eager;
  child->name = options_->name;
  if (given) {
    child->group_name = given->group_name;
    child->name = given->group_name;
    child->group_desc = given->group_desc;
    child->global_ranks_in_group = given->global_ranks_in_group;
  }
  return child;
}

whorlComm_t ProcessGroupWhorl::make_child(const char* title, const Options& child, MakeChild make) {
  const auto made = std::make_shared<whorlComm_t>(nullptr);
  issue({c10d::OpType::UNKNOWN, title, false, std::nullopt}, {}, {},
        [made, make = std::move(make), name = c10::str("process group ", child.name),
         timeout = child.timeout](const Target& on) {
          whorlConfig_t config = WHORL_CONFIG_INITIALIZER;
          config.timeoutMs = static_cast<int>(
              std::clamp<std::int64_t>(timeout.count(), 1, std::numeric_limits<int>::max()));
          config.commName = name.c_str();
          check(make(on.comm, made.get(), &config), on.comm);
        })
      ->wait();
  return *made;
}
#endif

} // namespace whorl_torch
