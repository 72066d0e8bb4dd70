#pragma once

// Exchange of small blocks in one round, without a schedule: every rank writes what another one
// needs straight into that rank's memory, in lines (fifo_layout.h), and each thread uses a line as
// soon as it is there. Operands are combined in the order of the ranks, as the schedule "oneshot"
// does.
//
//     thread u of rank r:  for each receiver p: unit u of its block ──▶ line u, in p's region
//                          for each sender p:   line u, in r's region ──▶ combined, or block p
//
// A unit is the data of a line. There are neither flags nor fences: a line has the number of its
// message. Messages have two sets of lines in turn, so a rank waits until the peer has taken the
// last message but one. A rank that also receives never has to: what it received last shows that
// the peer has ended the operation before.

#include "gpu/pieces.h"
#include "gpu/waits.h"

namespace whorl::gpu {
namespace {

inline constexpr std::uint64_t kUnitBytes = sizeof(Line::data); ///< bytes of a unit

/// Word of 8 bytes in memory of any type.
struct [[gnu::may_alias]] Unit {
  std::uint64_t value;
};

/// Reads the first `bytes` bytes of a unit, at any address; the others are 0.
WHORL_HOST_DEVICE std::uint64_t load_unit(const std::byte* from, std::uint64_t bytes) {
  if (bytes == kUnitBytes && reinterpret_cast<std::uintptr_t>(from) % kUnitBytes == 0) {
    return reinterpret_cast<const Unit*>(from)->value;
  }
  std::uint64_t data = 0;
  WHORL_DO_NOT_UNROLL
  for (std::uint64_t b = 0; b < bytes; ++b) {
    data |= static_cast<std::uint64_t>(from[b]) << (8 * b);
  }
  return data;
}
WHORL_HOST_DEVICE void store_unit(std::byte* to, std::uint64_t data, std::uint64_t bytes) {
  if (bytes == kUnitBytes && reinterpret_cast<std::uintptr_t>(to) % kUnitBytes == 0) {
    reinterpret_cast<Unit*>(to)->value = data;
    return;
  }
  WHORL_DO_NOT_UNROLL
  for (std::uint64_t b = 0; b < bytes; ++b) to[b] = static_cast<std::byte>(data >> (8 * b));
}

/// Number of operands and divisor of an exchange, for Combine.
struct DirectOperands {
  int n_sources;
  std::int32_t divides_by;
  WHORL_HOST_DEVICE int sources() const { return n_sources; }
  WHORL_HOST_DEVICE std::int32_t divisor() const { return divides_by; }
};

/// Exchange by one block, which moves part `x` of all blocks of rank `y` of the launch.
template <class Moves, class Block>
class DirectExchange {
 public:
  WHORL_HOST_DEVICE DirectExchange(const Launch& launch, std::uint32_t x, std::uint32_t y,
                                   BlockMemory& memory, Block& block, Moves moves = {})
      : launch_(launch),
        block_(block),
        moves_(moves),
        memory_(memory),
        own_(launch.ranks[y]),
        channel_(x),
        begin_(x * launch.chunk),
        bytes_(bytes_of_part(launch, x) * moves.element()),
        waits_(launch, own_, y * launch.instances + x, block) {}

  WHORL_HOST_DEVICE void run() {
    // Lines are written behind the barrier only: when all are to stop, a peer's region may be gone.
    const bool stops =
        launch_.stops_first != 0 && block_.index() == block_.count() - 1 && waits_.is_to_stop();
    const std::uint64_t units = (bytes_ + kUnitBytes - 1) / kUnitBytes;
    const bool sends = launch_.direct.sends(own_.rank);
    if (sends && launch_.direct.splits == 0 && block_.index() < units)
      first_ = load_own(0, block_.index());
    if (block_.any(stops || !wait_for_lines())) return;
    bool all = true;
    WHORL_DO_NOT_UNROLL
    for (std::uint64_t unit = block_.index(); all && unit < units; unit += block_.count()) {
      if (sends) send(unit);
      if (!launch_.direct.receives(own_.rank)) continue;
      all = launch_.direct.gathers != 0 ? gather(unit) : moves_.combine_units(*this, unit);
    }
    if (!block_.any(!all)) publish();
  }

  // For Moves:
  WHORL_HOST_DEVICE int senders() const {
    return launch_.direct.sender < 0 ? static_cast<int>(launch_.fifos.nranks) : 1;
  }
  WHORL_HOST_DEVICE std::int32_t divisor() const { return launch_.divisor; }
  /// Returns a unit of what the k-th sender has for this rank, or false if that does not come.
  WHORL_HOST_DEVICE bool receive(int k, std::uint64_t unit, std::uint64_t& data) const {
    const auto from =
        static_cast<std::uint32_t>(launch_.direct.sender < 0 ? k : launch_.direct.sender);
    if (from == own_.rank) {
      data = own_unit(from, unit);
      return true;
    }
    const std::uint64_t number = memory_.awaited[from].taken;
    const Line* const line =
        on_device(reinterpret_cast<const Line*>(launch_.regions[own_.rank] +
                                                launch_.fifos.line_at(from, channel_, number))) +
        unit;
    // One thread of a warp looks at the host's word often, the others seldom: all of them would
    // keep each other waiting.
    constexpr int kLooks = 1024, kLongLooks = 16 * kLooks; // half a millisecond, and some
    return waits_.wait(
        [&] {
          const Line found = block_.get(line);
          data = found.data;
          return found.number == number + 1;
        },
        block_.index() % 32 == 0 ? kLooks : kLongLooks, at(WaitPhase::kReceiving, from));
  }
  WHORL_HOST_DEVICE void store(std::uint64_t unit, std::uint64_t data) const {
    store_unit(own_.output + begin_ * moves_.element() + unit * kUnitBytes, data, bytes_of(unit));
  }

 private:
  WHORL_HOST_DEVICE static std::uint64_t bytes_of_part(const Launch& launch, std::uint32_t x) {
    const std::uint64_t begin = x * launch.chunk;
    const std::uint64_t rest = begin < launch.count ? launch.count - begin : 0;
    return rest < launch.chunk ? rest : launch.chunk;
  }
  WHORL_HOST_DEVICE std::uint64_t bytes_of(std::uint64_t unit) const {
    const std::uint64_t rest = bytes_ - unit * kUnitBytes;
    return rest < kUnitBytes ? rest : kUnitBytes;
  }
  WHORL_HOST_DEVICE bool sends_to(std::uint32_t p) const {
    return p != own_.rank && launch_.direct.sends(own_.rank) && launch_.direct.receives(p);
  }
  WHORL_HOST_DEVICE bool receives_from(std::uint32_t p) const {
    return p != own_.rank && launch_.direct.sends(p) && launch_.direct.receives(own_.rank);
  }
  /// Returns a unit of this part of the own block for rank p.
  WHORL_HOST_DEVICE std::uint64_t load_own(std::uint32_t p, std::uint64_t unit) const {
    const std::uint64_t block = launch_.direct.splits != 0 ? p * launch_.count : 0;
    return load_unit(own_.input + (block + begin_) * moves_.element() + unit * kUnitBytes,
                     bytes_of(unit));
  }
  /// Returns the same of one of this thread's units.
  WHORL_HOST_DEVICE std::uint64_t own_unit(std::uint32_t p, std::uint64_t unit) const {
    const bool is_first = unit == block_.index() && launch_.direct.splits == 0;
    return is_first ? first_ : load_own(p, unit);
  }
  WHORL_HOST_DEVICE FifoEnd& end(std::uint32_t region, bool sends, std::uint32_t peer) const {
    return launch_.fifos.end(launch_.regions[region], sends, peer, channel_);
  }
  WHORL_HOST_DEVICE Awaited at(WaitPhase phase, std::uint32_t peer) const {
    return {phase, peer, 0, 0, channel_};
  }

  /// Calls `f` for those peers that this thread handles.
  template <class F>
  WHORL_HOST_DEVICE void for_peers(F&& f) const {
    WHORL_DO_NOT_UNROLL
    for (std::uint64_t p = block_.index(); p < launch_.fifos.nranks; p += block_.count()) {
      if (p != own_.rank) f(static_cast<std::uint32_t>(p));
    }
  }

  /// Reads the counts of this thread's peers, and waits until their lines may be written.
  WHORL_HOST_DEVICE bool wait_for_lines() {
    bool good = true;
    for_peers([&](std::uint32_t p) {
      const FifoEnd& sending = end(own_.rank, true, p);
      const std::uint64_t credits = block_.peek(&sending.flag);
      const std::uint64_t number = sending.count;
      memory_.awaited[p] = {.sent = number, .taken = end(own_.rank, false, p).count};
      if (!sends_to(p) || number < credits + kLineSlots) return;
      good = good && waits_.wait([&] { return number < block_.peek(&sending.flag) + kLineSlots; },
                                 kFlagLooks, at(WaitPhase::kSending, p));
    });
    return good;
  }

  WHORL_HOST_DEVICE void send(std::uint64_t unit) const {
    const std::uint32_t n = launch_.fifos.nranks;
    WHORL_DO_NOT_UNROLL
    for (std::uint32_t i = 1; i < n; ++i) { // each rank begins with another one
      const std::uint32_t to = own_.rank + i < n ? own_.rank + i : own_.rank + i - n;
      if (!launch_.direct.receives(to)) continue;
      const std::uint64_t number = memory_.awaited[to].sent;
      Line* const lines = on_device(reinterpret_cast<Line*>(
          launch_.regions[to] + launch_.fifos.line_at(own_.rank, channel_, number)));
      block_.put(lines + unit, {own_unit(to, unit), number + 1});
    }
  }

  WHORL_HOST_DEVICE bool gather(std::uint64_t unit) const {
    WHORL_DO_NOT_UNROLL
    for (int k = 0; k < senders(); ++k) {
      std::uint64_t data = 0;
      if (!receive(k, unit, data)) return false;
      const std::uint64_t at = static_cast<std::uint64_t>(k) * launch_.count + begin_;
      store_unit(own_.output + at * moves_.element() + unit * kUnitBytes, data, bytes_of(unit));
    }
    return true;
  }

  /// Keeps the counts for later launches, and tells the peers which lines are free. All threads of
  /// the block have used theirs.
  WHORL_HOST_DEVICE void publish() const {
    for_peers([&](std::uint32_t p) {
      const Counts& counts = memory_.awaited[p];
      if (sends_to(p)) end(own_.rank, true, p).count = counts.sent + 1;
      if (!receives_from(p)) return;
      end(own_.rank, false, p).count = counts.taken + 1;
      block_.post(&end(p, true, own_.rank).flag, counts.taken + 1);
    });
  }

  const Launch& launch_;
  Block& block_;
  Moves moves_;
  BlockMemory& memory_;
  const Launch::Rank& own_;
  const std::uint32_t channel_;
  const std::uint64_t begin_; ///< first element of this part in each block
  const std::uint64_t bytes_;
  std::uint64_t first_ = 0; ///< first unit of this thread, loaded before the barrier
  Waits<Block> waits_;
};

/// Combines a unit of what all senders have. Returns false if a line does not come.
template <class Reduction, class Exchange>
WHORL_HOST_DEVICE bool combine_units(const Exchange& exchange, std::uint64_t unit) {
  using Format = typename Reduction::Format;
  using Storage = typename Format::Storage;
  struct Elements {
    Storage values[kUnitBytes / sizeof(Storage)];
  };
  static_assert(sizeof(Elements) == kUnitBytes);
  const DirectOperands operands{exchange.senders(), exchange.divisor()};
  const Combine<Format, typename Reduction::Function, Reduction::kMayDivide, false, DirectOperands>
      combine(operands);
  Elements result;
  const bool all = combine.combine_elements(result, [&](int k, Elements& loaded) {
    std::uint64_t data = 0;
    const bool good = exchange.receive(k, unit, data);
    loaded = __builtin_bit_cast(Elements, data);
    return good;
  });
  if (all) exchange.store(unit, __builtin_bit_cast(std::uint64_t, result));
  return all;
}

} // namespace
} // namespace whorl::gpu
