#include "schedule/check.h"

#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>

#include "schedule/machine.h"

namespace whorl {
namespace {

template <class... Args>
Status wrong(fmt::format_string<Args...> format, Args&&... args) {
  return Status::error(Code::kInternalError, fmt::format(format, std::forward<Args>(args)...));
}

bool legal(const Step& step) {
  switch (step.ops & ~kFinal) {
    case kSend:
    case kCopy:
    case kRecv | kCopy:
    case kRecv | kCopy | kSend:
    case kWait:
      return !step.final();
    case kReduce:
    case kRecv | kReduce | kSend:
    case kRecv | kReduce | kCopy:
    case kRecv | kReduce | kCopy | kSend:
      return true;
    default:
      return false;
  }
}

/// Says what is wrong with the partners from `first` on; empty if nothing.
std::string check_peers(const Schedule& schedule, const Lane& lane, int first, int fan) {
  if (first + fan > static_cast<int>(lane.peers.size())) {
    return fmt::format("partners {} to {} of {} do not exist", first, first + fan - 1,
                       lane.peers.size());
  }
  for (int p = first; p < first + fan; ++p) {
    const std::uint32_t peer = lane.peers[static_cast<std::size_t>(p)];
    if (peer >= static_cast<std::uint32_t>(schedule.nranks) ||
        peer == static_cast<std::uint32_t>(schedule.rank)) {
      return fmt::format("rank {} cannot be a partner", peer);
    }
    if (p > first && lane.peers[static_cast<std::size_t>(p - 1)] >= peer) {
      return "the partners of one step are not in ascending order";
    }
  }
  return {};
}

/// Says what is wrong with a chunk range in all its repetitions; empty if nothing.
std::string check_chunks(const Schedule& schedule, const Step& step, Buffer buffer, int first) {
  if (static_cast<int>(buffer) > static_cast<int>(Buffer::kScratch))
    return "there is no such buffer";
  const int chunks = schedule.chunks(buffer);
  if (first >= chunks) return fmt::format("chunk {} lies outside {} chunks", first, chunks);
  for (int i = 0; i < step.repeat; ++i) {
    const int at = chunk_at(static_cast<std::uint16_t>(first), step.stride, i, chunks);
    if (at + step.count > chunks) {
      return fmt::format("{} chunks from {} on (repetition {}) lie outside {} chunks", step.count,
                         at, i, chunks);
    }
    if (step.count == 1 || step.stride == 0) break; // then all repetitions are alike
  }
  return {};
}

std::string check_wait(const Schedule& schedule, int lane, const Step& step) {
  const Step unused{.ops = kWait, .tx = step.tx, .rx = step.rx};
  if (!(step == unused)) return "a wait has other fields than lane and step";
  if (step.tx >= schedule.lanes.size() || step.tx == lane) {
    return fmt::format("lane {} cannot be waited for", step.tx);
  }
  const auto steps = schedule.lanes[step.tx].steps.size();
  if (step.rx >= steps) return fmt::format("lane {} has no step {}", step.tx, step.rx);
  return {};
}

std::string check_step(const Schedule& schedule, int lane_index, const Lane& lane,
                       const Step& step) {
  if (!legal(step)) return fmt::format("the operations {} are no legal set", step.ops);
  if (step.waits()) return check_wait(schedule, lane_index, step);
  if (step.repeat == 0 || step.count == 0 || step.fan == 0) {
    return "repeat, count and fan must be at least 1";
  }
  if (step.count > schedule.message_chunks) {
    return fmt::format("it moves {} chunks at once, more than message_chunks = {}", step.count,
                       schedule.message_chunks);
  }
  const Step unused;
  const bool canonical =
      (step.reads_src() || (step.src == unused.src && step.chunk == unused.chunk)) &&
      (step.writes_dst() || (step.dst == unused.dst && step.dst_chunk == unused.dst_chunk)) &&
      (step.sends() || step.tx == unused.tx) && (step.receives() || step.rx == unused.rx) &&
      (step.fan == 1 || step.fan_in() == step.fan || step.fan_out() == step.fan) &&
      (step.repeat > 1 || step.stride == 0);
  if (!canonical) return "a field that it does not use is not at its default";
  if (step.reads_src()) {
    if (auto error = check_chunks(schedule, step, step.src, step.chunk); !error.empty()) {
      return "source: " + error;
    }
  }
  if (step.writes_dst()) {
    if (step.dst == Buffer::kInput) return "it writes into the input";
    if (auto error = check_chunks(schedule, step, step.dst, step.dst_chunk); !error.empty()) {
      return "target: " + error;
    }
  }
  if (step.sends()) {
    if (auto error = check_peers(schedule, lane, step.tx, step.fan_out()); !error.empty()) {
      return "send: " + error;
    }
  }
  if (step.receives()) {
    if (auto error = check_peers(schedule, lane, step.rx, step.fan_in()); !error.empty()) {
      return "receive: " + error;
    }
  }
  return {};
}

Status check_schedule(const Schedule& schedule, const CollectiveSpec& spec) {
  const BufferBlocks blocks = blocks_of(spec, schedule.nranks, schedule.rank);
  const int per_block = schedule.chunks_per_block;
  const std::pair<int, int> sizes[] = {{schedule.input_chunks, blocks.input},
                                       {schedule.output_chunks, blocks.output}};
  for (const auto& [chunks, expected] : sizes) {
    if (chunks == expected * per_block) continue;
    return wrong("Rank {} has {} {} chunks; {} gives it {} blocks of {}.", schedule.rank, chunks,
                 &chunks == &sizes[0].first ? "input" : "output", name_of(spec.collective),
                 expected, per_block);
  }
  for (const int holds : schedule.scratch) {
    if (holds >= per_block) {
      return wrong("Rank {}: a scratch chunk cannot hold chunk {} of blocks that have {}.",
                   schedule.rank, holds, per_block);
    }
  }
  std::map<std::pair<std::uint16_t, std::uint32_t>, std::size_t> lane_of; // by channel and partner
  for (std::size_t l = 0; l < schedule.lanes.size(); ++l) {
    const Lane& lane = schedule.lanes[l];
    for (const std::uint32_t peer : lane.peers) {
      const auto [owner, added] = lane_of.try_emplace({lane.channel, peer}, l);
      if (!added && owner->second != l) {
        return wrong("Rank {}: lanes {} and {} share channel {} to rank {}.", schedule.rank,
                     owner->second, l, lane.channel, peer);
      }
    }
    for (std::size_t s = 0; s < lane.steps.size(); ++s) {
      const int index = static_cast<int>(l);
      const std::string error = check_step(schedule, index, lane, lane.steps[s]);
      if (!error.empty()) {
        return wrong("{}: {}.", describe(schedule, index, static_cast<int>(s)), error);
      }
      if (lane.steps[s].reduces() && !reduces(spec.collective) &&
          spec.collective != Collective::kBarrier) {
        return wrong("{}: a {} reduces nothing.", describe(schedule, index, static_cast<int>(s)),
                     name_of(spec.collective));
      }
    }
  }
  return {};
}

} // namespace

Status check_fields(std::span<const Schedule> schedules, const CollectiveSpec& spec) {
  const int n = static_cast<int>(schedules.size());
  if (n == 0) return wrong("There are no schedules.");
  if (spec.root < 0 || spec.root >= n) return wrong("There is no root {} of {}.", spec.root, n);
  const bool pair = spec.collective == Collective::kSend || spec.collective == Collective::kRecv;
  if (pair && n != 2) return wrong("A transfer has 2 ranks, not {}.", n);
  if (spec.in_place && (pair || spec.collective == Collective::kAllToAll)) {
    return wrong("The collective {} cannot be in place.", name_of(spec.collective));
  }
  for (int r = 0; r < n; ++r) {
    const Schedule& schedule = schedules[static_cast<std::size_t>(r)];
    const Schedule& first = schedules[0];
    if (schedule.rank != r || schedule.nranks != n) {
      return wrong("Schedule {} of {} is made for rank {} of {}.", r, n, schedule.rank,
                   schedule.nranks);
    }
    if (schedule.chunks_per_block == 0 || schedule.message_chunks == 0) {
      return wrong("Rank {}: chunks_per_block and message_chunks must be at least 1.", r);
    }
    if (schedule.chunks_per_block != first.chunks_per_block ||
        schedule.message_chunks != first.message_chunks) {
      return wrong(
          "Rank {} has chunks_per_block = {} and message_chunks = {}, rank 0 has {} and {}.", r,
          schedule.chunks_per_block, schedule.message_chunks, first.chunks_per_block,
          first.message_chunks);
    }
    WHORL_TRY(check_schedule(schedule, spec));
  }
  return {};
}

} // namespace whorl
