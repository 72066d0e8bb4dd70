#include "tests/support/fake_cuda/device.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <set>
#include <tuple>

#include "tests/support/fake_cuda/contexts.h"
#include "tests/support/fake_cuda/fault.h"

namespace fake_cuda {
namespace {

constexpr std::chrono::milliseconds kLook{1}; // interval at which waiters check for a lost device

// Counter of streams; number 1 is the default stream of every context.
std::atomic<unsigned long long> streams_made{1};

/// All streams. The mutex also orders operations of streams that wait for each other.
struct Streams {
  std::mutex mutex;
  std::set<Stream*> all;
};
Streams& streams() {
  static auto& instance = *new Streams;
  return instance;
}

} // namespace

void Stream::Point::wait() const {
  while (!reached() && !lost()) std::this_thread::sleep_for(std::chrono::microseconds(20));
}

/// Returns the hardware queue for a new stream; nullptr if the stream has a queue of its own.
Stream::HardwareQueue* Stream::shared_queue(int priority) const {
  static auto& all = *new std::map<std::tuple<int, int, unsigned long long>, HardwareQueue>;
  const char* const connections = std::getenv("FAKE_CUDA_CONNECTIONS");
  if (connections == nullptr) return nullptr;
  const auto place = number_ % static_cast<unsigned long long>(std::atoi(connections));
  const std::lock_guard lock(streams().mutex);
  return &all[{device_, priority, place}];
}

Stream::Stream(Kind kind, int priority)
    : kind_(kind),
      device_(current_context() == nullptr ? 0 : device_of(current_context())),
      life_(id_of(context_of(device_))),
      number_(++streams_made),
      queue_(shared_queue(priority)),
      thread_([this] { run(); }) {
  const std::lock_guard lock(streams().mutex);
  streams().all.insert(this);
}

Stream::~Stream() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
  const std::lock_guard lock(streams().mutex);
  streams().all.erase(this);
}

bool Stream::exists() const {
  return kind_ == Kind::kLegacy || id_of(context_of(device_)) == life_;
}

/// Returns the points that the default stream, or a blocking one, waits for. The caller holds the
/// mutex of all streams.
std::vector<Stream::Point> Stream::others() const {
  std::vector<Point> points;
  if (kind_ == Kind::kNonBlocking) return points;
  const Kind wanted = kind_ == Kind::kLegacy ? Kind::kBlocking : Kind::kLegacy;
  for (const Stream* const other : streams().all) {
    if (other->kind_ == wanted && other->device_ == device_) points.push_back(other->end());
  }
  std::erase_if(points, [](const Point& point) { return point.reached(); });
  return points;
}

void Stream::push(std::function<void()> operation, bool waits) {
  if (record(*this, [operation] { return operation; })) return;
  if (const std::uint64_t pushed = count_->pushed; pushed >= kMaxQueued) {
    Point{count_, pushed - kMaxQueued + 1}.wait();
  }
  const std::lock_guard order(streams().mutex);
  if (queue_ != nullptr) {
    operation = [queue = queue_, turn = queue_->queued++, waits, operation = std::move(operation)] {
      while (queue->begun != turn && !lost()) {
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
      if (!waits) ++queue->begun;
      operation();
      if (waits) ++queue->begun;
    };
  }
  if (std::vector<Point> points = others(); !points.empty()) {
    operation = [points = std::move(points), operation = std::move(operation)] {
      for (const Point& point : points) point.wait();
      if (!lost()) operation();
    };
  }
  {
    const std::lock_guard lock(mutex_);
    operations_.push_back(std::move(operation));
    ++count_->pushed;
  }
  changed_.notify_all();
}

bool Stream::idle() {
  const std::lock_guard lock(streams().mutex);
  return end().reached() && (kind_ != Kind::kLegacy || others().empty());
}

void Stream::synchronize() {
  std::vector<Point> points;
  {
    const std::lock_guard lock(streams().mutex);
    if (kind_ == Kind::kLegacy) points = others();
    points.push_back(end());
  }
  for (const Point& point : points) point.wait();
}

void Stream::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !operations_.empty(); });
    if (operations_.empty()) return;
    {
      const std::function<void()> operation = std::move(operations_.front());
      operations_.pop_front();
      lock.unlock();
      if (!lost()) operation();
    }
    ++count_->done;
    lock.lock();
  }
}

void synchronize_all() {
  const int device = device_of(current_context());
  std::vector<Stream::Point> points;
  {
    const std::lock_guard lock(streams().mutex);
    for (const Stream* const stream : streams().all) {
      if (stream->device() == device) points.push_back(stream->end());
    }
  }
  for (const Stream::Point& point : points) point.wait();
}

std::uint64_t Event::record() {
  const std::lock_guard lock(mutex_);
  under_way_.insert(++recorded_);
  return recorded_;
}
std::uint64_t Event::recorded() {
  const std::lock_guard lock(mutex_);
  return recorded_;
}
void Event::reach(std::uint64_t number) {
  {
    const std::lock_guard lock(mutex_);
    under_way_.erase(number);
    when_ = std::chrono::steady_clock::now();
  }
  changed_.notify_all();
}
bool Event::reached(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  return !under_way_.contains(number);
}
void Event::wait(std::uint64_t number) {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kLook, [&] { return !under_way_.contains(number) || lost(); }))
    continue;
}

std::chrono::steady_clock::time_point Event::when() {
  const std::lock_guard lock(mutex_);
  return when_;
}

namespace {

/// Handles of all events, so that those whose context has been reset are no leaks.
struct Events {
  std::mutex mutex;
  std::set<std::shared_ptr<Event>*> all;
};
Events& events() {
  static auto& instance = *new Events;
  return instance;
}

} // namespace

CUevent make_event() {
  auto* const made = new std::shared_ptr(std::make_shared<Event>());
  const std::lock_guard lock(events().mutex);
  events().all.insert(made);
  return reinterpret_cast<CUevent>(made);
}

void destroy_event(CUevent handle) {
  auto* const event = reinterpret_cast<std::shared_ptr<Event>*>(handle);
  if (!(*event)->exists()) count_stale_call();
  {
    const std::lock_guard lock(events().mutex);
    events().all.erase(event);
  }
  delete event;
}

const std::shared_ptr<Event>& event_of(CUevent handle) {
  return *reinterpret_cast<std::shared_ptr<Event>*>(handle);
}

Stream& stream_of(CUstream handle) {
  const auto value = reinterpret_cast<std::uintptr_t>(handle);
  if (value > 2) return *reinterpret_cast<Stream*>(handle);
  static std::mutex mutex;
  static auto& legacy = *new std::map<int, Stream*>;
  thread_local std::map<int, Stream*> of_thread; // never destroyed
  const int device = current_context() == nullptr ? 0 : device_of(current_context());
  const std::lock_guard lock(mutex);
  Stream*& known = value == 2 ? of_thread[device] : legacy[device];
  if (known == nullptr) {
    known = new Stream(value == 2 ? Stream::Kind::kBlocking : Stream::Kind::kLegacy);
  }
  return *known;
}

} // namespace fake_cuda
