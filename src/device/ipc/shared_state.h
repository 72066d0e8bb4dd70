#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/fingerprint.h"
#include "gpu/peer_memory.h"
#include "gpu/program.h"
#include "node/board.h"

namespace whorl {

/// What a rank says of an operation on its device, so that the ranks of other processes can take
/// part in it. Comes from another process.
struct DevicePost {
  Fingerprint call;                   ///< without number and plan
  std::array<std::byte, 16> device{}; ///< UUID
  std::uint64_t context = 0;          ///< of the device, in the rank's process
  std::uint32_t shared = 0;           ///< 1: other processes can map the buffers
  std::uint8_t fused_only = 0;        ///< 1: WHORL_DEVICE_ALGO=fused
  std::uint8_t captured = 0; ///< 1: the stream is being captured into a graph; 2: but may not be
  std::uint16_t reserved = 0;
  std::uint64_t capture = 0;  ///< in the rank's process, where it says so; 0: it does not
  std::uint64_t released = 1; ///< the first operation of DeviceReplays whose graph there may be
  gpu::SharedMemory input{}, output{}; ///< bytes = 0: there is none
};

/// What a rank has for messages between devices. Comes from another process.
struct DeviceOffer {
  gpu::SharedMemory region{}; ///< of gpu::FifoLayout
  std::uint64_t settings = 0; ///< DevicePlanner::fingerprint()
  std::uint32_t blocks = 0;   ///< of a kernel that its device has room for
  std::uint32_t reserved = 0;
};

/// The memory in which the ranks of a communicator that are all on one host, in any processes, say
/// what they do next, and through which their streams wait for each other. Zeros at first.
///
///     cancelled | Gate 0 … n−1 | Report 0 … n−1 | Mail (0, 0) … (n−1, n−1) │ Box 0 … n−1
///     registered with the device
///
/// Operations have numbers from 1, alike on all ranks, and a rank comes to the next one when it
/// needs the posts of the last one no more. So a place for posts is free again when all have come
/// to a later operation than the one that it holds. A rank has two, and uses them in turn.
class DeviceBoard {
 public:
  /// Words that streams wait for, and one for the host. Numbers of operations on the device
  /// ("epochs") modulo 2³², which only grow.
  struct alignas(128) Gate {
    std::atomic<std::uint32_t> ready; ///< the rank's stream has come to this epoch
    std::atomic<std::uint32_t> done;  ///< … has done its share of it, if it has one
    std::atomic<std::uint32_t> passed; ///< … has left it; no host writes this one while streams can
    std::atomic<std::uint32_t> queued; ///< the rank's host has put it into the stream
    // Of operations that graphs repeat (DeviceReplays), of which each has a number:
    std::atomic<std::uint32_t> replays;   ///< that the rank's streams have begun
    std::atomic<std::uint32_t> replaying; ///< the one that they are in; 0: none
    std::atomic<std::uint32_t> one;       ///< 1, what is added to `replays`
  };
  /// Words from one rank to another, of operations that graphs repeat: who waits for them sets them
  /// to 0 again.
  struct Mail {
    std::atomic<std::uint32_t> ready, done;
  };

  /// `memory` is Transport::board().
  DeviceBoard(std::span<std::byte> memory, int nranks) noexcept;

  int nranks() const noexcept { return nranks_; }
  /// Where every kernel looks first: not 0 once the communicator has failed.
  std::atomic<std::uint32_t>& cancelled() const noexcept { return head_->cancelled; }
  Gate& gate(int rank) const noexcept { return gates_[rank]; }
  /// What `rank` waits for, and `from` writes.
  Mail& mail(int rank, int from) const noexcept { return mail_[rank * nranks_ + from]; }
  /// Why the rank's kernel gave up.
  gpu::Report& report(int rank) const noexcept { return reports_[rank]; }
  /// All of these words, in pages.
  std::span<std::byte> words() const noexcept;

  /// Says that `rank`, which is this one, does operation `number`; `what` is null if its buffers
  /// are the host's. In the order of numbers.
  /// False: no place is free yet.
  bool post(int rank, std::uint64_t number, const DevicePost* what) noexcept;
  enum class Call { kNone, kHost, kDevice };
  /// Looks for that of another rank, `what` is for kDevice.
  Call call(int rank, std::uint64_t number, DevicePost* what) const noexcept;

  /// Says whether `rank`, which is this one, reaches the memory of all ranks.
  void answer(int rank, std::uint64_t number, bool yes) noexcept;
  enum class Answer { kNone, kNo, kYes };
  Answer answer(int rank, std::uint64_t number) const noexcept;

  /// Says what `rank`, which is this one, has for messages; null: nothing. Again only the
  /// same.
  void offer(int rank, const DeviceOffer* what) noexcept;
  /// kYes: `what` has been set.
  Answer offer_of(int rank, DeviceOffer& what) const noexcept;

 private:
  struct Head {
    alignas(128) std::atomic<std::uint32_t> cancelled;
  };
  /// A T that is written once and read by others, both at any time.
  template <class T>
  class Words {
   public:
    void store(const T& value) noexcept;
    void load(T& value) const noexcept;

   private:
    static constexpr std::size_t kWords = (sizeof(T) + 7) / 8;
    std::array<std::atomic<std::uint64_t>, kWords> words_;
  };
  /// `number` is written last.
  struct Slot {
    std::atomic<std::uint64_t> number;
    Words<DevicePost> post;
  };
  struct alignas(128) Box {
    std::atomic<std::uint64_t> posted;  ///< operations that the rank has come to
    std::atomic<std::uint64_t> answer;  ///< 2 · number, plus 1 for yes
    std::atomic<std::uint64_t> offered; ///< 0: not yet; 1: nothing; 2: what stands in `offer`
    Words<DeviceOffer> offer;
    std::array<Slot, 2> slots;
  };
  static constexpr std::size_t kPage = 4096;
  static_assert(sizeof(Gate) + sizeof(gpu::Report) + sizeof(Box) + sizeof(Mail) <=
                board_bytes_for(1) - board_bytes_for(0));

  Head* head_;
  Gate* gates_;
  gpu::Report* reports_;
  Mail* mail_;
  Box* boxes_;
  int nranks_;
  unsigned turn_ = 0; ///< in slots, of this rank's next post
};

} // namespace whorl
