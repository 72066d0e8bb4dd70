// The choice of the plan and the windows of a request. Any thread, also while another one drives
// the engine.
#include <algorithm>

#include "engine/engine.h"

namespace whorl {

/// Returns the algorithm of a request whose larger side has `bytes` bytes.
Result<const Algorithm*> Engine::algorithm_for(const Request& request, std::size_t bytes) const {
  if (request.table == nullptr || request.table->even) {
    return &config_.selector.pick(request.collective, bytes);
  }
  return uneven_algorithm(request.collective, config_.shape); // check_blocks() has refused others
}

/// Chooses the plan and the windows of a collective. Any thread.
Result<Engine::Division> Engine::divide(const Request& request) {
  const Membership& members = *config_.membership;
  Division division;
  // Every rank must come to the same size. Where only one rank has the larger side, the other ranks
  // compute its size from the size of a block.
  const bool blocks =
      request.collective == Collective::kGather || request.collective == Collective::kScatter;
  const std::size_t element = size_of(request.type);
  const std::size_t block = request.count * element;
  division.bytes = blocks ? block * static_cast<std::size_t>(members.nranks)
                   : has_root(request.collective)
                       ? block
                       : std::max(input_bytes(request, members.rank, members.nranks),
                                  output_bytes(request, members.rank, members.nranks));
  const auto algorithm = algorithm_for(request, division.bytes);
  if (!algorithm.ok()) return algorithm.status();
  const auto made = plans_.plan(request.collective, **algorithm, request.peer);
  if (!made.ok()) return made.status();
  division.plan = *made;
  const BlockTable* const table = request.table.get();
  const bool one_way =
      request.collective == Collective::kBroadcast || request.collective == Collective::kReduce;
  const std::size_t message_bytes = config_.divides_one_way && one_way
                                        ? one_way_message_bytes(block, members.slot_bytes)
                                        : members.slot_bytes;
  const auto map =
      ChunkMap::make(division.plan->schedule, table != nullptr ? table->largest : request.count,
                     element, message_bytes);
  if (!map.ok()) return map.status();
  division.map = *map;
  if (table != nullptr) {
    division.map.blocks = table->blocks.data();
    division.map.blocks_in =
        request.collective == Collective::kAllGather ? Buffer::kOutput : Buffer::kInput;
    division.map.own = static_cast<std::uint32_t>(members.rank);
  }
  return division;
}

Result<ChunkMap> Engine::windows_of(const Request& request) {
  if (!request.point_to_point()) {
    const auto division = divide(request);
    if (!division.ok()) return division.status();
    return division->map;
  }
  const auto plan =
      plans_.plan(request.collective, config_.selector.pick(request.collective, 0), 0);
  if (!plan.ok()) return plan.status();
  return ChunkMap::make((*plan)->schedule, request.count, size_of(request.type),
                        config_.membership->slot_bytes);
}

} // namespace whorl
