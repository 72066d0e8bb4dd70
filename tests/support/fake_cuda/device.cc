#include "tests/support/fake_cuda/device.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <set>
#include <string>
#include <tuple>

#include "tests/support/fake_cuda/contexts.h"
#include "tests/support/fake_cuda/fault.h"

namespace fake_cuda {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::chrono::milliseconds kLook{1}; // interval at which waiters check for a lost device

// Counters of streams and allocations; number 1 is the default stream of every context.
std::atomic<unsigned long long> streams_made{1}, allocations_made{0};

/// All streams. The mutex also orders operations of streams that wait for each other.
struct Streams {
  std::mutex mutex;
  std::set<Stream*> all;
};
Streams& streams() {
  static auto& instance = *new Streams;
  return instance;
}

std::size_t whole_pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

} // namespace

Memory& Memory::all() {
  static Memory& instance = *new Memory;
  return instance;
}

CUresult Memory::map(Range range, CUdeviceptr* address) {
  const std::size_t size = whole_pages(range.bytes);
  void* const outside = mmap(nullptr, size, PROT_NONE, MAP_SHARED, range.fd, 0);
  void* const inside = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, range.fd, 0);
  if (outside == MAP_FAILED || inside == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  range.begin = reinterpret_cast<std::uintptr_t>(outside);
  range.alias = static_cast<std::byte*>(inside);
  range.type = CU_MEMORYTYPE_DEVICE;
  insert(range);
  *address = range.begin;
  return CUDA_SUCCESS;
}

/// Returns a name for the file behind an allocation, so that a freed allocation is not found.
std::string Memory::name_of(unsigned long long id) {
  return "fake device memory " + std::to_string(id);
}

CUresult Memory::allocate_device(std::size_t bytes, bool pool, int device, CUdeviceptr* address) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const unsigned long long id = ++allocations_made;
  const int fd = memfd_create(name_of(id).c_str(), MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(whole_pages(bytes))) != 0) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return map(
      {.bytes = bytes, .device = device, .fd = fd, .id = id, .shareable = !pool, .pool = pool},
      address);
}

CUresult Memory::open_device(int process, const Range& range, CUdeviceptr* address) {
  // The real driver refuses to open a handle in its own process, too.
  if (process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(range.fd);
  char name[256] = {};
  if (readlink(path.c_str(), name, sizeof name - 1) < 0 ||
      std::string(name) != "/memfd:" + name_of(range.id) + " (deleted)") {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  const int own = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (own < 0) return CUDA_ERROR_INVALID_HANDLE;
  return map({.bytes = range.bytes, .device = range.device, .fd = own, .id = ++allocations_made},
             address);
}

void Memory::add_mapping(const Range& range) {
  const std::lock_guard lock(mutex_);
  ranges_[range.begin] = range;
}
void Memory::remove_mapping(std::uintptr_t begin) {
  const std::lock_guard lock(mutex_);
  ranges_.erase(begin);
}

CUresult Memory::free_device(CUdeviceptr address) {
  if (find(address).reservation > 0) return CUDA_ERROR_INVALID_VALUE;
  const Range range = take(address);
  if (range.bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  unmap(range);
  return CUDA_SUCCESS;
}

void Memory::unmap(const Range& range) {
  if (range.registered) return;
  const auto address = reinterpret_cast<std::byte*>(range.begin);
  munmap(address, whole_pages(range.bytes));
  if (range.alias != address) munmap(range.alias, whole_pages(range.bytes));
  if (range.fd >= 0) close(range.fd);
}

void Memory::forget(int device) {
  const std::lock_guard lock(mutex_);
  std::erase_if(ranges_, [device](const auto& entry) {
    const Range& range = entry.second;
    if (range.device != device || range.reservation > 0) return false;
    unmap(range);
    return true;
  });
}

CUresult Memory::allocate_host(std::size_t bytes, bool managed, void** address) {
  void* const memory =
      mmap(nullptr, whole_pages(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  insert({.begin = reinterpret_cast<std::uintptr_t>(memory),
          .bytes = bytes,
          .alias = static_cast<std::byte*>(memory),
          .type = static_cast<unsigned>(managed ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST),
          .managed = managed});
  *address = memory;
  return CUDA_SUCCESS;
}

CUresult Memory::free_host(void* address) {
  const Range range = take(reinterpret_cast<std::uintptr_t>(address));
  if (range.bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  unmap(range);
  return CUDA_SUCCESS;
}

CUresult Memory::add_host(void* address, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (find(begin).bytes > 0) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  insert({.begin = begin,
          .bytes = bytes,
          .alias = static_cast<std::byte*>(address),
          .type = CU_MEMORYTYPE_HOST,
          .registered = true});
  return CUDA_SUCCESS;
}

CUresult Memory::remove_host(void* address) {
  return take(reinterpret_cast<std::uintptr_t>(address)).bytes > 0
             ? CUDA_SUCCESS
             : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

Memory::Range Memory::find(std::uintptr_t address) {
  const std::lock_guard lock(mutex_);
  auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) return {};
  const Range& range = (--after)->second;
  return address - range.begin < range.bytes ? range : Range{};
}

std::byte* Memory::reach(std::uintptr_t address) {
  const Range range = find(address);
  if (range.bytes == 0) return reinterpret_cast<std::byte*>(address);
  return range.alias + (address - range.begin);
}

void Memory::insert(Range range) {
  range.device = current_context() == nullptr ? 0 : device_of(current_context());
  const std::lock_guard lock(mutex_);
  ranges_[range.begin] = range;
}

Memory::Range Memory::take(std::uintptr_t begin) {
  const std::lock_guard lock(mutex_);
  const auto found = ranges_.find(begin);
  if (found == ranges_.end()) return {};
  const Range range = found->second;
  ranges_.erase(found);
  return range;
}

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
