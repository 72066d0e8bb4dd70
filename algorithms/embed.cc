#include "algorithms/embed.h"

#include <algorithm>
#include <cassert>

#include "algorithms/steps.h"

namespace whorl {
namespace {

const Location& location_of(const Embedding& embedding, Buffer buffer) {
  switch (buffer) {
    case Buffer::kInput:
      return embedding.input;
    case Buffer::kOutput:
      return embedding.output;
    case Buffer::kScratch:
      break;
  }
  return embedding.scratch;
}

} // namespace

void embed(const Schedule& part, const Embedding& embedding, Lane& lane) {
  assert(part.lanes.size() <= 1);
  if (part.lanes.empty()) return;
  const Lane& from = part.lanes.front();
  PeerMap peers(from, embedding.ranks, lane);
  for (const Step& what : from.steps) {
    Step step = what;
    step.repeat = 1;
    step.stride = 0;
    step.count = static_cast<std::uint16_t>(what.count * embedding.scale);
    if (!embedding.complete) step.ops &= static_cast<std::uint8_t>(~kFinal);
    peers.rename(step);
    for_each_repetition(part, what, [&](int chunk, int dst_chunk) {
      if (what.reads_src()) {
        const Location& location = location_of(embedding, what.src);
        assert(what.count == 1 || location.stride == embedding.scale);
        step.src = location.buffer;
        step.chunk = static_cast<std::uint16_t>(location.base + chunk * location.stride);
      }
      if (what.writes_dst()) {
        const Location& location = location_of(embedding, what.dst);
        assert(what.count == 1 || location.stride == embedding.scale);
        step.dst = location.buffer;
        step.dst_chunk = static_cast<std::uint16_t>(location.base + dst_chunk * location.stride);
      }
      if (step.ops == kCopy && step.src == step.dst && step.chunk == step.dst_chunk) return;
      append(lane, step);
    });
  }
}

std::vector<int> scratch_labels(const Schedule& part) {
  constexpr int kUnknown = -1;
  std::vector<int> labels(part.scratch.size(), kUnknown);
  const int own = part.rank * part.chunks_per_block;
  const auto label_of = [&](Buffer buffer, int chunk) {
    if (buffer == Buffer::kScratch) return labels[static_cast<std::size_t>(chunk)];
    const int here = part.chunks(buffer);
    const bool one_of_many = here < std::max(part.input_chunks, part.output_chunks);
    return one_of_many ? own + chunk : chunk;
  };
  for (bool changed = !labels.empty(); changed;) {
    changed = false;
    for (const Lane& lane : part.lanes) {
      for (const Step& step : lane.steps) {
        if (!step.reads_src() || !step.writes_dst()) continue;
        for_each_repetition(part, step, [&](int chunk, int dst_chunk) {
          for (int i = 0; i < step.count; ++i) {
            const int src = label_of(step.src, chunk + i), dst = label_of(step.dst, dst_chunk + i);
            if ((src == kUnknown) == (dst == kUnknown)) continue;
            const int index = src == kUnknown ? chunk + i : dst_chunk + i;
            labels[static_cast<std::size_t>(index)] = std::max(src, dst);
            changed = true;
          }
        });
      }
    }
  }
  assert(std::find(labels.begin(), labels.end(), kUnknown) == labels.end());
  return labels;
}

bool has_long_messages(const Schedule& part) {
  for (const Lane& lane : part.lanes) {
    for (const Step& step : lane.steps) {
      if (step.count == 1) continue;
      if (step.reads_src() && step.src != Buffer::kScratch) return true;
      if (step.writes_dst() && step.dst != Buffer::kScratch) return true;
    }
  }
  return false;
}

} // namespace whorl
