#include "device/kernel/exchange.h"

#include <algorithm>

#include "base/bytes.h"

namespace whorl {

std::vector<gpu::PairMessages> exchange_program(DataType type, const Blocks& blocks) {
  const std::size_t element = size_of(type);
  std::vector<gpu::PairMessages> program;
  for (std::size_t r = 0; r < blocks.sends.size(); ++r) {
    const Blocks::Block &send = blocks.sends[r], &receive = blocks.receives[r];
    program.push_back({.source = send.data,
                       .sent = send.count * element,
                       .target = receive.data,
                       .taken = receive.count * element});
  }
  return program;
}

std::uint32_t exchange_blocks(const gpu::Launch& launch,
                              std::span<const gpu::PairMessages> program) {
  const std::uint32_t n = launch.fifos.nranks;
  std::uint64_t most = 0;
  for (const gpu::PairMessages& pair : program) {
    for (const std::uint64_t bytes : {pair.sent, pair.taken}) {
      const std::uint64_t chunk = gpu::exchange_chunk(bytes, launch.parts, launch.fifos.slot_bytes);
      most = std::max(most, (bytes + chunk - 1) / chunk);
    }
  }
  if (most == 0) return 0;
  if (n > launch.parts) return launch.parts; // turns go round
  const std::uint32_t last = n > 1 ? gpu::exchange_turn(n - 1, n, launch.parts) : 0;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(launch.parts, most + last));
}

} // namespace whorl
