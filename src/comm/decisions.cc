#include "comm/decisions.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "memory/memory_limit.h"

namespace whorl {
namespace {

constexpr std::uint32_t kMaxSlotBytes = (1U << 30) - 64;

/// Ranks of each host, for hosts with the same number of consecutive ranks; else empty.
std::vector<Dimension> dims_of_hosts(const std::vector<RankCard>& cards) {
  const auto per_host =
      static_cast<std::size_t>(std::count_if(cards.begin(), cards.end(), [&](const RankCard& card) {
        return card.host_key == cards.front().host_key;
      }));
  std::set<std::uint64_t> hosts;
  if (cards.size() % per_host != 0) return {};
  for (std::size_t first = 0; first < cards.size(); first += per_host) {
    if (!hosts.insert(cards[first].host_key).second) return {};
    for (std::size_t r = first; r < first + per_host; ++r) {
      if (cards[r].host_key != cards[first].host_key) return {};
    }
  }
  if (per_host == 1 || hosts.size() == 1) return {};
  return {{.size = static_cast<int>(per_host), .algorithm = {}},
          {.size = static_cast<int>(hosts.size()), .algorithm = {}}};
}

/// Whether the first `count` ranks are.
bool on_one_host(const std::vector<RankCard>& cards, int count) {
  return std::all_of(cards.begin(), cards.begin() + count,
                     [&](const RankCard& card) { return card.host_key == cards.front().host_key; });
}

/// Ring order: hosts in the order of their lowest rank, ranks in order within each.
std::vector<int> ring_of_hosts(const std::vector<RankCard>& cards) {
  std::vector<int> order(cards.size());
  std::map<std::uint64_t, int> first_rank;
  for (std::size_t r = 0; r < cards.size(); ++r) {
    order[r] = static_cast<int>(r);
    first_rank.emplace(cards[r].host_key, static_cast<int>(r));
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return first_rank[cards[static_cast<std::size_t>(a)].host_key] <
           first_rank[cards[static_cast<std::size_t>(b)].host_key];
  });
  if (std::is_sorted(order.begin(), order.end())) order.clear();
  return order;
}

bool slot_bytes_given(const Membership& members) {
  return std::any_of(members.cards.begin(), members.cards.end(),
                     [](const RankCard& card) { return card.slot_bytes != 0; });
}

/// What the FIFOs of one rank may take at most, so that those of all pairs of a host's ranks find a
/// place in its memory together. All hosts are taken to have as much as this one.
std::uint64_t memory_for_fifos(const Membership& members) {
  constexpr std::uint64_t kPart = 4;            // the rest is the program's
  std::map<std::uint64_t, std::uint64_t> ranks; // of each machine
  std::uint64_t most = 1;
  for (const RankCard& card : members.cards) most = std::max(most, ++ranks[card.machine_key]);
  const std::uint64_t bytes = physical_memory();
  return bytes == 0 ? UINT64_MAX : bytes / kPart / most;
}

} // namespace

Result<Decisions> decide(const Membership& members, const Options& options, const LinkCosts& links,
                         const std::function<std::size_t(int, std::size_t)>& endpoints) {
  Decisions decisions;
  decisions.channels = std::min(options.channels, members.channels - 1);
  auto dims = parse_dims(options.dims, members.nranks);
  if (!dims.ok()) return dims.status();
  LinkCosts costs = links;
  if (dims->empty()) {
    *dims = dims_of_hosts(members.cards);
  } else if (!on_one_host(members.cards, dims->front().size)) {
    costs.inner.reset();
  }
  const std::string text = format_dims(*dims);
  if (text.size() >= decisions.dims.size()) {
    return Status::error(Code::kInvalidUsage, "WHORL_DIMS is longer than 251 characters");
  }
  std::copy(text.begin(), text.end(), decisions.dims.begin());
  const auto shape = shape_of(decisions, members);
  if (!shape.ok()) return shape.status();
  const std::uint64_t budget = smallest_budget(members);
  // The slots of a FIFO. What the peer has just read is expensive to write: where each rank has a
  // core, as much as leaves a core's own cache before slots are filled again, if that is not too
  // much memory for all FIFOs of a rank. Ranks that share a core share its cache, too, and find in
  // it what they send each other: there the slots of all are to stay.
  constexpr std::size_t kLeastRingBytes = 512 * 1024, kFifosBytes = 8 << 20;
  const auto peers = static_cast<std::size_t>(std::max(1, members.nranks - 1));
  const auto ring_bytes = static_cast<std::size_t>(
      static_cast<double>(
          links.ranks_per_core > 1
              ? kLeastRingBytes
              : std::max(kLeastRingBytes, std::min(links.cache_bytes, kFifosBytes / peers))) /
      std::max(1.0, links.ranks_per_core));
  constexpr std::size_t kFewestSlots = 4;
  std::size_t slots = static_cast<std::size_t>(members.slots);
  const bool given = std::any_of(members.cards.begin(), members.cards.end(),
                                 [](const RankCard& card) { return card.slots != 0; });
  if (!given) {
    slots = std::min(slots, std::max(kFewestSlots, ring_bytes / members.slot_bytes));
  }
  MemorySizes wanted{.slots = static_cast<std::uint32_t>(slots),
                     .slot_bytes = static_cast<std::uint32_t>(members.slot_bytes),
                     .channels = static_cast<std::uint32_t>(members.channels)};
  if (!given && !slot_bytes_given(members)) {
    wanted = shrink_towards(memory_for_fifos(members), wanted, *shape, endpoints);
  }
  const auto memory =
      fit_budget(budget, wanted, *shape, budget == 0 ? 0 : scratch_slots(*shape), endpoints);
  if (!memory.ok()) return memory.status();
  decisions.memory = *memory;
  costs.message_bytes = std::min<std::size_t>(costs.message_bytes, memory->slot_bytes);
  costs.slots = memory->slots;
  const auto choice = choose(*shape, costs, options);
  if (!choice.ok()) return choice.status();
  decisions.selector = choice->selector;
  decisions.links = choice->links;
  decisions.probe = options.probe && members.nranks > 1;
  return decisions;
}

Result<Choice> choose(const Shape& shape, const LinkCosts& links, const Options& options) {
  auto selector = Selector::make(shape, links, options.algorithms);
  if (!selector.ok()) return selector.status();
  return Choice{.selector = *selector, .links = links};
}

std::uint64_t smallest_budget(const Membership& members) {
  std::uint64_t budget = 0;
  for (const RankCard& card : members.cards) {
    if (card.memory_budget == 0) continue;
    budget = budget == 0 ? card.memory_budget : std::min(budget, card.memory_budget);
  }
  return budget;
}

Status check(const Decisions& decisions, const Membership& members) {
  // Where nobody asks for a size, members.slot_bytes is 0 on all ranks but rank 0.
  const std::size_t most = members.slot_bytes != 0 ? members.slot_bytes : kMaxSlotBytes;
  const MemorySizes& memory = decisions.memory;
  if (decisions.selector.valid() && decisions.channels >= 1 &&
      static_cast<std::uint32_t>(decisions.channels) < memory.channels &&
      memory.channels <= static_cast<std::uint32_t>(members.channels) && memory.slots >= 2 &&
      memory.slots <= static_cast<std::uint32_t>(members.slots) && memory.slot_bytes >= 64 &&
      memory.slot_bytes % 64 == 0 && memory.slot_bytes <= most &&
      shape_of(decisions, members).ok()) {
    return {};
  }
  return Status::error(Code::kInternalError, "rank 0 sent a malformed choice of algorithms");
}

Result<Shape> shape_of(const Decisions& decisions, const Membership& members) {
  std::array<char, sizeof decisions.dims> text = decisions.dims;
  text.back() = '\0';
  auto dims = parse_dims(text.data(), members.nranks);
  if (!dims.ok()) return dims.status();
  return Shape{.nranks = members.nranks,
               .channels = decisions.channels,
               .ring = ring_of_hosts(members.cards),
               .dims = *std::move(dims)};
}

} // namespace whorl
