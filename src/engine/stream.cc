#include "engine/stream.h"

#include <algorithm>
#include <utility>

#include "base/system.h"

namespace whorl {
namespace {

/// Sleeps until an operation of a stream completes, and looks whether the stream still goes on.
class StreamWaiter final : public Waiter {
 public:
  StreamWaiter(Stream& stream, const std::function<void()>& look)
      : stream_(stream), look_(look), waiter_(stream.event()) {}
  void block(std::uint64_t max_ns) noexcept override { waiter_.block(max_ns); }
  void poll_failures(std::uint64_t) noexcept override {
    fault_ = without_exceptions([this] {
      look_();
      return stream_.fault();
    });
  }
  const Status& fault() const noexcept { return fault_; }

 private:
  Stream& stream_;
  const std::function<void()>& look_;
  Event::Waiter waiter_;
  Status fault_;
};

/// Sleeps until an operation of a stream completes, but not beyond a moment.
class LimitedWaiter final : public Waiter {
 public:
  /// Limits the sleep to `timeout_ns` from now; UINT64_MAX: no limit.
  LimitedWaiter(Event& event, std::uint64_t timeout_ns)
      : waiter_(event), limited_(timeout_ns != UINT64_MAX) {
    const std::uint64_t now = limited_ ? sys().now_ns() : 0;
    end_ns_ = now + std::min(timeout_ns, UINT64_MAX - now);
  }
  bool over() const noexcept { return limited_ && sys().now_ns() >= end_ns_; }
  void block(std::uint64_t max_ns) noexcept override {
    const std::uint64_t now = limited_ ? sys().now_ns() : 0;
    if (now < end_ns_) waiter_.block(std::min(max_ns, end_ns_ - now));
  }

 private:
  Event::Waiter waiter_;
  bool limited_;
  std::uint64_t end_ns_;
};

} // namespace

Stream::Stream() noexcept
    : id_([] {
        static std::atomic<std::uint64_t> made{0};
        return made.fetch_add(1, std::memory_order_relaxed) + 1;
      }()) {}

void Stream::release(std::uint64_t number) noexcept {
  completed_.store(number, std::memory_order_release); // pairs with may_start() and idle()
}

/// Does what complete() does, for this stream: adds to `reached` the steps of other streams that
/// have waited for what is complete now.
void Stream::settle(std::uint64_t number, const Status& status, Steps& reached) {
  // Both are let go without the mutex: they may hold the last mention of another stream.
  Steps::node_type step;
  std::shared_ptr<Stream> other;
  {
    const std::lock_guard lock(mutex_);
    step = awaited_.extract(number);
    awaits_.store(!awaited_.empty(), std::memory_order_relaxed); // a hint
    if (settled_ + 1 < number) {
      if (step.empty()) {
        early_.emplace(number, Step{.other = {}, .status = status});
        return;
      }
      other = std::move(step.mapped().other.stream);
      step.mapped().status = status;
      early_.insert(std::move(step));
      return;
    }
    const auto note = [this](const Status& of_one) {
      if (of_one.ok() || !error_.ok()) return;
      error_ = of_one;
      error_number_ = settled_;
    };
    settled_ = number;
    note(status);
    while (!early_.empty() && early_.begin()->first == settled_ + 1) {
      ++settled_;
      note(early_.begin()->second.status);
      early_.erase(early_.begin());
    }
    release(settled_);
    while (!waiting_.empty() && waiting_.begin()->first <= settled_) {
      const auto first = waiting_.begin();
      first->second.status = error_until(first->first);
      reached.insert(waiting_.extract(first));
    }
  }
  event_.notify();
}

void Stream::complete(std::uint64_t number, const Status& status) {
  Steps reached;
  settle(number, status, reached);
  // Steps that have waited for this stream, then those that have waited for these, and so on: with
  // one stream's mutex at a time.
  while (!reached.empty()) {
    const auto node = reached.extract(reached.begin());
    const Step& step = node.mapped();
    step.other.stream->settle(step.other.number, step.status, reached);
  }
}

Status Stream::wait_for(const std::shared_ptr<Stream>& self, const StreamPoint& awaited) {
  if (awaited.stream == nullptr || awaited.stream == self) return {}; // in order anyway
  // Without memory no number is taken, which nobody would complete.
  Steps own, others;
  own.emplace(0, Step{.other = awaited, .status = {}});
  others.emplace(awaited.number, Step{.other = {self, 0}, .status = {}});
  Steps::node_type step = own.extract(own.begin()), waiter = others.extract(others.begin());
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(issuing());
    const auto issued = issue({});
    if (!issued.ok()) return issued.status();
    number = *issued;
  }
  step.key() = number;
  waiter.mapped().other.number = number;
  {
    const std::lock_guard lock(mutex_);
    awaited_.insert(std::move(step));
    awaits_.store(true, std::memory_order_relaxed); // a hint
  }
  Stream& other = *awaited.stream;
  Status status;
  {
    const std::lock_guard lock(other.mutex_);
    if (other.settled_ < awaited.number) {
      other.waiting_.insert(std::move(waiter));
      return {};
    }
    status = other.error_until(awaited.number);
  }
  complete(number, status);
  return {};
}

/// Returns the first error up to operation `last`. The caller holds the mutex.
Status Stream::error_until(std::uint64_t last) const {
  return error_number_ <= last ? error_ : Status();
}

Status Stream::error(std::uint64_t last) const {
  const std::lock_guard lock(mutex_);
  return error_until(last);
}

void Stream::enter(const std::shared_ptr<StreamHelper>& queue) {
  const std::lock_guard lock(mutex_);
  if (std::find(entered_.begin(), entered_.end(), queue) != entered_.end()) return;
  std::erase_if(entered_,
                [](const auto& old) { return old.use_count() == 1; }); // nobody's any more
  entered_.push_back(queue);
  if (queue->patient()) entered_patient_.store(true, std::memory_order_relaxed); // a hint
}

std::vector<std::shared_ptr<StreamHelper>> Stream::entered() const {
  const std::lock_guard lock(mutex_);
  return entered_;
}

/// Calls `visit(queue, stream, number)` for each of `queues`, the queues of this stream, whose
/// operations up to `number` matter; then likewise for the stream and the place that the first step
/// up to there waits for, and so on, until a call returns true. Returns whether one did.
template <class Visit>
bool Stream::visit_before(std::uint64_t number, std::vector<std::shared_ptr<StreamHelper>> queues,
                          Visit&& visit) {
  Stream* stream = this;
  std::shared_ptr<Stream> held; // `stream`, if it is another one
  while (true) {                // ends: what a step waits for was queued before it
    for (const auto& queue : queues) {
      if (visit(*queue, stream, number)) return true;
    }
    if (!stream->awaits_.load(std::memory_order_relaxed)) return false;
    StreamPoint next;
    {
      const std::lock_guard lock(stream->mutex_);
      const auto first = stream->awaited_.begin();
      if (first == stream->awaited_.end() || first->first > number) return false;
      next = first->second.other;
    }
    held = std::move(next.stream);
    stream = held.get();
    number = next.number;
    queues = stream->entered();
  }
}

void Stream::hurry() {
  if (!entered_patient_.load(std::memory_order_relaxed) &&
      !awaits_.load(std::memory_order_relaxed)) {
    return;
  }
  visit_before(issued(), entered(), [](StreamHelper& queue, const Stream*, std::uint64_t) {
    queue.hurry();
    return false;
  });
}

Status Stream::synchronize(std::uint64_t number, std::uint64_t timeout_ns) {
  // A queue that is entered while this waits is served by its progress thread alone.
  std::vector<std::shared_ptr<StreamHelper>> queues;
  if (!has_completed(number)) queues = entered();
  CommError never_set;
  LimitedWaiter waiter(event_, timeout_ns);
  // Operations end by themselves, with an error if need be: each has its own deadline.
  const WaitPolicy policy{
      .timeout_ns = UINT64_MAX, .spins = 0, .yield_ns = 50'000, .block_ns = 1'000'000'000};
  const WaitResult result = wait_until(
      [&] {
        if (has_completed(number)) return Progress::kDone;
        if (waiter.over()) {
          hurry(); // this thread helps no more
          return Progress::kFailed;
        }
        const bool helped = visit_before(
            number, queues,
            [](StreamHelper& queue, const Stream* of, auto last) { return queue.help(of, last); });
        return helped ? Progress::kAdvanced : Progress::kIdle;
      },
      policy, never_set, waiter);
  if (result != WaitResult::kReady) {
    return Status::error(Code::kInProgress, "the stream has not come so far");
  }
  const std::lock_guard lock(mutex_);
  if (idle()) entered_.clear();
  return error_until(number);
}

std::mutex& issuing() {
  static auto& mutex = *new std::mutex; // never destroyed: threads may outlive main()
  return mutex;
}

Ticket::~Ticket() {
  if (number_ == 0 || parts_ == 0) return;
  static_cast<void>(without_exceptions([this]() -> Status {
    stream_->complete(number_, error_);
    return {};
  }));
}

Status Ticket::issue(std::span<const Stream::Part> parts) {
  const auto number = stream_->issue(parts);
  if (number.ok()) number_ = *number;
  return number.status();
}

Status Ticket::wait(const CommError& comm_error, const std::function<void()>& look) {
  if (may_start()) return {};
  StreamWaiter waiter(*stream_, look);
  const WaitPolicy policy{
      .timeout_ns = UINT64_MAX, .spins = 20, .yield_ns = 50'000, .block_ns = stream_->block_ns()};
  // The tickets of a device complete in order: its stream waits for them one after the other.
  const CommError never_set;
  const CommError& ends = stream_->device() ? never_set : comm_error;
  static_cast<void>(wait_until(
      [&] {
        if (may_start()) return Progress::kDone;
        return waiter.fault().ok() ? Progress::kIdle : Progress::kFailed;
      },
      policy, ends, waiter));
  if (may_start()) return {};
  return waiter.fault().ok() ? ends.status() : waiter.fault();
}

void Ticket::complete_part(const Status& status) {
  {
    const std::lock_guard lock(mutex_);
    if (error_.ok()) error_ = status;
    if (--parts_ > 0) return;
  }
  stream_->complete(number_, error_);
}

} // namespace whorl
