#include "engine/plan_cache.h"

#include <utility>

#include "base/hash.h"
#include "engine/prove.h"

namespace whorl {
namespace {

std::uint16_t hash_plan(const Identity& identity, const Algorithm& algorithm, const Shape& shape) {
  Hash hash;
  for (const std::byte b : identity.job) hash.mix(std::to_integer<std::uint64_t>(b));
  hash.mix(algorithm.name);
  hash.mix(static_cast<std::uint64_t>(shape.channels));
  for (const Dimension& dim : shape.dims) {
    hash.mix(static_cast<std::uint64_t>(dim.size));
    hash.mix(dim.algorithm);
  }
  for (const int size : shape.groups) hash.mix(static_cast<std::uint64_t>(size));
  for (const int rank : shape.order) hash.mix(static_cast<std::uint64_t>(rank));
  const std::uint64_t all = hash.value();
  return static_cast<std::uint16_t>(all ^ (all >> 16) ^ (all >> 32) ^ (all >> 48));
}

} // namespace

Result<const Plan*> PlanCache::plan(Collective collective, const Algorithm& algorithm, int root) {
  const auto index = static_cast<std::uint64_t>(&algorithm - all_algorithms().data());
  const std::uint64_t key =
      index << 32U | (has_root(collective) ? static_cast<std::uint64_t>(root) : 0);
  const std::lock_guard lock(mutex_);
  if (const auto found = plans_.find(key); found != plans_.end()) return found->second.get();

  Shape shape = shape_;
  int rank = membership_.rank;
  if (collective == Collective::kSend || collective == Collective::kRecv) {
    shape = Shape{.nranks = 2}; // rank 0 sends to rank 1, whichever ranks they are
    rank = collective == Collective::kSend ? 0 : 1;
  } else if (has_root(collective)) {
    shape.root = root;
  }
  if (verify_) {
    // Each form proves a part that the other does not.
    constexpr VerifyOptions kForms[] = {{.published = true}, {.published = true, .placed = true}};
    WHORL_TRY(prove(algorithm, shape, build_all(algorithm, shape), kForms, membership_.slots));
  }
  auto made = std::make_unique<Plan>();
  made->algorithm = static_cast<std::uint8_t>(index);
  made->schedule = build_schedule(algorithm, shape, rank);
  made->hash = hash_plan(membership_.identity, algorithm, shape);
  bytes_.fetch_add(sizeof(Plan) + made->schedule.memory_bytes(), std::memory_order_relaxed);
  return plans_.emplace(key, std::move(made)).first->second.get();
}

} // namespace whorl
