#include "comm/request.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <vector>

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

std::string what(Collective collective, std::uint64_t count, DataType type, ReduceOp op, int peer) {
  if (collective == Collective::kBarrier) return "";
  std::string text = fmt::format(" of {} {}", count, name_of(type));
  if (reduces(collective)) text += fmt::format(" ({})", name_of(op));
  if (collective == Collective::kReduce || collective == Collective::kGather) {
    text += fmt::format(" to root {}", peer);
  } else if (has_root(collective)) {
    text += fmt::format(" from root {}", peer);
  }
  return text;
}

bool known(const Fingerprint& fingerprint) noexcept {
  return fingerprint.collective < kNumCollectives && (fingerprint.types & 15U) < kNumDataTypes &&
         is_reduce_op(fingerprint.types >> 4U);
}

} // namespace

std::size_t input_bytes(const Request& request, int rank, int nranks) noexcept {
  return blocks_in(request, rank, nranks) * request.count * size_of(request.type);
}

std::size_t output_bytes(const Request& request, int rank, int nranks) noexcept {
  return blocks_out(request, rank, nranks) * request.count * size_of(request.type);
}

std::string describe(const Request& request) {
  std::string text =
      std::string(name_of(request.collective)) +
      what(request.collective, request.count, request.type, request.op, request.peer);
  if (request.collective == Collective::kSend) text += fmt::format(" to rank {}", request.peer);
  if (request.collective == Collective::kRecv) text += fmt::format(" from rank {}", request.peer);
  return text;
}

std::string describe(const Fingerprint& fingerprint) {
  if (!known(fingerprint)) return "an operation that this version does not know";
  const auto collective = static_cast<Collective>(fingerprint.collective);
  const std::string_view name = collective == Collective::kSend ? "send/recv" : name_of(collective);
  return fmt::format("{} number {}{}", name, fingerprint.sequence,
                     what(collective, fingerprint.count(), fingerprint.data_type(),
                          fingerprint.reduce_op(), fingerprint.root));
}

std::string difference(const Fingerprint& here, const Fingerprint& there) {
  if (!known(there)) return "operation";
  std::vector<std::string> fields;
  const auto add = [&](bool differs, std::string_view field, const auto& ours, const auto& theirs) {
    if (differs) fields.push_back(fmt::format("{} ({} here, {} there)", field, ours, theirs));
  };
  add(here.collective != there.collective, "collective",
      name_of(static_cast<Collective>(here.collective)),
      name_of(static_cast<Collective>(there.collective)));
  add(here.count() != there.count(), "count", here.count(), there.count());
  add(here.data_type() != there.data_type(), "datatype", name_of(here.data_type()),
      name_of(there.data_type()));
  add(here.reduce_op() != there.reduce_op(), "operator", name_of(here.reduce_op()),
      name_of(there.reduce_op()));
  add(here.root != there.root, "root", here.root, there.root);
  add(here.sequence != there.sequence, "operation number", here.sequence, there.sequence);
  if (fields.empty()) {
    return here.plan() != there.plan() ? "algorithm or its parameters (WHORL_* variables)"
                                       : "message size";
  }
  return fmt::format("{}", fmt::join(fields, ", "));
}

} // namespace whorl
