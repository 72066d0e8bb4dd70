#include "algorithms/embed.h"

#include <algorithm>
#include <cassert>
#include <limits>

namespace whorl {
namespace {

/// Returns the index of `fan` consecutive entries of `lane.peers`; appends missing ones.
std::uint8_t place_peers(const Embedding& embedding, const Lane& part, int first, int fan,
                         Lane& lane) {
  std::vector<std::uint32_t> wanted;
  for (int i = 0; i < fan; ++i) {
    const auto peer = part.peers[static_cast<std::size_t>(first + i)];
    wanted.push_back(static_cast<std::uint32_t>(embedding.ranks[peer]));
  }
  const auto found =
      std::search(lane.peers.begin(), lane.peers.end(), wanted.begin(), wanted.end());
  const auto index = found - lane.peers.begin();
  if (found == lane.peers.end()) {
    lane.peers.insert(lane.peers.end(), wanted.begin(), wanted.end());
  }
  assert(lane.peers.size() <= std::numeric_limits<std::uint8_t>::max());
  return static_cast<std::uint8_t>(index);
}

const Place& place_of(const Embedding& embedding, Buffer buffer) {
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

/// Makes `step` a further repetition of `last` if it continues `last`. Returns whether it does.
bool join(Step& last, const Step& step) {
  Step alike = step;
  alike.chunk = last.chunk;
  alike.dst_chunk = last.dst_chunk;
  alike.stride = last.stride;
  alike.repeat = last.repeat;
  if (!(alike == last) || last.repeat == std::numeric_limits<std::uint16_t>::max()) return false;
  const int moved = last.stride * (last.repeat - 1);
  const int by = step.reads_src() ? step.chunk - (last.chunk + moved)
                                  : step.dst_chunk - (last.dst_chunk + moved);
  if (step.reads_src() && step.writes_dst() && step.dst_chunk != last.dst_chunk + moved + by) {
    return false;
  }
  if (last.repeat > 1 ? by != last.stride : by != static_cast<std::int16_t>(by)) return false;
  last.stride = static_cast<std::int16_t>(by);
  ++last.repeat;
  return true;
}

/// Calls `visit(step, chunk, dst_chunk)` for every repetition of every step.
template <class Visit>
void for_each_repetition(const Schedule& part, Visit visit) {
  for (const Lane& lane : part.lanes) {
    for (const Step& step : lane.steps) {
      for (int i = 0; i < step.repeat; ++i) {
        const auto at = [&](bool used, Buffer buffer, std::uint16_t first) {
          return used ? static_cast<int>(chunk_at(first, step.stride, i, part.chunks(buffer))) : 0;
        };
        visit(step, at(step.reads_src(), step.src, step.chunk),
              at(step.writes_dst(), step.dst, step.dst_chunk));
      }
    }
  }
}

} // namespace

void embed(const Schedule& part, const Embedding& embedding, Lane& lane) {
  assert(part.lanes.size() <= 1);
  if (part.lanes.empty()) return;
  const Lane& from = part.lanes.front();
  // Wider groups first, so that single partners are found inside them.
  for (const Step& step : from.steps) {
    if (step.fan_in() > 1) place_peers(embedding, from, step.rx, step.fan_in(), lane);
    if (step.fan_out() > 1) place_peers(embedding, from, step.tx, step.fan_out(), lane);
  }
  for_each_repetition(part, [&](const Step& what, int chunk, int dst_chunk) {
    assert(!what.waits());
    Step step = what;
    step.repeat = 1;
    step.stride = 0;
    step.count = static_cast<std::uint16_t>(what.count * embedding.scale);
    if (!embedding.complete) step.ops &= static_cast<std::uint8_t>(~kFinal);
    if (what.sends()) step.tx = place_peers(embedding, from, what.tx, what.fan_out(), lane);
    if (what.receives()) step.rx = place_peers(embedding, from, what.rx, what.fan_in(), lane);
    if (what.reads_src()) {
      const Place& place = place_of(embedding, what.src);
      assert(what.count == 1 || place.stride == embedding.scale);
      step.src = place.buffer;
      step.chunk = static_cast<std::uint16_t>(place.base + chunk * place.stride);
    }
    if (what.writes_dst()) {
      const Place& place = place_of(embedding, what.dst);
      assert(what.count == 1 || place.stride == embedding.scale);
      step.dst = place.buffer;
      step.dst_chunk = static_cast<std::uint16_t>(place.base + dst_chunk * place.stride);
    }
    if (step.ops == kCopy && step.src == step.dst && step.chunk == step.dst_chunk) return;
    if (lane.steps.empty() || !join(lane.steps.back(), step)) lane.steps.push_back(step);
  });
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
    for_each_repetition(part, [&](const Step& step, int chunk, int dst_chunk) {
      if (!step.reads_src() || !step.writes_dst()) return;
      for (int i = 0; i < step.count; ++i) {
        const int src = label_of(step.src, chunk + i), dst = label_of(step.dst, dst_chunk + i);
        if ((src == kUnknown) == (dst == kUnknown)) continue;
        const int index = src == kUnknown ? chunk + i : dst_chunk + i;
        labels[static_cast<std::size_t>(index)] = std::max(src, dst);
        changed = true;
      }
    });
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
