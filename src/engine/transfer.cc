#include "engine/transfer.h"

#include "kernels/reduce.h"

namespace whorl {

Status Transfer::start(const TransferSchedules& schedules, DataType type, std::size_t count,
                       std::byte* data, std::size_t slot_bytes, const Fingerprint& fingerprint,
                       StagingPipeline* pipeline) {
  const Schedule& schedule = sends_ ? *schedules.send : *schedules.receive;
  const std::size_t element = size_of(type);
  const MapArguments arguments{&schedule, count, element, slot_bytes};
  if (arguments != map_arguments_) { // a map takes some divisions, the slowest instructions of all
    const auto map = ChunkMap::make(schedule, count, element, slot_bytes);
    if (!map.ok()) return map.status();
    map_ = *map;
    map_arguments_ = arguments;
  }
  fingerprint_ = fingerprint;
  execution_.start({.schedule = &schedule,
                    .map = map_,
                    .kernels = {.nontemporal_copy = nontemporal_copy(default_simd()),
                                .vector_copy = vector_copy(default_simd()),
                                .element_size = element},
                    .input = sends_ ? data : nullptr,
                    .output = sends_ ? nullptr : data,
                    .fingerprint = fingerprint,
                    .pipeline = pipeline},
                   *this);
  return {};
}

} // namespace whorl
