#include "comm/communicator.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/log.h"
#include "base/thread.h"
#include "comm/interrupt.h"
#include "device/staged/stream.h"
#include "net/secret.h"

namespace whorl {
namespace {

/// Sleeps until an operation of a stream completes, and looks whether the stream still goes on.
class StreamNapper final : public Napper {
 public:
  explicit StreamNapper(Stream& stream) : stream_(stream), waiter_(stream.event()) {}
  void nap(std::uint64_t max_ns) noexcept override { waiter_.nap(max_ns); }
  void look_around(std::uint64_t) noexcept override {
    fault_ = without_exceptions([this] { return stream_.fault(); });
  }
  const Status& fault() const noexcept { return fault_; }

 private:
  Stream& stream_;
  Event::Waiter waiter_;
  Status fault_;
};

std::string seconds(std::uint64_t ns) {
  return fmt::format("{:.1f} s", static_cast<double>(ns) * 1e-9);
}

/// Looks whether a peer has died or failed, or a kernel has given up. One thread at a time.
template <class Transports>
void look(const Transports& transports, DeviceGroup* group, Communicator& communicator) {
  for (const auto& transport : transports) transport->look_around(0);
  if (group == nullptr || communicator.verdict().raised()) return;
  if (Status failure = group->failure(); !failure.ok()) communicator.abort(std::move(failure));
}

} // namespace

Communicator::Communicator(Setup setup)
    : setup_(std::move(setup)),
      policy_(setup_.policy),
      napper_(*this),
      device_watch_{.verdict = setup_.verdict.get(),
                    .look_at_peers = [this] { look_at_peers(); },
                    .fail = [this](Status why) { abort(std::move(why)); }},
      device_group_(join_device_group(*setup_.membership, setup_.board(), setup_.mailbox(),
                                      device_watch_,
                                      {.shape = setup_.shape,
                                       .algorithms = setup_.options.algorithms,
                                       .verify = setup_.verify})),
      tasks_(std::make_shared<TaskQueue>(static_cast<TaskRunner&>(*this))) {
  prepare_device(membership().ranks_in_process_of(rank()));
  engine_ = std::make_unique<Engine>(Engine::Config{.membership = setup_.membership.get(),
                                                    .shape = setup_.shape,
                                                    .selector = setup_.selector,
                                                    .stream_bytes = setup_.stream_bytes(),
                                                    .verify = setup_.verify,
                                                    .devices = devices_possible(),
                                                    .trace = setup_.trace.get(),
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

Status Communicator::run(std::span<const Request> batch, unsigned patience) {
  if (!tasks_->idle()) WHORL_TRY(drain());
  return execute(batch, policy_.timeout_ns * patience);
}

WaitResult Communicator::repeat(Collective collective, const void* send, void* recv) noexcept {
  if (setup_.verdict->raised()) return WaitResult::kFailed;
  if (device_group_ != nullptr) device_group_->count();
  WaitResult result = WaitResult::kFailed;
  const Status status = without_exceptions([&]() -> Status {
    timeout_ns_ = policy_.timeout_ns;
    engine_->repeat(collective, send, recv);
    result = wait_until([this] { return engine_->advance(); }, policy_, *setup_.verdict, napper_);
    return {};
  });
  // The other ranks count this operation: without it, this rank cannot go on either.
  if (!status.ok()) setup_.verdict->raise(status);
  return result;
}

Status Communicator::execute(std::span<const Request> batch, std::uint64_t timeout_ns) {
  WHORL_TRY(begin(batch, timeout_ns));
  WaitPolicy policy = setup_.policy;
  policy.timeout_ns = timeout_ns;
  return finish(wait_until([this] { return advance(); }, policy, *setup_.verdict, napper_));
}

Status Communicator::begin(std::span<const Request> batch) {
  return begin(batch, policy_.timeout_ns);
}

Status Communicator::begin(std::span<const Request> batch, std::uint64_t timeout_ns) {
  timeout_ns_ = timeout_ns;
  if (setup_.verdict->raised()) return setup_.verdict->status();
  Status status = without_exceptions([&] { return engine_->start(batch); });
  if (status.ok() || status.code() == Code::kInvalidArgument) return status;
  setup_.verdict->raise(status);
  tell_peers();
  withdraw_memory(); // a transfer that had begun has offered its place
  return setup_.verdict->status();
}

Progress Communicator::advance() noexcept {
  Progress progress = Progress::kFailed;
  const Status status = without_exceptions([&]() -> Status {
    progress = engine_->advance();
    return {};
  });
  if (!status.ok()) setup_.verdict->raise(status);
  return progress;
}

Status Communicator::finish(WaitResult result) {
  if (result == WaitResult::kReady) return {};
  if (result == WaitResult::kTimedOut) {
    setup_.verdict->raise(time_out_error());
  } else if (const Status failure = engine_->failure(); !failure.ok()) {
    const bool of_device = failure.code() == Code::kCudaError; // which does not know the rank
    setup_.verdict->raise(of_device ? failure.with_context(membership().describe(rank()))
                                    : failure);
  }
  tell_peers();
  withdraw_memory();
  return setup_.verdict->status();
}

/// Sees to it that peers neither read nor write the buffers of a failed operation once its call has
/// returned.
void Communicator::withdraw_memory() {
  // A peer needs microseconds to finish a message, unless it is stopped in the middle.
  constexpr std::uint64_t kPatienceNs = 1'000'000'000;
  Verdict nobody;
  WaitPolicy policy = setup_.policy;
  policy.timeout_ns = kPatienceNs;
  const auto attempt = [this] {
    bool quiet = true;
    for (const auto& transport : setup_.transports) {
      if (!transport->withdraw_memory()) quiet = false;
    }
    return quiet ? Progress::kDone : Progress::kIdle;
  };
  if (wait_until(attempt, policy, nobody, napper_) == WaitResult::kReady) return;
  log(LogLevel::kWarn,
      fmt::format("{}: a peer stopped in the middle of a message; when it goes on, it may read or "
                  "write the buffers of the operation that failed",
                  membership().describe(membership().rank)));
}

Status Communicator::time_out_error() const {
  return Status::error(
      Code::kRemoteError,
      fmt::format(
          "no progress within the timeout of {}. {}. That rank may be dead, stopped, busy "
          "elsewhere or may not have made this call; if it needs longer, raise WHORL_TIMEOUT_MS, "
          "timeoutMs or what whorlCommSetTimeout() was given",
          seconds(timeout_ns_), engine_->waiting()));
}

void Communicator::tell_peers() noexcept {
  if (!setup_.verdict->raised() || told_.exchange(true)) return;
  const Status verdict = setup_.verdict->status();
  for (const auto& transport : setup_.transports) transport->tell(verdict);
  // Whose stream goes on because of that finds the error.
  if (device_group_ != nullptr) device_group_->stop();
}

void Communicator::look_at_peers() noexcept {
  const std::unique_lock lock(look_mutex_, std::try_to_lock);
  if (lock.owns_lock()) look(setup_.transports, device_group_.get(), *this);
}

void Communicator::PeerNapper::nap(std::uint64_t max_ns) noexcept { comm_.setup_.nap(max_ns); }

void Communicator::PeerNapper::look_around(std::uint64_t waited_ns) noexcept {
  constexpr std::uint64_t kWarnNs = 1'000'000'000;
  comm_.look_at_peers();
  const auto interrupted = interrupt_check.load(std::memory_order_relaxed);
  if (interrupted != nullptr && interrupted() != 0) {
    comm_.abort(Status::error(Code::kInvalidUsage,
                              fmt::format("{}: the program was interrupted while it waited",
                                          comm_.membership().describe(comm_.rank()))));
  }
  if (waited_ns < warned_ns_) warned_ns_ = 0; // a new wait
  if (waited_ns >= kWarnNs && warned_ns_ == 0) {
    warned_ns_ = waited_ns;
    if (log_enabled(LogLevel::kInfo)) {
      log(LogLevel::kInfo,
          fmt::format("no progress for {}. {}", seconds(waited_ns), comm_.engine_->waiting()));
    }
  }
}

void Communicator::abort(Status why) {
  setup_.verdict->raise(std::move(why));
  tell_peers();
}

Status Communicator::end_if_device_is_lost(Status status) {
  if (status.code() != Code::kCudaError) return status;
  const Status fault = device_fault();
  if (fault.ok()) return status;
  abort(fault.with_context(membership().describe(rank())));
  return setup_.verdict->status();
}

Status Communicator::state() {
  // Not look_at_peers(): what another thread is about to find has been before this call.
  const std::lock_guard lock(look_mutex_);
  look(setup_.transports, device_group_.get(), *this);
  return setup_.verdict->status();
}

Communicator::Memory Communicator::memory() const noexcept {
  Memory now{.workspaces = engine_->workspace_bytes(), .plans = engine_->plan_bytes()};
  for (const auto& transport : setup_.transports) {
    const TransportMemory part = transport->memory();
    now.transports.reserved += part.reserved;
    now.transports.fifos += part.fifos;
    now.transports.shared += part.shared;
    now.transports.kernel += part.kernel;
    now.transports.fixed += part.fixed;
  }
  const auto nranks = static_cast<std::size_t>(membership().nranks);
  now.fixed = now.transports.fixed + sizeof *this + sizeof(Engine) +
              nranks * (sizeof(RankCard) + sizeof(int) +
                        static_cast<std::size_t>(membership().channels) * sizeof(Endpoint*));
  return now;
}

Status Communicator::submit(Task task) {
  task.timeout_ns = policy_.timeout_ns;
  if (!progress_thread_.joinable()) {
    auto thread = start_thread("whorl-progress", [this] { serve(); });
    if (!thread.ok()) { // without a thread the caller has to do it, in the streams' order
      const Status status = run_task(task);
      for (const auto& ticket : task.tickets) ticket->complete_part(status);
      return status;
    }
    progress_thread_ = *std::move(thread);
  }
  for (const auto& ticket : task.tickets) ticket->stream().enter(tasks_);
  tasks_->push(std::move(task));
  return {};
}

Status Communicator::drain() {
  tasks_->drain();
  return setup_.verdict->status();
}

Status Communicator::flush() {
  WHORL_TRY(drain());
  if (device_group_ != nullptr) device_group_->flush();
  return setup_.verdict->status();
}

void Communicator::serve() {
  const WaitPolicy policy{.timeout_ns = UINT64_MAX,
                          .spins = setup_.policy.spins,
                          .yield_ns = 50'000,
                          .nap_ns = 1'000'000'000};
  while (tasks_->serve(policy)) continue;
}

/// Waits until what was queued before an operation in its stream is complete.
Status Communicator::wait_in_stream(Ticket& ticket) {
  StreamNapper napper(ticket.stream());
  const WaitPolicy policy{.timeout_ns = UINT64_MAX,
                          .spins = 20,
                          .yield_ns = 50'000,
                          .nap_ns = ticket.stream().nap_ns()};
  // A stream is always waited for, also by a dead communicator: its tickets complete in order.
  Verdict nobody;
  static_cast<void>(wait_until(
      [&] {
        if (ticket.may_start()) return Progress::kDone;
        return napper.fault().ok() ? Progress::kIdle : Progress::kFailed;
      },
      policy, nobody, napper));
  return ticket.may_start() ? Status() : napper.fault();
}

Status Communicator::run_task(const Task& task) {
  for (const auto& ticket : task.tickets) {
    if (const Status fault = wait_in_stream(*ticket); !fault.ok()) {
      abort(fault.with_context(membership().describe(rank())));
      return setup_.verdict->status();
    }
  }
  return execute(task.batch, task.timeout_ns);
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
