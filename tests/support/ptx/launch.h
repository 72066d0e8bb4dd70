#pragma once

// Execution of a grid: blocks and threads take turns, chosen at random, between their barriers.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/support/ptx/kernel.h"
#include "tests/support/ptx/memory.h"

namespace whorl::test::ptx {

/// Addresses that a device can access.
class AddressSpace {
 public:
  /// Returns where the host finds `bytes` bytes at an address of the device; nullptr if the device
  /// cannot access all of them.
  virtual std::byte* reach(std::uint64_t address, std::size_t bytes) = 0;

 protected:
  ~AddressSpace() = default;
};

struct Launch {
  unsigned x = 1, y = 1; ///< numbers of blocks
  unsigned threads = 1;
  int absent = -1; ///< y of blocks that are left out; −1: none
  const std::byte* parameter = nullptr;
  int device = 0;      ///< device of all blocks, or with `spread` of those with y = 0
  bool spread = false; ///< whether each y has a device of its own, for tests of several
  std::uint64_t seed = 0;
  unsigned clock_rate = 1; ///< number of nanoseconds of the device's clock in one
};

/// Block of threads, and what they share.
struct Block {
  std::unique_ptr<std::uint64_t[], void (*)(void*)> slots{nullptr, nullptr};
  std::vector<Thread> threads;
  std::vector<std::uint32_t> ready; ///< threads that can go on
  std::size_t waiting = 0;          ///< number of threads at the barrier
  std::vector<std::uint64_t> shared;
  StoreBuffer stores;
  View view;
  std::uint64_t id = 0;
  // Alike for all blocks of a launch:
  const Kernel* kernel = nullptr;
  const std::byte* parameter = nullptr;
  int device = 0;
  unsigned clock_rate = 1;
  Memory* memory = nullptr;
  AddressSpace* space = nullptr;
  Random* random = nullptr;

  Observer observer(Thread& thread) {
    return {thread.stores, stores, thread.view, id, device, *random};
  }
};

/// Runs all blocks, which are resident at the same time. Throws Error for what is a fault on a
/// device, and says which thread it was in.
void run(const Kernel& kernel, const Launch& launch, Memory& memory, AddressSpace& space);

} // namespace whorl::test::ptx
