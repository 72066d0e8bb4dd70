#pragma once

// Memory of devices as badly as PTX allows. A store reaches other threads late, and stores to
// different places reach them in any order:
//
//     thread ──barrier──▶ block ──release, fence or chance──▶ device ──…──▶ system
//
// A release or a fence at the scope of the device or the system moves there what its thread has
// stored, and what it knows by barriers. A weak load may find a value that has been replaced,
// unless an acquire or a barrier has told its thread of the newer one. Chance is pseudorandom, so a
// seed repeats a run as long as one stream runs.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "tests/simulation/random.h"

namespace whorl::test::ptx {

using simulation::Random;

enum class Order : std::uint8_t { kWeak, kRelaxed, kAcquire, kRelease };
enum class Scope : std::uint8_t { kBlock, kDevice, kSystem };

/// Granule of 16 bytes, which no access crosses; `mask` says which bytes are meant.
struct Granule {
  static constexpr std::size_t kBytes = 16;
  static constexpr std::uint64_t kSeveral = 0;
  std::byte bytes[kBytes];
  std::uint16_t mask = 0;
  std::uint64_t writer = kSeveral; ///< block that has stored the bytes
  std::uint64_t on_device = 0;     ///< time at which threads of the block's device could find them
};

/// Stores on their way.
class StoreBuffer {
 public:
  void put(std::uintptr_t address, const std::byte* data, std::size_t bytes, std::uint64_t writer);
  /// Adds a granule, whose bytes replace those that are here.
  void put(std::uintptr_t begin, const Granule& granule);
  /// Replaces bytes of `data`, which are those at `address`, by newer ones that are here.
  void overlay(std::uintptr_t address, std::byte* data, std::size_t bytes) const;
  /// Moves everything to a buffer nearer to the other threads.
  void move_to(StoreBuffer& next);
  /// Removes at most `most` granules, chosen at random, and hands them to `taker`.
  void take_some(Random& random, std::size_t most,
                 const std::function<void(std::uintptr_t, const Granule&)>& taker);
  bool empty() const { return granules_.empty(); }

 private:
  friend class Memory;
  std::unordered_map<std::uintptr_t, Granule> granules_;
};

/// Times of which a thread must know all stores: those of its device, and all others.
struct View {
  std::uint64_t device = 0, system = 0;
};

/// Thread, as memory sees it.
struct Observer {
  StoreBuffer& thread;
  StoreBuffer& block;
  View& view;
  std::uint64_t block_id;
  int device;
  Random& random;
};

/// Memory of all devices of this process and of the host. All functions: any thread.
class Memory {
 public:
  /// Returns a number that no other block has.
  std::uint64_t new_block() { return next_block_++; }
  /// Returns the view of a thread that begins, to which everything so far is known.
  View now();

  void load(Observer& who, const std::byte* from, std::byte* data, std::size_t bytes, Order order);
  void store(Observer& who, std::byte* to, const std::byte* data, std::size_t bytes);
  /// Adds atomically; returns the old value.
  std::uint64_t add(Observer& who, std::byte* to, std::uint64_t value, std::size_t bytes);
  /// Moves the stores that a thread knows of, to where threads of `scope` find them.
  void publish(Observer& who, Scope scope);
  /// Makes a thread know what others have published at `scope`.
  void observe(Observer& who, Scope scope);
  /// Moves some stores by chance.
  void drain(Observer& who);

 private:
  struct Version {
    std::uint64_t time;      ///< time at which a store replaced it
    std::uint64_t on_device; ///< the same for threads of that store's device
    std::uint64_t writer;    ///< block of that store
    int device;
    Granule before;
  };
  void put_on_device(StoreBuffer& device, std::uintptr_t begin, const Granule& granule);
  void commit(const Observer& who, std::uintptr_t begin, const Granule& granule);
  void commit_all(const Observer& who, StoreBuffer& from);
  void make_stale(Observer& who, std::uintptr_t address, std::byte* data, std::size_t bytes) const;

  std::mutex mutex_; ///< guards all fields, and the memory itself
  std::uint64_t time_ = 0;
  std::atomic<std::uint64_t> next_block_{1};
  std::unordered_map<std::uintptr_t, std::vector<Version>> versions_; ///< the oldest comes first
  std::map<int, StoreBuffer> devices_;
};

} // namespace whorl::test::ptx
