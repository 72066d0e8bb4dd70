#include "api/check_v.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "api/check.h"

namespace whorl {
namespace {

constexpr auto kMaxBytes = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max());

/// Range of addresses of a rank's block in a buffer.
struct Extent {
  std::uintptr_t begin = 0, end = 0;
  std::size_t rank = 0;
};

/// State of the check of one call, from which error sentences are made.
class BlocksChecker {
 public:
  BlocksChecker(const RawBlocksCall& raw, const Communicator& communicator, Request& request)
      : raw_(raw),
        call_(raw.call),
        communicator_(communicator),
        request_(request),
        nranks_(static_cast<std::size_t>(communicator.nranks())),
        self_(static_cast<std::size_t>(communicator.rank())) {}

  Status check() {
    WHORL_TRY(check_call({.function = call_.function,
                          .collective = call_.collective,
                          .type = call_.type,
                          .op = call_.op,
                          .peer = call_.peer},
                         communicator_, request_));
    if (call_.collective == Collective::kReduceScatter) return check_reduce_scatter();
    WHORL_TRY(fill());
    WHORL_TRY(check_own_block());
    WHORL_TRY(check_overlap());
    if (call_.collective == Collective::kAllGather) return fill_table(call_.recv, blocks_.receives);
    request_.blocks = std::make_shared<const Blocks>(std::move(blocks_));
    return {};
  }

 private:
  Status bad(const std::string& what) const {
    return Status::error(Code::kInvalidArgument,
                         fmt::format("{} on rank {} of {}: {}", call_.function,
                                     communicator_.rank(), communicator_.nranks(), what));
  }

  std::size_t element() const { return size_of(request_.type); }

  /// Finds the address of a block in one buffer, if the address space has room for the block.
  Status place(const char* buffer, const void* start, std::size_t displacement, std::size_t count,
               std::size_t rank, Blocks::Block& block) const {
    block = {.used = true, .data = nullptr, .count = count};
    if (count == 0) return {};
    const std::size_t limit = kMaxBytes / element();
    const auto base = reinterpret_cast<std::uintptr_t>(start);
    if (count > limit || displacement > limit - count || count > Fingerprint::kMaxCount ||
        (displacement + count) * element() > UINTPTR_MAX - base) {
      return bad(fmt::format(
          "the block of rank {} in {} has {} elements of {} from {} on, which overflows "
          "the address space; counts and displacements are in elements, not bytes",
          rank, buffer, count, name_of(request_.type), displacement));
    }
    if (start == nullptr) {
      return bad(fmt::format("{} is NULL, but the block of rank {} in it has {} elements", buffer,
                             rank, count));
    }
    block.data = reinterpret_cast<std::byte*>(base + displacement * element());
    return {};
  }

  /// Finds the addresses of all blocks in a buffer that has one block for each rank.
  Status place_all(const char* buffer, const char* counts_name, const void* start,
                   const std::size_t* counts, const std::size_t* displacements,
                   std::vector<Blocks::Block>& blocks) const {
    if (counts == nullptr) {
      return bad(fmt::format("{} is NULL; it needs one count for each of the {} ranks", counts_name,
                             nranks_));
    }
    std::size_t next = 0; // where displacements are not given
    for (std::size_t rank = 0; rank < nranks_; ++rank) {
      const std::size_t at = displacements != nullptr ? displacements[rank] : next;
      WHORL_TRY(place(buffer, start, at, counts[rank], rank, blocks[rank]));
      next += counts[rank];
    }
    return {};
  }

  Status place_sends() {
    return place_all("sendbuff", "sendcounts", call_.send, raw_.send_counts,
                     raw_.send_displacements, blocks_.sends);
  }
  Status place_receives() {
    return place_all("recvbuff", "recvcounts", call_.recv, raw_.recv_counts,
                     raw_.recv_displacements, blocks_.receives);
  }

  /// Turns the call into blocks.
  Status fill() {
    blocks_.sends.resize(nranks_);
    blocks_.receives.resize(nranks_);
    const auto root = static_cast<std::size_t>(request_.peer);
    Blocks::Block one;
    switch (call_.collective) {
      case Collective::kAllGather:
        WHORL_TRY(place("sendbuff", call_.send, 0, call_.count, self_, one));
        std::fill(blocks_.sends.begin(), blocks_.sends.end(), one);
        return place_receives();
      case Collective::kGather:
        WHORL_TRY(place("sendbuff", call_.send, 0, call_.count, self_, one));
        blocks_.sends[root] = one;
        return self_ == root ? place_receives() : Status();
      case Collective::kScatter:
        WHORL_TRY(place("recvbuff", call_.recv, 0, call_.count, self_, one));
        blocks_.receives[root] = one;
        return self_ == root ? place_sends() : Status();
      default: // all-to-all
        WHORL_TRY(place_sends());
        return place_receives();
    }
  }

  Status check_own_block() const {
    const Blocks::Block &out = blocks_.sends[self_], &in = blocks_.receives[self_];
    if (out.count == in.count) return {};
    return bad(
        fmt::format("this rank sends {} elements to itself and receives {} from itself; the two "
                    "counts must be equal",
                    out.count, in.count));
  }

  std::vector<Extent> extents(const std::vector<Blocks::Block>& blocks) const {
    std::vector<Extent> all;
    for (std::size_t rank = 0; rank < nranks_; ++rank) {
      if (blocks[rank].count == 0) continue;
      const auto begin = reinterpret_cast<std::uintptr_t>(blocks[rank].data);
      all.push_back({begin, begin + blocks[rank].count * element(), rank});
    }
    std::sort(all.begin(), all.end(),
              [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
    return all;
  }

  Status check_overlap() const {
    const std::vector<Extent> written = extents(blocks_.receives);
    for (std::size_t i = 1; i < written.size(); ++i) {
      if (written[i].begin >= written[i - 1].end) continue;
      return bad(
          fmt::format("the blocks of ranks {} and {} in recvbuff overlap; check recvcounts and "
                      "rdispls",
                      written[i - 1].rank, written[i].rank));
    }
    const bool in_place = has_in_place_form(call_.collective);
    for (const Extent& read : extents(blocks_.sends)) {
      // The first written block that ends behind the start of the read block.
      auto other = std::upper_bound(written.begin(), written.end(), read.begin,
                                    [](std::uintptr_t at, const Extent& e) { return at < e.end; });
      for (; other != written.end() && other->begin < read.end; ++other) {
        const bool onto_itself =
            other->rank == self_ && other->begin == read.begin && other->end == read.end;
        if (in_place && onto_itself) continue;
        return bad(fmt::format(
            "the block for rank {} in sendbuff overlaps the block of rank {} in recvbuff; {}",
            read.rank, other->rank,
            in_place ? "in place, this rank's own block is at the same address in both"
                     : "this operation cannot be done in place"));
      }
    }
    return {};
  }

  /// Fills the request's table with the blocks of the buffer that has all of them, unless no
  /// algorithm takes these.
  Status fill_table(const void* start, const std::vector<Blocks::Block>& all) {
    auto table = std::make_shared<BlockTable>();
    table->blocks.resize(nranks_);
    table->even = table->packed = true;
    std::uint64_t hash = 0xcbf29ce484222325; // FNV-1a
    for (std::size_t rank = 0; rank < nranks_; ++rank) {
      const std::size_t count = all[rank].count;
      if (count > 0) {
        const auto bytes = all[rank].data - static_cast<const std::byte*>(start);
        table->blocks[rank] = {static_cast<std::size_t>(bytes) / element(), count};
        table->packed = table->packed && table->blocks[rank].begin == table->total;
      }
      table->total += count;
      table->largest = std::max(table->largest, count);
      table->even = table->even && count == all[0].count;
      hash = (hash ^ count) * 0x100000001b3;
    }
    table->hash = static_cast<std::uint16_t>(hash ^ (hash >> 16U) ^ (hash >> 32U) ^ (hash >> 48U));
    request_.count = all[0].count;
    request_.send = call_.send;
    request_.recv = call_.recv;
    request_.table = std::move(table);
    if (request_.table->even) return {};
    const auto algorithm = uneven_algorithm(call_.collective, communicator_.shape());
    return algorithm.ok() ? Status() : bad(algorithm.status().message());
  }

  Status check_reduce_scatter() {
    blocks_.sends.resize(nranks_);
    WHORL_TRY(
        place_all("sendbuff", "recvcounts", call_.send, raw_.recv_counts, nullptr, blocks_.sends));
    Blocks::Block out;
    WHORL_TRY(place("recvbuff", call_.recv, 0, blocks_.sends[self_].count, self_, out));
    for (const Extent& read : extents(blocks_.sends)) {
      const auto begin = reinterpret_cast<std::uintptr_t>(out.data);
      if (out.count == 0 || read.end <= begin || begin + out.count * element() <= read.begin ||
          (read.rank == self_ && read.begin == begin)) {
        continue;
      }
      return bad(
          fmt::format("recvbuff overlaps the block of rank {} in sendbuff; in place, recvbuff is "
                      "where this rank's block of sendbuff begins",
                      read.rank));
    }
    return fill_table(call_.send, blocks_.sends);
  }

  const RawBlocksCall& raw_;
  const RawCall& call_;
  const Communicator& communicator_;
  Request& request_;
  const std::size_t nranks_, self_;
  Blocks blocks_;
};

} // namespace

Status check_blocks(const RawBlocksCall& raw, const Communicator& communicator, Request& request) {
  return BlocksChecker(raw, communicator, request).check();
}

std::optional<RawCall> plain_form(const RawBlocksCall& raw, std::size_t nranks) noexcept {
  const std::size_t* const counts = raw.recv_counts;
  const bool gathers = raw.call.collective == Collective::kAllGather;
  if (!gathers && raw.call.collective != Collective::kReduceScatter) return std::nullopt;
  if (counts == nullptr || (gathers && raw.call.count != counts[0])) return std::nullopt;
  std::size_t next = 0; // wraps only where the plain collective refuses the count
  for (std::size_t rank = 0; rank < nranks; ++rank) {
    if (counts[rank] != counts[0]) return std::nullopt;
    if (raw.recv_displacements != nullptr && raw.recv_displacements[rank] != next) {
      return std::nullopt;
    }
    next += counts[0];
  }
  RawCall plain = raw.call;
  plain.count = counts[0];
  return plain;
}

} // namespace whorl
