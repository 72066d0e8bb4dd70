#include "comm/decisions.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/printable.h"
#include "comm/arrangement.h"
#include "comm/level_costs.h"
#include "memory/memory_limit.h"

namespace whorl {
namespace {

constexpr std::uint32_t kMaxSlotBytes = (1U << 30) - 64;

/// Returns whether any rank asks for a number.
bool is_given(const Membership& members, std::uint32_t PeerInfo::*number) {
  return std::any_of(members.peers.begin(), members.peers.end(),
                     [number](const PeerInfo& info) { return info.*number != 0; });
}

/// Returns the most memory that the FIFOs of one rank may take, so that the FIFOs of all pairs of
/// ranks fit into the memory of their host. Assumes that all hosts have as much memory as this one.
std::uint64_t memory_for_fifos(const Membership& members) {
  constexpr std::uint64_t kPart = 4; // the rest is the program's
  const auto most = static_cast<std::uint64_t>(members.most_ranks_sharing(&PeerInfo::machine_key));
  const std::uint64_t bytes = physical_memory();
  return bytes == 0 ? UINT64_MAX : bytes / kPart / most;
}

/// Warns of a setting that does not fit the ranks that come from another communicator.
void warn_of_misfit(std::string_view name, std::string_view value, int nranks) {
  log(LogLevel::kWarn,
      fmt::format("{}=\"{}\" does not fit a communicator of {} ranks that is made out of another "
                  "one; what does not fit is not used there",
                  name, printable(value), nranks));
}

} // namespace

Result<Decisions> decide(const Membership& members, const Options& options, const CostTable& table,
                         const std::function<std::size_t(int, std::size_t)>& endpoints) {
  Decisions decisions;
  decisions.channels = std::min(options.channels, members.channels - 1);
  auto dims = parse_dims(options.dims);
  if (!dims.ok()) return dims.status();
  if (const Status fits = check_product(*dims, members.nranks); !fits.ok()) {
    if (!options.made_of_another) return fits;
    warn_of_misfit("WHORL_DIMS", options.dims, members.nranks);
    dims->clear();
  }
  if (dims->empty()) *dims = arrange(members.peers).dims;
  const std::string text = format_dims(*dims);
  if (text.size() >= decisions.dims.size()) {
    return Status::error(Code::kInvalidUsage, "WHORL_DIMS is longer than 251 characters");
  }
  std::copy(text.begin(), text.end(), decisions.dims.begin());
  const auto shape = shape_of(decisions, members);
  if (!shape.ok()) return shape.status();
  if (algorithms_for(*shape, options) != options.algorithms) {
    warn_of_misfit("WHORL_ALGO", options.algorithms, members.nranks);
  }
  LinkCosts costs = costs_of_levels(table, *shape, members.peers);
  const std::uint64_t budget = members.smallest_budget();
  // Bytes of a FIFO's slots. Lines that the peer has just read are expensive to write. If each rank
  // has a core, the slots are as many bytes as the core's own cache, so that lines leave it before
  // they are written again, unless that is too much memory for all FIFOs of a rank. Ranks that
  // share a core share its cache, too, and find each other's messages there, so all slots are to
  // stay in the cache.
  constexpr std::size_t kMinSlotsBytes = 512 * 1024, kFifosBytes = 8 << 20;
  const auto peers = static_cast<std::size_t>(std::max(1, members.nranks - 1));
  const auto slots_bytes = static_cast<std::size_t>(
      static_cast<double>(
          costs.ranks_per_core > 1
              ? kMinSlotsBytes
              : std::max(kMinSlotsBytes, std::min(costs.cache_bytes, kFifosBytes / peers))) /
      std::max(1.0, costs.ranks_per_core));
  constexpr std::size_t kFewestSlots = 4;
  std::size_t slots = static_cast<std::size_t>(members.slots);
  const bool given = is_given(members, &PeerInfo::slots);
  if (!given) {
    slots = std::min(slots, std::max(kFewestSlots, slots_bytes / members.slot_bytes));
  }
  MemorySizes wanted{.slots = static_cast<std::uint32_t>(slots),
                     .slot_bytes = static_cast<std::uint32_t>(members.slot_bytes),
                     .channels = static_cast<std::uint32_t>(members.channels)};
  if (!given && !is_given(members, &PeerInfo::slot_bytes)) {
    wanted = shrink_towards(memory_for_fifos(members), wanted, *shape, endpoints);
  }
  const auto memory =
      fit_budget(budget, wanted, *shape, budget == 0 ? 0 : scratch_slots(*shape), endpoints);
  if (!memory.ok()) {
    const auto least = std::find_if(members.peers.begin(), members.peers.end(),
                                    [&](const auto& info) { return info.memory_budget == budget; });
    return memory.status().with_context(
        members.describe(static_cast<int>(least - members.peers.begin())));
  }
  decisions.memory = *memory;
  costs.message_bytes = std::min<std::size_t>(costs.message_bytes, memory->slot_bytes);
  costs.slots = memory->slots;
  const auto choice = choose(*shape, costs, options);
  if (!choice.ok()) return choice.status();
  decisions.selector = choice->selector;
  decisions.links = choice->links;
  decisions.probe = options.probe && members.nranks > 1 ? 1 : 0;
  return decisions;
}

std::string algorithms_for(const Shape& shape, const Options& options) {
  return options.made_of_another ? supported_overrides(shape, options.algorithms)
                                 : options.algorithms;
}

Result<Choice> choose(const Shape& shape, const LinkCosts& links, const Options& options) {
  auto selector = Selector::make(shape, links, algorithms_for(shape, options));
  if (!selector.ok()) return selector.status();
  return Choice{.selector = *selector, .links = links};
}

bool sane(const Selector& selector, const LinkCosts& links) noexcept {
  if (!selector.valid() || links.count < 1 || links.count > links.levels.size()) return false;
  constexpr double kMost = 1e12;                                         // µs; more than any cost
  const auto is_cost = [](double us) { return us >= 0 && us <= kMost; }; // no NaN
  return is_cost(links.gamma_us_per_kib) && is_cost(links.copy_us_per_kib) &&
         is_cost(links.ranks_per_core) &&
         std::all_of(links.levels.begin(), links.levels.end(), [&](const Level& level) {
           const Link& link = level.link;
           return level.scope <= Scope::kNetwork && is_cost(level.boundary_us_per_kib) &&
                  is_cost(link.alpha_us) && is_cost(link.overhead_us) &&
                  is_cost(link.beta_us_per_kib) && is_cost(link.send_us_per_kib) &&
                  is_cost(link.receive_us_per_kib);
         });
}

Status check(const Decisions& decisions, const Membership& members) {
  // If no rank asks for a size, members.slot_bytes is 0 on all ranks but rank 0.
  const std::size_t most = members.slot_bytes != 0 ? members.slot_bytes : kMaxSlotBytes;
  const MemorySizes& memory = decisions.memory;
  if (sane(decisions.selector, decisions.links) && decisions.probe <= 1 &&
      decisions.channels >= 1 && static_cast<std::uint32_t>(decisions.channels) < memory.channels &&
      memory.channels <= static_cast<std::uint32_t>(members.channels) && memory.slots >= 2 &&
      memory.slots <= static_cast<std::uint32_t>(members.slots) && memory.slot_bytes >= 64 &&
      memory.slot_bytes % 64 == 0 && memory.slot_bytes <= most &&
      shape_of(decisions, members).ok()) {
    return {};
  }
  return Status::error(Code::kInternalError, "rank 0 sent malformed decisions");
}

Result<Shape> shape_of(const Decisions& decisions, const Membership& members) {
  std::array<char, sizeof decisions.dims> text = decisions.dims;
  text.back() = '\0';
  auto dims = parse_dims(text.data(), members.nranks);
  if (!dims.ok()) return dims.status();
  Arrangement arrangement = arrange(members.peers);
  Shape shape{.nranks = members.nranks, .channels = decisions.channels};
  shape.order = std::move(arrangement.order);
  // Dimensions that the user gives replace groups.
  if (dims->empty()) shape.groups = std::move(arrangement.groups);
  shape.dims = *std::move(dims);
  return shape;
}

} // namespace whorl
