#include "tests/support/ptx/memory.h"

#include <algorithm>
#include <cstring>

namespace whorl::test::ptx {
namespace {

constexpr std::uintptr_t kLow = Granule::kBytes - 1;

/// Numbers of versions of a granule, and of granules with versions, that are kept.
constexpr std::size_t kMaxVersions = 4, kMaxGranules = 1 << 16;

std::uintptr_t address_of(const std::byte* data) { return reinterpret_cast<std::uintptr_t>(data); }

std::uint16_t mask_of(std::uintptr_t address, std::size_t bytes) {
  return static_cast<std::uint16_t>(((1U << bytes) - 1) << (address & kLow));
}

/// Replaces the bytes of `data` that are in the granule, too.
void apply(const Granule& granule, std::uintptr_t address, std::byte* data, std::size_t bytes) {
  const std::uintptr_t shift = address & kLow;
  for (std::size_t b = 0; b < bytes; ++b) {
    if ((granule.mask >> (shift + b) & 1) != 0) data[b] = granule.bytes[shift + b];
  }
}

/// Writes the bytes of a granule to memory, words in one piece, since the host may look at them.
void write_through(std::uintptr_t begin, const Granule& granule) {
  auto* const to = reinterpret_cast<std::byte*>(begin);
  for (std::size_t b = 0; b < Granule::kBytes;) {
    const unsigned rest = granule.mask >> b;
    if (b % 8 == 0 && (rest & 0xff) == 0xff) {
      std::uint64_t word;
      std::memcpy(&word, granule.bytes + b, sizeof word);
      __atomic_store_n(reinterpret_cast<std::uint64_t*>(to + b), word, __ATOMIC_RELEASE);
      b += sizeof word;
    } else if (b % 4 == 0 && (rest & 0xf) == 0xf) {
      std::uint32_t word;
      std::memcpy(&word, granule.bytes + b, sizeof word);
      __atomic_store_n(reinterpret_cast<std::uint32_t*>(to + b), word, __ATOMIC_RELEASE);
      b += sizeof word;
    } else {
      if ((rest & 1) != 0) to[b] = granule.bytes[b];
      ++b;
    }
  }
}

/// Reads memory, words in one piece, since the host or another process may write them.
void read_through(const std::byte* from, std::byte* data, std::size_t bytes) {
  if (bytes == 8) {
    const auto word =
        __atomic_load_n(reinterpret_cast<const std::uint64_t*>(from), __ATOMIC_ACQUIRE);
    std::memcpy(data, &word, sizeof word);
  } else if (bytes == 4) {
    const auto word =
        __atomic_load_n(reinterpret_cast<const std::uint32_t*>(from), __ATOMIC_ACQUIRE);
    std::memcpy(data, &word, sizeof word);
  } else {
    std::memcpy(data, from, bytes);
  }
}

} // namespace

void StoreBuffer::put(std::uintptr_t address, const std::byte* data, std::size_t bytes,
                      std::uint64_t writer) {
  Granule granule;
  std::memcpy(granule.bytes + (address & kLow), data, bytes);
  granule.mask = mask_of(address, bytes);
  granule.writer = writer;
  put(address & ~kLow, granule);
}

void StoreBuffer::put(std::uintptr_t begin, const Granule& granule) {
  const auto [place, is_new] = granules_.try_emplace(begin, granule);
  if (is_new) return;
  Granule& own = place->second;
  apply(granule, begin, own.bytes, Granule::kBytes);
  own.mask |= granule.mask;
  if (own.writer != granule.writer) own.writer = Granule::kSeveral;
  own.on_device = granule.on_device;
}

void StoreBuffer::overlay(std::uintptr_t address, std::byte* data, std::size_t bytes) const {
  if (granules_.empty()) return;
  const auto found = granules_.find(address & ~kLow);
  if (found != granules_.end()) apply(found->second, address, data, bytes);
}

void StoreBuffer::move_to(StoreBuffer& next) {
  if (next.granules_.empty()) {
    next.granules_.swap(granules_);
    return;
  }
  for (const auto& [begin, granule] : granules_) next.put(begin, granule);
  granules_.clear();
}

void StoreBuffer::take_some(Random& random, std::size_t most,
                            const std::function<void(std::uintptr_t, const Granule&)>& taker) {
  const std::size_t buckets = granules_.bucket_count();
  std::size_t bucket = random.below(buckets);
  for (std::size_t n = 0; n < std::min(most, buckets); ++n, bucket = (bucket + 1) % buckets) {
    if (granules_.bucket_size(bucket) == 0) continue;
    const std::uintptr_t begin = granules_.begin(bucket)->first;
    taker(begin, granules_.begin(bucket)->second);
    granules_.erase(begin);
  }
}

View Memory::now() {
  const std::lock_guard lock(mutex_);
  return {time_, time_};
}

void Memory::load(Observer& who, const std::byte* from, std::byte* data, std::size_t bytes,
                  Order order) {
  const std::uintptr_t address = address_of(from);
  {
    const std::lock_guard lock(mutex_);
    read_through(from, data, bytes);
    if (order == Order::kWeak) make_stale(who, address, data, bytes);
    devices_[who.device].overlay(address, data, bytes);
  }
  who.block.overlay(address, data, bytes);
  who.thread.overlay(address, data, bytes);
}

/// Replaces what a load has found by an older value that the thread may still see.
void Memory::make_stale(Observer& who, std::uintptr_t address, std::byte* data,
                        std::size_t bytes) const {
  const auto found = versions_.find(address & ~kLow);
  if (found == versions_.end()) return;
  for (auto version = found->second.rbegin(); version != found->second.rend(); ++version) {
    const bool known = version->device == who.device ? version->on_device <= who.view.device
                                                     : version->time <= who.view.system;
    const bool own = version->writer == who.block_id || version->writer == Granule::kSeveral;
    if (known || own || who.random.chance(50)) return;
    apply(version->before, address, data, bytes);
  }
}

void Memory::store(Observer& who, std::byte* to, const std::byte* data, std::size_t bytes) {
  who.thread.put(address_of(to), data, bytes, who.block_id);
}

std::uint64_t Memory::add(Observer& who, std::byte* to, std::uint64_t value, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::uintptr_t address = address_of(to), begin = address & ~kLow;
  for (StoreBuffer* const buffer : {&devices_[who.device], &who.block, &who.thread}) {
    const auto found = buffer->granules_.find(begin);
    if (found == buffer->granules_.end()) continue;
    commit(who, begin, found->second);
    buffer->granules_.erase(found);
  }
  std::uint64_t old = 0;
  read_through(to, reinterpret_cast<std::byte*>(&old), bytes);
  const std::uint64_t sum = old + value;
  StoreBuffer change;
  change.put(address, reinterpret_cast<const std::byte*>(&sum), bytes, who.block_id);
  commit_all(who, change);
  return old;
}

void Memory::publish(Observer& who, Scope scope) {
  who.thread.move_to(who.block);
  if (scope == Scope::kBlock) return;
  const std::lock_guard lock(mutex_);
  StoreBuffer& device = devices_[who.device];
  for (const auto& [begin, granule] : who.block.granules_) put_on_device(device, begin, granule);
  who.block.granules_.clear();
  if (scope == Scope::kSystem) commit_all(who, device);
}

void Memory::observe(Observer& who, Scope scope) {
  if (scope == Scope::kBlock) return;
  const std::lock_guard lock(mutex_);
  who.view.device = time_;
  if (scope == Scope::kSystem) who.view.system = time_;
}

void Memory::drain(Observer& who) {
  constexpr std::size_t kMost = 8;
  if (who.random.chance(75)) return;
  who.thread.take_some(who.random, kMost, [&](std::uintptr_t begin, const Granule& granule) {
    who.block.put(begin, granule);
  });
  const std::lock_guard lock(mutex_);
  StoreBuffer& device = devices_[who.device];
  who.block.take_some(who.random, kMost, [&](std::uintptr_t begin, const Granule& granule) {
    put_on_device(device, begin, granule);
  });
  device.take_some(who.random, kMost, [&](std::uintptr_t begin, const Granule& granule) {
    commit(who, begin, granule);
  });
}

void Memory::put_on_device(StoreBuffer& device, std::uintptr_t begin, const Granule& granule) {
  Granule known = granule;
  known.on_device = ++time_;
  device.put(begin, known);
}

void Memory::commit(const Observer& who, std::uintptr_t begin, const Granule& granule) {
  if (versions_.size() > kMaxGranules) versions_.clear();
  std::vector<Version>& versions = versions_[begin];
  if (versions.size() == kMaxVersions) versions.erase(versions.begin());
  const std::uint64_t now = ++time_;
  const std::uint64_t on_device = granule.on_device == 0 ? now : granule.on_device;
  Version version{now, on_device, granule.writer, who.device, {}};
  version.before.mask = granule.mask;
  for (std::size_t b = 0; b < Granule::kBytes; ++b) {
    if ((granule.mask >> b & 1) != 0) {
      version.before.bytes[b] = reinterpret_cast<const std::byte*>(begin)[b];
    }
  }
  versions.push_back(version);
  write_through(begin, granule);
}

void Memory::commit_all(const Observer& who, StoreBuffer& from) {
  for (const auto& [begin, granule] : from.granules_) commit(who, begin, granule);
  from.granules_.clear();
}

} // namespace whorl::test::ptx
