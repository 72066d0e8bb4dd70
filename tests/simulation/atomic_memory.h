#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "simulation/arena.h"
#include "simulation/random.h"
#include "simulation/view.h"

namespace whorl::simulation {

/// Orders of C++, with the numbers that compilers give them.
enum class Order : int { kRelaxed, kConsume, kAcquire, kRelease, kAcqRel, kSeqCst };

constexpr bool acquires(Order order) noexcept {
  return order != Order::kRelaxed && order != Order::kRelease;
}
constexpr bool releases(Order order) noexcept {
  return order == Order::kRelease || order >= Order::kAcqRel;
}

/// Atomic objects of the shared memory by the rules of C++20: each has all its stores in
/// modification order; a load reads any of them that the fibre's view does not hide, a
/// read-modify-write the last one. Stores become visible to everyone after a while.
///
/// Modification order is the order of execution, and no load reads a store that is executed later.
/// So of what C++ allows, two things never happen: a store that comes to be before an earlier one
/// in modification order, and load buffering.
class AtomicMemory {
 public:
  AtomicMemory();
  /// Forgets everything. `fresh_percent`: how often a load that has a choice reads the last store.
  void clear(unsigned fresh_percent);

  struct Loaded {
    std::uint64_t value;
    std::uint64_t latest; ///< value of the last store
  };
  Loaded load(std::size_t fibre, const volatile void* at, std::size_t bytes, Order order,
              std::uint64_t now_ns, Random& random);
  void store(std::size_t fibre, volatile void* at, std::size_t bytes, std::uint64_t value,
             Order order, std::uint64_t now_ns);
  /// Replaces the last value by `change(value)`, and returns it.
  template <class Change>
  std::uint64_t modify(std::size_t fibre, volatile void* at, std::size_t bytes, Order order,
                       std::uint64_t now_ns, Change&& change) {
    const std::size_t location = find(at, bytes);
    const std::uint64_t old = read(fibre, location, last(location), order);
    append(fibre, location, change(old), order, now_ns, true);
    return old;
  }
  std::uint64_t load_latest(std::size_t fibre, const volatile void* at, std::size_t bytes,
                            Order order) {
    const std::size_t location = find(at, bytes);
    return read(fibre, location, last(location), order);
  }
  void fence(std::size_t fibre, Order order);
  /// Returns the last value stored, as the kernel sees it.
  std::uint64_t latest(const volatile void* at, std::size_t bytes);

  const View& view(std::size_t fibre) const noexcept { return fibres_[fibre].now; }
  /// Makes all that another fibre did, which does nothing more, happen before the next access of
  /// `fibre`.
  void synchronise(std::size_t fibre, std::size_t with) noexcept;
  /// Keeps the view of a fibre, for one that gets a message of it, and returns the view's number.
  std::size_t publish(std::size_t fibre);
  /// Makes all that a view has happen before the next access of `fibre`.
  void observe(std::size_t fibre, std::size_t view) noexcept;
  /// Begins a new life of a fibre: what its starter has done so far happened before, and nothing
  /// else that the fibre saw in an earlier life.
  void begin_life(std::size_t fibre, std::size_t starter) noexcept;

 private:
  static constexpr std::size_t kAlignment = 4;
  /// Time after which each fibre sees a store. C++ asks for a reasonable time.
  static constexpr std::uint64_t kVisibleNs = 20'000;

  struct Store {
    std::uint64_t value;
    std::uint64_t time_ns;
    std::size_t view; ///< index of the view that an acquire joins; 0: none
  };
  struct Location {
    volatile void* address;
    std::size_t bytes;
    std::size_t last_seq_cst; ///< index of the last store with kSeqCst
    std::vector<Store> stores;
  };
  struct FibreViews {
    View now;
    View acquirable; ///< joined by an acquire fence
    View fenced;     ///< view at the last release fence
    bool has_fenced; ///< whether there has been a release fence
  };

  std::size_t find(const volatile void* at, std::size_t bytes);
  std::size_t last(std::size_t location) const noexcept {
    return locations_[location].stores.size() - 1;
  }
  std::uint64_t read(std::size_t fibre, std::size_t location, std::size_t index, Order order);
  void append(std::size_t fibre, std::size_t location, std::uint64_t value, Order order,
              std::uint64_t now_ns, bool continues_release);

  unsigned fresh_percent_ = 100;
  std::unique_ptr<std::uint16_t[]> index_; ///< number of the location at an address, from 1
  std::vector<Location> locations_;        ///< the first `used_` are in use
  std::size_t used_ = 0;
  std::vector<View> views_; ///< views that were released; [0] is empty
  std::array<FibreViews, kMaxFibres> fibres_{};
  View seq_cst_; ///< view of the last fence with kSeqCst
};

} // namespace whorl::simulation
