#include "base/fingerprint.h"

#include <fmt/core.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

namespace whorl {
namespace {

std::string name_of(const Fingerprint& fingerprint) {
  if (fingerprint.kind() == Collective::kSend) return "send/recv";
  return fmt::format("{}{}", name_of(fingerprint.kind()), fingerprint.uneven() ? "v" : "");
}

} // namespace

bool known(const Fingerprint& fingerprint) noexcept {
  return static_cast<int>(fingerprint.kind()) < kNumCollectives &&
         (fingerprint.types & 15U) < kNumDataTypes && is_reduce_op(fingerprint.types >> 4U);
}

std::string describe_arguments(Collective collective, std::uint64_t count, DataType type,
                               ReduceOp op, int peer) {
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

std::string describe(const Fingerprint& fingerprint) {
  if (!known(fingerprint)) return "an operation that this version does not know";
  return fmt::format(
      "{} number {}{}", name_of(fingerprint), fingerprint.sequence,
      describe_arguments(fingerprint.kind(), fingerprint.count(), fingerprint.data_type(),
                         fingerprint.reduce_op(), fingerprint.root));
}

std::string difference(const Fingerprint& here, const Fingerprint& there) {
  if (!known(there)) return "operation";
  std::vector<std::string> fields;
  const auto add = [&](bool differs, std::string_view field, const auto& ours, const auto& theirs) {
    if (differs) fields.push_back(fmt::format("{} ({} here, {} there)", field, ours, theirs));
  };
  // A plain collective is a v-collective with equal blocks if all ranks know all sizes.
  const bool tables =
      here.kind() == Collective::kReduceScatter || here.kind() == Collective::kAllGather;
  if (tables && here.kind() == there.kind()) {
    const auto sizes = [](const Fingerprint& f) { return f.uneven() ? "different" : "equal"; };
    add(here.uneven() != there.uneven(), "sizes of blocks", sizes(here), sizes(there));
  } else {
    add(here.collective != there.collective, "collective", name_of(here), name_of(there));
  }
  add(here.count() != there.count(), "count", here.count(), there.count());
  add(here.data_type() != there.data_type(), "datatype", name_of(here.data_type()),
      name_of(there.data_type()));
  add(here.reduce_op() != there.reduce_op(), "operator", name_of(here.reduce_op()),
      name_of(there.reduce_op()));
  add(here.root != there.root, "root", here.root, there.root);
  add(here.sequence != there.sequence, "operation number", here.sequence, there.sequence);
  if (fields.empty()) {
    if (tables && here.uneven() && here.plan() != there.plan())
      return "the elements of recvcounts, not their sum";
    return "algorithm or its parameters (WHORL_* variables)";
  }
  return fmt::format("{}", fmt::join(fields, ", "));
}

} // namespace whorl
