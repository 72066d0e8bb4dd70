#include "simulation/atomic_memory.h"

#include <stdexcept>

namespace whorl::simulation {
namespace {

// Not by memcpy(), whose accesses to the arena are simulated.

template <class T>
T& as(volatile void* at) noexcept {
  return *static_cast<T*>(const_cast<void*>(at));
}

std::uint64_t peek(volatile void* at, std::size_t bytes) noexcept {
  switch (bytes) {
    case 1:
      return as<std::uint8_t>(at);
    case 2:
      return as<std::uint16_t>(at);
    case 4:
      return as<std::uint32_t>(at);
    default:
      return as<std::uint64_t>(at);
  }
}

void poke(volatile void* at, std::size_t bytes, std::uint64_t value) noexcept {
  switch (bytes) {
    case 1:
      as<std::uint8_t>(at) = static_cast<std::uint8_t>(value);
      break;
    case 2:
      as<std::uint16_t>(at) = static_cast<std::uint16_t>(value);
      break;
    case 4:
      as<std::uint32_t>(at) = static_cast<std::uint32_t>(value);
      break;
    default:
      as<std::uint64_t>(at) = value;
  }
}

} // namespace

AtomicMemory::AtomicMemory()
    : index_(new std::uint16_t[Arena::kBytes / kAlignment]()), locations_(kMaxLocations) {
  clear(100);
}

void AtomicMemory::clear(unsigned fresh_percent) {
  fresh_percent_ = fresh_percent;
  for (std::size_t i = 0; i < used_; ++i) {
    index_[arena().offset_of(locations_[i].address) / kAlignment] = 0;
    locations_[i].stores.clear();
  }
  used_ = 0;
  views_.assign(1, View());
  for (std::size_t i = 0; i < kMaxFibres; ++i) {
    fibres_[i] = {};
    fibres_[i].now.clock[i] = 1;
  }
  seq_cst_ = {};
}

std::size_t AtomicMemory::find(const volatile void* at, std::size_t bytes) {
  std::uint16_t& index = index_[arena().offset_of(at) / kAlignment];
  if (index == 0) {
    if (used_ == kMaxLocations) throw std::length_error("too many atomic objects in one run");
    Location& location = locations_[used_];
    location.address = const_cast<volatile void*>(at);
    location.bytes = bytes;
    location.last_seq_cst = 0;
    location.stores.push_back({.value = peek(location.address, bytes), .time_ns = 0, .view = 0});
    index = static_cast<std::uint16_t>(++used_);
  }
  return index - 1U;
}

std::uint64_t AtomicMemory::read(std::size_t fibre, std::size_t location, std::size_t index,
                                 Order order) {
  FibreViews& self = fibres_[fibre];
  const Store& store = locations_[location].stores[index];
  self.now.oldest[location] = static_cast<std::uint16_t>(index);
  if (store.view != 0) {
    (acquires(order) ? self.now : self.acquirable).join(views_[store.view], used_);
  }
  return store.value;
}

AtomicMemory::Loaded AtomicMemory::load(std::size_t fibre, const volatile void* at,
                                        std::size_t bytes, Order order, std::uint64_t now_ns,
                                        Random& random) {
  const std::size_t location = find(at, bytes);
  const Location& object = locations_[location];
  const std::size_t newest = last(location);
  std::size_t index = fibres_[fibre].now.oldest[location];
  if (order == Order::kSeqCst) index = std::max(index, object.last_seq_cst);
  while (index < newest && object.stores[index + 1].time_ns + kVisibleNs <= now_ns) ++index;
  if (index < newest) {
    index = random.chance(fresh_percent_) ? newest : index + random.below(newest - index + 1);
  }
  return {read(fibre, location, index, order), object.stores[newest].value};
}

void AtomicMemory::append(std::size_t fibre, std::size_t location, std::uint64_t value, Order order,
                          std::uint64_t now_ns, bool continues_release) {
  FibreViews& self = fibres_[fibre];
  Location& object = locations_[location];
  const std::size_t before = object.stores.back().view;
  self.now.oldest[location] = static_cast<std::uint16_t>(object.stores.size());
  std::size_t view = continues_release ? before : 0;
  if (releases(order) || self.has_fenced) {
    View released = releases(order) ? self.now : self.fenced;
    if (view != 0) released.join(views_[view], used_);
    view = views_.size();
    views_.push_back(released);
  }
  if (order == Order::kSeqCst) object.last_seq_cst = object.stores.size();
  object.stores.push_back({.value = value, .time_ns = now_ns, .view = view});
  ++self.now.clock[fibre];
  poke(object.address, object.bytes, value);
}

void AtomicMemory::store(std::size_t fibre, volatile void* at, std::size_t bytes,
                         std::uint64_t value, Order order, std::uint64_t now_ns) {
  append(fibre, find(at, bytes), value, order, now_ns, false);
}

void AtomicMemory::fence(std::size_t fibre, Order order) {
  FibreViews& self = fibres_[fibre];
  if (acquires(order)) self.now.join(self.acquirable, used_);
  if (order == Order::kSeqCst) {
    self.now.join(seq_cst_, used_);
    seq_cst_ = self.now;
  }
  if (releases(order)) {
    self.fenced = self.now;
    self.has_fenced = true;
    ++self.now.clock[fibre];
  }
}

std::uint64_t AtomicMemory::latest(const volatile void* at, std::size_t bytes) {
  return locations_[find(at, bytes)].stores.back().value;
}

void AtomicMemory::synchronise(std::size_t fibre, std::size_t with) noexcept {
  fibres_[fibre].now.join(fibres_[with].now, used_);
}

std::size_t AtomicMemory::publish(std::size_t fibre) {
  views_.push_back(fibres_[fibre].now);
  ++fibres_[fibre].now.clock[fibre];
  return views_.size() - 1;
}

void AtomicMemory::observe(std::size_t fibre, std::size_t view) noexcept {
  fibres_[fibre].now.join(views_[view], used_);
}

void AtomicMemory::begin_life(std::size_t fibre, std::size_t starter) noexcept {
  const std::uint32_t phase = fibres_[fibre].now.clock[fibre];
  fibres_[fibre] = {};
  fibres_[fibre].now = fibres_[starter].now;
  fibres_[fibre].now.clock[fibre] = phase + 1; // phases of an earlier life do not come again
  ++fibres_[starter].now.clock[starter];       // its next accesses are not known to the fibre
}

} // namespace whorl::simulation
