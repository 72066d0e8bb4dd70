#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/fingerprint.h"
#include "base/membership.h"
#include "base/ticks.h"
#include "monitor/layout.h"
#include "monitor/page_file.h"

namespace whorl::monitor {

/// Writer of the page on which others see what one rank's part of a communicator is doing: the last
/// operations, whom it waits for, and its error. The page is in a memfd, so a process of the same
/// user can read it through /proc/PID/fd without help of this process, also when it is stopped.
/// Used by the thread that drives the engine, unless a comment says otherwise.
class Recorder {
 public:
  struct Who {
    Identity identity;
    PeerInfo info; ///< facts that this rank tells the others of itself
    int nranks = 1;
    std::string name; ///< name of the communicator; may be empty
  };
  /// Makes a page for the last `entries` operations, a power of two. Where there is no descriptor
  /// or memory for a page that others can see, the page is private.
  static std::unique_ptr<Recorder> make(const Who& who, std::uint32_t entries);
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Records the begin of a collective, or of a transfer with `peer`. Returns its number.
  std::uint64_t begin(const Fingerprint& fingerprint, int peer = -1, bool sends = false) noexcept {
    const std::uint64_t number = begun_++;
    PageEntry& entry = ring_[number & mask_];
    // A reader that sees a part of this entry also sees the number of the entry before; pairs with
    // acquire in read_entry(). No fence: the thread sanitizer does not know fences, and on x86 the
    // instructions are the same.
    constexpr auto kAfterNumber = std::memory_order_release;
    const auto words = std::bit_cast<std::array<std::uint64_t, 2>>(fingerprint);
    entry.fingerprint[0].store(words[0], kAfterNumber);
    entry.fingerprint[1].store(words[1], kAfterNumber);
    entry.began.store(ticks(), kAfterNumber);
    entry.ended.store(0, kAfterNumber);
    entry.partner.store(PageEntry::partner_of(peer, sends), kAfterNumber);
    state_->begun.store(begun_, std::memory_order_release); // pairs with the load in read_page()
    return number;
  }
  /// Records the end of operation `number`, if the ring still has it. `timed`: with the time. A
  /// reading of the counter costs a few nanoseconds, which operations on little data would notice.
  void end(std::uint64_t number, bool timed) noexcept {
    if (shows_wait_) [[unlikely]]
      end_wait();
    if (begun_ - number > mask_ + 1) return;
    const std::uint64_t time = timed ? ticks() : PageEntry::kNotTimed;
    // Pairs with acquire in read_entry(): a reader of this end reads the begin of the same
    // operation.
    ring_[number & mask_].ended.store(time, std::memory_order_release);
  }

  /// Returns the fingerprint of the collective with this sequence number, if the ring still has it.
  std::optional<Fingerprint> find_collective(std::uint32_t sequence) const noexcept;

  /// Shows that this rank has waited since `since_ns` for `peer`, or, if it is −1, for any; `text`
  /// is the wait in words, or empty if the words are those of the last call. Called about once a
  /// millisecond during a wait. Adds the time since the last call, as far as it belongs to this
  /// wait, to what the rank has waited for `peer`.
  void waiting(std::uint64_t since_ns, std::uint64_t now_ns, int peer,
               std::string_view text) noexcept;
  /// Shows a step of the creation, which has no operations.
  void creating(std::string_view step) noexcept;
  /// Shows that the communicator has been created.
  void ready() noexcept {
    end_wait();
    state_->phase.store(Phase::kReady, std::memory_order_relaxed);
  }
  /// Shows the error that has ended the communicator. Only the first call has an effect. Any
  /// thread.
  void fail(std::string_view error) noexcept;

  /// Returns the page, for read_page().
  std::span<const std::byte> page() const noexcept { return {data_, layout_.bytes()}; }

 private:
  struct alignas(kBlockAlignment) Memory {
    std::array<std::byte, kBlockAlignment> bytes;
  };
  Recorder(const PageLayout& layout, PageFile::Block block, std::unique_ptr<Memory[]> own);

  void end_wait() noexcept;

  PageLayout layout_;
  PageFile::Block block_;
  std::unique_ptr<Memory[]> own_; ///< memory of a page that others cannot see
  std::byte* data_;
  PageState* state_;
  PageEntry* ring_;
  std::atomic<std::uint64_t>* waited_;
  std::uint64_t mask_, begun_ = 0;
  std::uint64_t counted_ns_ = 0; ///< time until which waits are counted in waited_
  bool shows_wait_ = false;
  std::atomic<bool> failed_{false};
};

} // namespace whorl::monitor
