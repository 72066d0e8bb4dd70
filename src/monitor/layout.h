#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace whorl::monitor {

/// Name of the memory that holds the pages of a process, as /proc/PID/fd and /proc/PID/maps show
/// it.
inline constexpr char kPageName[] = "whorl-monitor";
inline constexpr std::uint64_t kPageMagic = 0x65676170'6c726877; // "whrlpage"
inline constexpr std::uint32_t kPageVersion = 1;
/// Largest numbers that a reader accepts.
inline constexpr std::uint32_t kMaxEntries = 1U << 16, kMaxRanks = 1U << 20;

/// Phase in the life of a communicator.
enum class Phase : std::uint32_t { kCreating, kReady, kFailed };

/// Text of at most `kSize` bytes that one thread writes while others, also of other processes, read
/// it. Longer texts are cut.
template <std::size_t kSize>
class SharedText {
 public:
  void write(std::string_view text) noexcept {
    const std::uint32_t version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);
    for (std::size_t i = 0; i < kSize; ++i) {
      // A reader of this byte also reads the odd version; pairs with acquire in read().
      bytes_[i].store(i < text.size() ? text[i] : '\0', std::memory_order_release);
    }
    version_.store(version + 2, std::memory_order_release); // pairs with the load in read()
  }
  /// Copies the text to `out`. Returns false if it was being written.
  bool read(std::array<char, kSize>& out) const noexcept {
    const std::uint32_t version = version_.load(std::memory_order_acquire); // pairs with write()
    for (std::size_t i = 0; i < kSize; ++i) {
      out[i] = bytes_[i].load(std::memory_order_acquire); // pairs with release in write()
    }
    return version % 2 == 0 && version_.load(std::memory_order_relaxed) == version;
  }

 private:
  std::atomic<std::uint32_t> version_; ///< version, which is odd while the text is written
  std::array<std::atomic<char>, kSize> bytes_;
};

/// Begin of each block of the memory. Blocks follow one another.
struct BlockHeader {
  std::atomic<std::uint64_t> magic; ///< kPageMagic if there is a complete page; else the block is
                                    ///< free, or its page is being made
  std::atomic<std::uint64_t> bytes; ///< size of the block, which never changes; 0: no block
};
inline constexpr std::size_t kBlockAlignment = 4096;

/// Part of a page that never changes after its creation.
struct PageHeader {
  BlockHeader block;
  std::uint32_t version, entries; ///< `entries`: size of the ring, a power of two
  std::int32_t rank, nranks;
  std::uint32_t process_id;
  std::uint64_t ticks, time_ns;    ///< the same moment by ticks() and by the monotonic clock
  std::array<std::byte, 16> job;   ///< public name of the communicator, equal on its ranks
  std::uint64_t host_key;          ///< key of the host, as in PeerInfo
  std::array<char, 64> host, name; ///< names of host and communicator, zero-terminated
};

/// Part of a page that changes. Each value stands for itself; only the error is ordered, before the
/// phase.
struct PageState {
  std::atomic<Phase> phase;
  /// Start of the wait that is under way, by the monotonic clock; 0: none that is longer than a
  /// millisecond. A wait stands here until its operation ends or another wait is shown.
  std::atomic<std::uint64_t> waiting_since_ns;
  std::atomic<std::uint64_t> looked_ns; ///< time of the last look at the wait
  std::atomic<std::int32_t> waits_for;  ///< rank; −1: none, or any
  SharedText<160> waiting; ///< text of that wait: "waiting for rank 2 (host …) while receiving"
  SharedText<1024> error;  ///< error of the communicator
  /// Number of operations begun, of which the ring has the last ones. A cache line of its own,
  /// since each operation writes it.
  alignas(128) std::atomic<std::uint64_t> begun;
};

/// Operation in the ring. One writer; a reader takes an entry for valid if `begun` shows afterwards
/// that the entry was not to be reused.
struct alignas(64) PageEntry {
  std::array<std::atomic<std::uint64_t>, 2> fingerprint;
  static constexpr std::uint64_t kNotTimed = 1;
  std::atomic<std::uint64_t> began, ended; ///< times in ticks(); `ended` 0: under way; or kNotTimed
  /// Partner of a transfer: twice its rank, plus 2 if this rank receives, 3 if it sends; 0:
  /// collective.
  std::atomic<std::uint64_t> partner;
  static constexpr std::uint64_t partner_of(int peer, bool sends) {
    return 2 * static_cast<std::uint64_t>(peer + 1) + (sends ? 1 : 0);
  }
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(sizeof(PageEntry) == 64);

/// Offsets of the parts of a page. The last part is, for each rank, the time in nanoseconds that
/// this rank has waited for it, in waits of more than a millisecond.
struct PageLayout {
  std::uint32_t entries, nranks;
  static constexpr std::size_t state() { return 512; }
  static constexpr std::size_t ring() { return 2048; }
  std::size_t waited() const { return ring() + entries * sizeof(PageEntry); }
  std::size_t bytes() const { return waited() + nranks * sizeof(std::atomic<std::uint64_t>); }
};
static_assert(sizeof(PageHeader) <= PageLayout::state());
static_assert(PageLayout::state() + sizeof(PageState) <= PageLayout::ring());

} // namespace whorl::monitor
