#include "device/kernel/exchange.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "gpu/exchange_messages.h"

namespace whorl {

std::vector<std::byte> exchange_program(DataType type, const Blocks& blocks) {
  const std::size_t element = size_of(type);
  std::vector<std::byte> program;
  for (std::size_t r = 0; r < blocks.sends.size(); ++r) {
    const Blocks::Block &send = blocks.sends[r], &receive = blocks.receives[r];
    const gpu::PairMessages pair{.source = send.data,
                                 .sent = send.count * element,
                                 .target = receive.data,
                                 .taken = receive.count * element};
    const auto bytes = std::as_bytes(std::span(&pair, 1));
    program.insert(program.end(), bytes.begin(), bytes.end());
  }
  return program;
}

std::uint32_t exchange_blocks(const gpu::Launch& launch, std::span<const std::byte> program) {
  const std::uint32_t n = launch.fifos.nranks;
  std::uint64_t most = 0;
  for (std::size_t at = 0; at < program.size(); at += sizeof(gpu::PairMessages)) {
    gpu::PairMessages pair;
    std::memcpy(&pair, program.data() + at, sizeof pair);
    for (const std::uint64_t bytes : {pair.sent, pair.taken}) {
      const std::uint64_t chunk = gpu::exchange_chunk(bytes, launch.parts, launch.fifos.slot_bytes);
      most = std::max(most, (bytes + chunk - 1) / chunk);
    }
  }
  if (most == 0) return 0;
  const std::uint32_t last = n > 1 ? gpu::exchange_turn(n - 1, n, launch.parts) : 0;
  return n > launch.parts
             ? launch.parts
             : static_cast<std::uint32_t>(std::min<std::uint64_t>(launch.parts, most + last));
}

} // namespace whorl
