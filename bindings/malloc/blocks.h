#pragma once

#include <cstddef>
#include <map>
#include <mutex>

namespace whorl_malloc {

/// Large blocks of this process, in memory that the other ranks of the host can map. Any thread.
///
/// fork() gives the child copies of the blocks, as of all memory, though the kernel shares their
/// pages: the child replaces them by private ones before fork() returns there, and the parent
/// waits for that. No lock is held during calls of the library, whose own fork handlers take locks.
class Blocks {
 public:
  /// Size of the smallest block: shorter messages are copied in any case.
  static constexpr std::size_t kMinBytes = 64 << 10;
  /// Alignment of all blocks.
  static constexpr std::size_t kAlignment = 4096;

  /// Returns the only object, which lasts until the process has ended.
  static Blocks& all() noexcept;

  /// Takes a block of at least `bytes`; its contents are unspecified. Null if there is no room.
  void* take(std::size_t bytes) noexcept;
  /// Returns the size of the block at `memory`, or 0 if no block begins there.
  std::size_t size(const void* memory) noexcept;
  /// Gives the block at `memory` back. Returns false if no block begins there.
  bool give_back(void* memory) noexcept;

  // For the handlers of fork().
  void before_fork() noexcept;
  void after_fork_in_parent() noexcept;
  void after_fork_in_child() noexcept;

 private:
  struct Block {
    std::size_t bytes;
    bool copied; ///< whether this process got the block as a copy when it was forked
  };
  /// Pipe whose end the child closes when it has its copies; −1: nothing is copied.
  struct Pipe {
    int read = -1, write = -1;
  };

  std::mutex mutex_; ///< guard of the fields below, held during fork()
  std::map<const void*, Block> blocks_;
  Pipe copied_;
};

} // namespace whorl_malloc
