#include "engine/request.h"

#include <fmt/core.h>

namespace whorl {
namespace {

std::size_t blocks_in(const Request& request, int rank, int nranks) noexcept {
  const auto all = static_cast<std::size_t>(nranks);
  const bool root = rank == request.peer;
  switch (request.collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kAllGather:
    case Collective::kGather:
    case Collective::kSend:
      return 1;
    case Collective::kBroadcast:
      return root ? 1 : 0;
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      return all;
    case Collective::kScatter:
      return root ? all : 0;
    case Collective::kRecv:
    case Collective::kBarrier:
      break;
  }
  return 0;
}

std::size_t blocks_out(const Request& request, int rank, int nranks) noexcept {
  const auto all = static_cast<std::size_t>(nranks);
  const bool root = rank == request.peer;
  switch (request.collective) {
    case Collective::kAllReduce:
    case Collective::kBroadcast:
    case Collective::kReduceScatter:
    case Collective::kScatter:
    case Collective::kRecv:
      return 1;
    case Collective::kReduce:
      return root ? 1 : 0;
    case Collective::kAllGather:
    case Collective::kAllToAll:
      return all;
    case Collective::kGather:
      return root ? all : 0;
    case Collective::kSend:
    case Collective::kBarrier:
      break;
  }
  return 0;
}

} // namespace

std::size_t input_bytes(const Request& request, int rank, int nranks) noexcept {
  if (request.table != nullptr) {
    const bool all = request.collective == Collective::kReduceScatter;
    const auto own = static_cast<std::size_t>(rank);
    return (all ? request.table->total : request.table->blocks[own].count) * size_of(request.type);
  }
  return blocks_in(request, rank, nranks) * request.count * size_of(request.type);
}

std::size_t output_bytes(const Request& request, int rank, int nranks) noexcept {
  if (request.table != nullptr) {
    const bool all = request.collective == Collective::kAllGather;
    const auto own = static_cast<std::size_t>(rank);
    return (all ? request.table->total : request.table->blocks[own].count) * size_of(request.type);
  }
  return blocks_out(request, rank, nranks) * request.count * size_of(request.type);
}

Fingerprint fingerprint_of(const Request& request, std::uint32_t sequence, std::uint16_t plan) {
  const auto collective =
      request.collective == Collective::kRecv ? Collective::kSend : request.collective;
  const auto op = reduces(collective) ? static_cast<unsigned>(request.op) : 0U;
  // In a table blocks of equal size are treated as in the plain collective, wherever they lie.
  const bool sizes = request.table != nullptr && !request.table->even;
  const bool uneven = sizes || request.blocks != nullptr;
  const std::uint64_t count = sizes ? request.table->total : request.count;
  if (sizes) plan ^= request.table->hash;
  return {
      .sequence = sequence,
      .collective = static_cast<std::uint8_t>(static_cast<unsigned>(collective) |
                                              (uneven ? Fingerprint::kUneven : 0U)),
      .types = static_cast<std::uint8_t>(static_cast<unsigned>(request.type) | (op << 4U)),
      .root = static_cast<std::uint16_t>(has_root(collective) ? request.peer : 0),
      .count_plan = (count & Fingerprint::kMaxCount) | (static_cast<std::uint64_t>(plan) << 48U)};
}

std::string describe(const Request& request) {
  if (request.blocks != nullptr) {
    const std::string root =
        has_root(request.collective) ? fmt::format(", root {}", request.peer) : std::string();
    return fmt::format("{}v of {}{}", name_of(request.collective), name_of(request.type), root);
  }
  std::string text =
      std::string(name_of(request.collective)) +
      describe_arguments(request.collective, request.count, request.type, request.op, request.peer);
  if (request.collective == Collective::kSend) text += fmt::format(" to rank {}", request.peer);
  if (request.collective == Collective::kRecv) {
    text +=
        request.peer == kAnyRank ? " from any rank" : fmt::format(" from rank {}", request.peer);
  }
  return text;
}

std::string describe_disagreement(const CallOfRank& here, const CallOfRank& there) {
  return fmt::format(
      "ranks disagree on an operation: {} calls {}, {} calls {}; they differ in {}. All ranks must "
      "make the same calls in the same order",
      here.rank, here.call, there.rank, there.call,
      difference(here.fingerprint, there.fingerprint));
}

} // namespace whorl
