#include "device/kernel/blocks.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/bytes.h"

namespace whorl {

Blocks blocks_of(const Request& request, int rank, int nranks) {
  if (request.blocks != nullptr) return *request.blocks;
  const auto n = static_cast<std::size_t>(nranks), self = static_cast<std::size_t>(rank);
  const auto block = [&](const void* buffer, std::size_t begin, std::size_t count) {
    auto* const data = static_cast<std::byte*>(const_cast<void*>(buffer)); // inputs are only read
    return Blocks::Block{.used = true,
                         .data = count > 0 ? data + begin * size_of(request.type) : nullptr,
                         .count = count};
  };
  const auto place = [&](std::size_t r) {
    return request.table != nullptr ? request.table->blocks[r]
                                    : ChunkMap::Block{r * request.count, request.count};
  };
  const bool scatters = request.collective == Collective::kReduceScatter;
  Blocks result;
  auto& many = scatters ? result.sends : result.receives;
  for (std::size_t r = 0; r < n; ++r) {
    many.push_back(block(scatters ? request.send : request.recv, place(r).begin, place(r).count));
  }
  (scatters ? result.receives : result.sends)
      .assign(n, block(scatters ? request.recv : request.send, 0, place(self).count));
  return result;
}

Hull hull_of(std::span<const Blocks::Block> blocks, std::size_t element_size) noexcept {
  std::byte *begin = nullptr, *end = nullptr;
  for (const Blocks::Block& block : blocks) {
    if (block.count == 0) continue;
    std::byte* const behind = block.data + block.count * element_size;
    begin = begin == nullptr ? block.data : std::min(begin, block.data);
    end = end == nullptr ? behind : std::max(end, behind);
  }
  return {begin, static_cast<std::size_t>(end - begin)};
}

Status check_count(const Request& request, std::size_t from, std::size_t to, std::size_t sent,
                   std::size_t expected) {
  if (sent == expected) return {};
  return Status::error(
      Code::kInvalidUsage,
      fmt::format("ranks disagree on an operation: in {}v rank {} sends {} {} to rank {}, which "
                  "expects {}; they differ in count",
                  name_of(request.collective), from, sent, name_of(request.type), to, expected));
}

Status check_counts(const Request& request, std::span<const Blocks> blocks) {
  for (std::size_t from = 0; from < blocks.size(); ++from) {
    for (std::size_t to = 0; to < blocks.size(); ++to) {
      WHORL_TRY(check_count(request, from, to, blocks[from].sends[to].count,
                            blocks[to].receives[from].count));
    }
  }
  return {};
}

} // namespace whorl
