#include "comm/communicator.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/log.h"
#include "base/system.h"
#include "base/thread.h"
#include "comm/decisions.h"
#include "comm/records.h"
#include "device/join.h"
#include "device/staged/stream.h"
#include "net/secret.h"

namespace whorl {

Communicator::Communicator(Setup setup)
    : setup_(std::move(setup)),
      policy_(setup_.policy),
      waiter_(*this),
      device_watch_{.comm_error = setup_.comm_error.get(),
                    .look_at_peers = [this] { look_at_peers(); },
                    .fail = [this](Status why) { abort(std::move(why)); }},
      device_group_(join_device_group(*setup_.membership, setup_.node->board(),
                                      setup_.node->fd_channel(), device_watch_,
                                      {.shape = setup_.shape,
                                       .algorithms = algorithms_for(setup_.shape, setup_.options),
                                       .verify = setup_.options.verify})),
      tasks_(std::make_shared<TaskQueue>(static_cast<TaskRunner&>(*this), setup_.patience_ns)) {
  prepare_device(membership().ranks_sharing(&PeerInfo::process_key, rank()));
  engine_ = std::make_unique<Engine>(Engine::Config{.membership = setup_.membership.get(),
                                                    .shape = setup_.shape,
                                                    .selector = setup_.selector,
                                                    .nontemporal_bytes = setup_.nontemporal_bytes(),
                                                    .divides_one_way = setup_.divides_one_way(),
                                                    .verify = setup_.options.verify,
                                                    .devices = devices_possible(),
                                                    .trace = setup_.trace.get(),
                                                    .observer = setup_.profiler.get(),
                                                    .recorder = setup_.recorder.get(),
                                                    .workspace_bytes = setup_.workspace_bytes,
                                                    .endpoints = setup_.endpoints()});
}

Communicator::~Communicator() {
  if (progress_thread_.joinable()) {
    tasks_->stop();
    progress_thread_.join();
  }
  static_cast<void>(without_exceptions([&]() -> Status {
    write_trace();
    log_waits(*setup_.membership, *setup_.recorder);
    return {};
  }));
}

void Communicator::write_trace() {
  if (setup_.trace == nullptr) return;
  std::vector<std::string> names;
  for (const Algorithm& algorithm : all_algorithms()) {
    names.push_back(fmt::format("{} {}", name_of(algorithm.collective), algorithm.name));
  }
  setup_.trace->write(names);
}

Status Communicator::run(std::span<const Request> batch, unsigned timeout_factor) {
  if (!tasks_->idle()) WHORL_TRY(drain());
  return execute(batch, policy_.timeout_ns * timeout_factor);
}

WaitResult Communicator::repeat(Collective collective, const void* send, void* recv) noexcept {
  if (device_group_ != nullptr) device_group_->count();
  WaitResult result = WaitResult::kFailed;
  const Status status = without_exceptions([&]() -> Status {
    timeout_ns_ = policy_.timeout_ns;
    // An error that came between two calls says which one has found it: the operation is begun, but
    // sends nothing before it advances. After a call that has failed the engine is in that one.
    const bool failed = setup_.comm_error->is_set();
    if (failed && engine_->active()) return {};
    engine_->repeat(collective, send, recv);
    if (failed) return {};
    result =
        wait_until([this] { return engine_->advance(); }, policy_, *setup_.comm_error, waiter_);
    if (told_stuck_ && result == WaitResult::kReady) [[unlikely]]
      withdraw_stuck();
    return {};
  });
  // The other ranks count this operation: without it, this rank cannot go on either.
  if (!status.ok()) setup_.comm_error->set(status);
  return result;
}

Status Communicator::execute(std::span<const Request> batch, std::uint64_t timeout_ns) {
  WHORL_TRY(begin(batch, timeout_ns));
  WaitPolicy policy = setup_.policy;
  policy.timeout_ns = timeout_ns;
  return finish(wait_until([this] { return advance(); }, policy, *setup_.comm_error, waiter_));
}

Status Communicator::begin(std::span<const Request> batch) {
  return begin(batch, policy_.timeout_ns);
}

Status Communicator::begin(std::span<const Request> batch, std::uint64_t timeout_ns) {
  timeout_ns_ = timeout_ns;
  if (setup_.comm_error->is_set()) return before_operation(setup_.comm_error->status(), batch);
  Status status = without_exceptions([&] { return engine_->start(batch); });
  if (status.ok() || status.code() == Code::kInvalidArgument) return status;
  setup_.comm_error->set(status);
  notify_peers();
  revoke_access(); // because a transfer that had begun has exposed its buffer
  return setup_.comm_error->status();
}

Progress Communicator::advance() noexcept {
  Progress progress = Progress::kFailed;
  const Status status = without_exceptions([&]() -> Status {
    progress = engine_->advance();
    return {};
  });
  if (!status.ok()) setup_.comm_error->set(status);
  return progress;
}

Status Communicator::finish(WaitResult result) {
  if (result == WaitResult::kReady) {
    if (told_stuck_) withdraw_stuck();
    return {};
  }
  const Status failure = without_exceptions([&]() -> Status {
    if (result == WaitResult::kTimedOut) return time_out_error();
    Status found = engine_->failure();
    const bool of_device = found.code() == Code::kCudaError; // an error that does not name the rank
    return of_device ? found.with_context(membership().describe(rank())) : found;
  });
  if (!failure.ok()) setup_.comm_error->set(failure);
  notify_peers();
  revoke_access();
  return in_operation(setup_.comm_error->status());
}

/// Adds to an error, unless its text has it, what this rank was doing.
Status Communicator::in_operation(const Status& error) const {
  const std::string operation = engine_->operation();
  if (operation.empty() || error.message().find(operation) != std::string::npos) return error;
  return Status::error(error.code(),
                       fmt::format("{}; rank {} was in {}", error.message(), rank(), operation));
}

/// Adds to an error that came before a batch was begun what this rank was to do.
Status Communicator::before_operation(const Status& error, std::span<const Request> batch) const {
  if (batch.empty()) return error;
  return Status::error(error.code(),
                       fmt::format("{}; rank {} was about to begin {}", error.message(), rank(),
                                   whorl::describe(batch.front())));
}

/// Makes sure that peers neither read nor write the buffers of a failed operation after the return
/// of its call.
void Communicator::revoke_access() {
  // A peer needs microseconds to finish a message, unless it is stopped in the middle.
  constexpr std::uint64_t kTimeoutNs = 1'000'000'000;
  CommError never_set;
  WaitPolicy policy = setup_.policy;
  policy.timeout_ns = kTimeoutNs;
  const auto attempt = [this] {
    bool quiet = true;
    for (const auto& transport : setup_.transports) {
      if (!transport->revoke_access()) quiet = false;
    }
    return quiet ? Progress::kDone : Progress::kIdle;
  };
  if (wait_until(attempt, policy, never_set, waiter_) == WaitResult::kReady) return;
  log(LogLevel::kWarn,
      fmt::format("{}: a peer stopped in the middle of a message; when it goes on, it may read or "
                  "write the buffers of the operation that failed",
                  membership().describe(membership().rank)));
}

void Communicator::notify_peers() noexcept {
  if (!setup_.comm_error->is_set() || notified_.exchange(true)) return;
  record_failure(setup_);
  const Status comm_error = setup_.comm_error->status();
  for (const auto& transport : setup_.transports) transport->notify_peers(comm_error);
  // A rank whose stream goes on because of the cancellation finds the error.
  if (device_group_ != nullptr) device_group_->stop();
}

/// Checks whether a peer has died or failed, or a kernel has given up, for a rank that has waited
/// so long. With the mutex held.
void Communicator::look(std::uint64_t waited_ns) {
  for (const auto& transport : setup_.transports) transport->poll_failures(waited_ns);
  if (device_group_ == nullptr || setup_.comm_error->is_set()) return;
  if (Status failure = device_group_->failure(); !failure.ok()) abort(std::move(failure));
}

void Communicator::look_at_peers(std::uint64_t waited_ns) noexcept {
  const std::unique_lock lock(look_mutex_, std::try_to_lock);
  if (lock.owns_lock()) look(waited_ns);
}

void Communicator::begin_destruction() noexcept {
  destroyed_ns_.store(std::max<std::uint64_t>(sys().now_ns(), 1), std::memory_order_relaxed);
}

Status Communicator::given_up() const {
  // pairs with release in give_up_if_destroyed()
  return gave_up_.load(std::memory_order_acquire) ? setup_.comm_error->status() : Status();
}

bool Communicator::leave() noexcept {
  if (!tasks_->idle() || device_group_ != nullptr) return false;
  const std::lock_guard lock(look_mutex_);
  notified_.store(true); // there is nothing left by which to notify
  setup_.transports.clear();
  return true;
}

void Communicator::abort(Status why) {
  setup_.comm_error->set(std::move(why));
  notify_peers();
}

Status Communicator::end_if_device_is_lost(Status status) {
  if (status.code() != Code::kCudaError) return status;
  const Status fault = device_fault();
  if (fault.ok()) return status;
  abort(fault.with_context(membership().describe(rank())));
  return setup_.comm_error->status();
}

Status Communicator::state() {
  // Not look_at_peers(), which does nothing while another thread polls: a failure before this call
  // has to be found.
  const std::lock_guard lock(look_mutex_);
  look(0);
  return setup_.comm_error->status();
}

bool Communicator::is_lost(int peer) const noexcept {
  const int index = setup_.transport_of[static_cast<std::size_t>(peer)];
  return index >= 0 && setup_.transports[static_cast<std::size_t>(index)]->is_lost(peer);
}

Result<std::vector<SocketAddress>> Communicator::outer_addresses(int of) const {
  const std::vector<std::string>& listed = setup_.options.transports; // also those without peers
  std::vector<SocketAddress> all;
  for (const auto& transport : setup_.transports) {
    const auto place = std::find(listed.begin(), listed.end(), transport->traits().name);
    const auto some = transport->outer_addresses(membership().info(of),
                                                 static_cast<std::size_t>(place - listed.begin()));
    if (!some.ok()) return some.status();
    all.insert(all.end(), some->begin(), some->end());
  }
  if (!all.empty()) return all;
  return Status::error(Code::kInternalError, fmt::format("no transport knows an address of {}",
                                                         membership().describe(of)));
}

Communicator::Memory Communicator::memory() const noexcept {
  Memory now{.workspaces = engine_->workspace_bytes(), .plans = engine_->plan_bytes()};
  const std::lock_guard lock(look_mutex_);
  for (const auto& transport : setup_.transports) {
    const TransportMemory part = transport->memory();
    now.transports.reserved += part.reserved;
    now.transports.fifos += part.fifos;
    now.transports.shared += part.shared;
    now.transports.kernel += part.kernel;
    now.transports.fixed += part.fixed;
    now.zero_copy_messages += transport->zero_copy_messages();
  }
  const auto nranks = static_cast<std::size_t>(membership().nranks);
  now.fixed = now.transports.fixed + sizeof *this + sizeof(Engine) +
              nranks * (sizeof(PeerInfo) + sizeof(int) +
                        static_cast<std::size_t>(membership().channels) * sizeof(Endpoint*));
  return now;
}

Status Communicator::start_progress() {
  if (progress_thread_.joinable()) return {};
  auto thread = start_thread("whorl-progress", [this] { serve(); });
  if (!thread.ok()) {
    abort(thread.status().with_context(membership().describe(rank())));
    return thread.status();
  }
  progress_thread_ = *std::move(thread);
  return {};
}

void Communicator::enqueue(Task task) {
  task.timeout_ns = policy_.timeout_ns;
  for (const auto& ticket : task.tickets) ticket->stream().enter(tasks_);
  tasks_->push(std::move(task));
}

Status Communicator::drain() {
  tasks_->drain([this] { end_if_interrupted(); });
  return setup_.comm_error->status();
}

Status Communicator::flush() {
  WHORL_TRY(drain());
  if (device_group_ != nullptr) device_group_->flush();
  return setup_.comm_error->status();
}

void Communicator::serve() {
  const WaitPolicy policy{.timeout_ns = UINT64_MAX,
                          .spins = setup_.policy.spins,
                          .yield_ns = 50'000,
                          .block_ns = 1'000'000'000};
  while (tasks_->serve(policy)) continue;
}

Status Communicator::run_task(const Task& task) {
  for (const auto& ticket : task.tickets) {
    const Status fault = ticket->wait(*setup_.comm_error, [this] { look_at_peers(); });
    if (fault.ok()) continue;
    if (setup_.comm_error->is_set()) {
      return before_operation(setup_.comm_error->status(), task.batch);
    }
    abort(without_exceptions([&] { return fault.with_context(membership().describe(rank())); }));
    return setup_.comm_error->status();
  }
  task_operations_ = task.batch.size();
  Status status = execute(task.batch, task.timeout_ns);
  task_operations_ = 0;
  return status;
}

Result<Identity> Communicator::derive_identity(int color) {
  ByteWriter salt;
  salt.put(membership().identity.job);
  salt.put(++splits_);
  salt.put(color);
  Identity child;
  if (!whorl::derive_identity(membership().identity.secret, salt.bytes(), &child)) {
    return Status::error(Code::kInternalError, "HMAC-SHA256 failed");
  }
  return child;
}

} // namespace whorl
