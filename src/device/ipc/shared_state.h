#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/fingerprint.h"
#include "device/common/path.h"
#include "gpu/peer_memory.h"
#include "gpu/program.h"
#include "gpu/stop_words.h"
#include "node/board.h"

namespace whorl {

/// Description of a rank's operation on its device, for the ranks of other processes. Untrusted:
/// written by another process.
struct DevicePost {
  Fingerprint call;                   ///< call without number and plan
  std::array<std::byte, 16> device{}; ///< UUID of the device
  std::uint64_t context = 0;          ///< context of the device, in the rank's process
  std::uint32_t shared = 0;           ///< 1: other processes can map the buffers
  DeviceAlgo algo = DeviceAlgo::kAny; ///< value of WHORL_DEVICE_ALGO
  std::uint8_t captured = 0; ///< 1: captured into a graph; 2: to be, but cannot be captured
  std::uint8_t uneven = 0;   ///< 1: blocks may differ in size; the post has the place of each
  std::uint8_t together = 0; ///< 1: kernels of several processes run together (MPS)
  std::uint64_t capture = 0; ///< id of the capture in the rank's process; 0: not known
  gpu::SharedMemory input{}, output{}; ///< memory of the buffers; bytes = 0: no buffer
};

/// Place of a block in a buffer of a post. Untrusted: written by another process.
struct BlockPlace {
  std::uint64_t offset = 0; ///< offset in bytes from the start of the buffer
  std::uint64_t count = 0;  ///< number of elements
};

/// Region that a rank offers for messages between devices. Untrusted: written by another process.
struct DeviceOffer {
  gpu::SharedMemory region{}; ///< memory with a gpu::FifoLayout
  std::uint64_t settings = 0; ///< DevicePlanner::fingerprint()
  std::uint32_t blocks = 0;   ///< number of blocks of a kernel that fits on its device
  std::uint32_t reserved = 0;
};

/// Memory that the ranks of a communicator on one host share, in any processes: they post their
/// next operations in it, and their streams wait for each other through it. Initially zero.
///
///     StopWords │ StreamBarrier 0 … n−1 │ Report 0 … n−1 │ Box 0 … n−1 │ BlockPlace …
///     └─────────── registered with the device ───────────┘
///
/// Operations have numbers from 1, equal on all ranks, and a rank posts the next one when it no
/// longer needs the posts of the last one. So a slot for a post is free again when all ranks have
/// posted a later operation than that of the slot. A rank uses two slots in turn.
class SharedState {
 public:
  /// Words of a rank that streams wait for, and one for the host. The first four are numbers of
  /// operations on the device ("epochs") modulo 2³², which only grow.
  struct alignas(128) StreamBarrier {
    std::atomic<std::uint32_t> ready;  ///< epoch that the rank's stream has come to
    std::atomic<std::uint32_t> done;   ///< epoch of which the stream has done its share, if any
    std::atomic<std::uint32_t> passed; ///< epoch left; hosts write it only if no stream can
    std::atomic<std::uint32_t> queued; ///< epoch that the rank's host has put into the stream
    // For operations that graphs replay (DeviceReplays), each of which has a number:
    std::atomic<std::uint32_t> replays; ///< number of operations that the rank's streams have begun
    std::atomic<std::uint32_t> replaying;    ///< number of the operation they are in; 0: none
    std::atomic<std::uint32_t> one;          ///< 1, the summand for `replays`
    std::atomic<std::uint32_t> replay_ready; ///< `replaying`, until the leader sets it to 0
    std::atomic<std::uint32_t>
        replay_done; ///< operation that the leader has done; reset by the rank
  };

  /// Interprets `memory`, which is Node::board(), as the state of `nranks` ranks.
  SharedState(std::span<std::byte> memory, int nranks) noexcept;

  int nranks() const noexcept { return nranks_; }
  /// Returns the words that every kernel reads first: set once the communicator has failed.
  gpu::StopWords& stop_words() const noexcept { return *stop_words_; }
  StreamBarrier& barrier(int rank) const noexcept { return barriers_[rank]; }
  /// Returns the place where the rank's kernel reports why it gave up.
  gpu::Report& report(int rank) const noexcept { return reports_[rank]; }
  /// Returns the memory from the stop words to the reports, in whole pages.
  std::span<std::byte> words() const noexcept;

  /// Posts operation `number` of `rank`, which is this one; `what` is null if the buffers are in
  /// host memory. `blocks` are the places of the blocks that `rank` sends to each rank, then of
  /// those that `rank` receives, or none; kBoardRanksWithPairs ranks at most. To be called in the
  /// order of numbers. Returns false if no slot is free yet.
  bool post(int rank, std::uint64_t number, const DevicePost* what,
            std::span<const BlockPlace> blocks = {}) noexcept;
  /// Posts that `rank`, which is this one, takes part in no operation any more. Others then leave
  /// each later one to the host, which finds out that the rank has left.
  void leave(int rank) noexcept;
  enum class Call { kNone, kHost, kDevice, kLeft };
  /// Reads the post of another rank; `*what` is set for kDevice.
  Call call(int rank, std::uint64_t number, DevicePost* what) const noexcept;
  /// Reads the places of blocks of a rank's post that call() has returned as `uneven`.
  void blocks(int rank, std::uint64_t number, std::span<BlockPlace> places) const noexcept;

  /// Posts that `rank`, which is this one, has done its part in the mapping of memory, or cannot.
  void answer(int rank, std::uint64_t number, bool yes) noexcept;
  enum class Answer { kNone, kNo, kYes };
  Answer answer(int rank, std::uint64_t number) const noexcept;

  /// Buffers of a post whose memory has no IPC handle and is to be handed over.
  struct Wanted {
    bool input = false, output = false;
    bool any() const noexcept { return input || output; }
  };
  /// Asks `rank` for memory in operation `number`; only the leader does.
  void ask(int rank, std::uint64_t number, Wanted wanted) noexcept;
  Wanted asked(int rank, std::uint64_t number) const noexcept;

  /// Posts the offer of `rank`, which is this one; null: none. Further calls must have the same
  /// offer.
  void offer(int rank, const DeviceOffer* what) noexcept;
  /// Reads the offer of a rank. kYes: `what` has been set.
  Answer offer_of(int rank, DeviceOffer& what) const noexcept;

 private:
  static constexpr std::uint64_t kLeft = UINT64_MAX; ///< `posted` of a rank that has left
  /// Copy of a T in atomic words, which may be written and read at the same time.
  template <class T>
  class Words {
   public:
    void store(const T& value) noexcept;
    void load(T& value) const noexcept;

   private:
    static constexpr std::size_t kWords = (sizeof(T) + 7) / 8;
    std::array<std::atomic<std::uint64_t>, kWords> words_;
  };
  /// Place of a post; `number` is written last.
  struct Slot {
    std::atomic<std::uint64_t> number;
    Words<DevicePost> post;
  };
  struct alignas(128) Box {
    std::atomic<std::uint64_t> posted;  ///< number of the last operation that the rank has posted
    std::atomic<std::uint64_t> answer;  ///< 2 · number of the operation, plus 1 for yes
    std::atomic<std::uint64_t> asked;   ///< 4 · number, plus 1 for the input, 2 for the output
    std::atomic<std::uint64_t> offered; ///< 0: not yet; 1: none; 2: `offer` is valid
    Words<DeviceOffer> offer;
    std::array<Slot, 2> slots;
  };
  static constexpr std::size_t kPage = 4096;
  static_assert(sizeof(StreamBarrier) + sizeof(gpu::Report) + sizeof(Box) <= kBoardBytesOfRank);
  static constexpr std::size_t kSlots = std::tuple_size_v<decltype(Box::slots)>;
  static_assert(kSlots * 2 * sizeof(Words<BlockPlace>) <= kBoardBytesOfPair);
  static_assert(sizeof(gpu::StopWords) + kPage <= board_bytes_for(0, false));

  /// Returns the places of a slot's post: 2 · nranks of them.
  Words<BlockPlace>* places(int rank, std::size_t slot) const noexcept {
    const auto n = static_cast<std::size_t>(nranks_);
    return places_ + (static_cast<std::size_t>(rank) * kSlots + slot) * 2 * n;
  }

  gpu::StopWords* stop_words_;
  StreamBarrier* barriers_;
  gpu::Report* reports_;
  Box* boxes_;
  Words<BlockPlace>* places_;
  int nranks_;
  unsigned turn_ = 0; ///< slot, modulo 2, of this rank's next post
};

} // namespace whorl
