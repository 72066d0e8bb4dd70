#include "schedule/builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "base/log.h"

namespace whorl {
namespace {

constexpr int kMaxU16 = std::numeric_limits<std::uint16_t>::max();
constexpr int kMaxU8 = std::numeric_limits<std::uint8_t>::max();

/// Logs that the algorithm made a schedule that cannot be encoded (its first test shows that), and
/// aborts.
[[noreturn]] void defect(const std::string& message) {
  log(LogLevel::kError, "Schedule builder: " + message);
  std::abort();
}

template <class... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) defect(fmt::format(format, std::forward<Args>(args)...));
}

/// One message or local action of a draft, in chunks of the schedule.
struct Piece {
  int chunk, dst_chunk, count;
};

/// Circle of a draft laid over one of its buffers.
struct Circle {
  bool used, absolute;
  int base = 0, size = 1, scale = 1, chunks = 0;

  Circle(bool used_, Buffer buffer, const ChunkRange& range, int chunks_)
      : used(used_), absolute(buffer == Buffer::kScratch), scale(range.scale), chunks(chunks_) {
    if (!used || absolute) return;
    require(scale > 0 && (range.size > 0 || chunks % scale == 0),
            "A scale of {} does not divide a buffer of {} chunks.", scale, chunks);
    base = range.base;
    size = range.size > 0 ? range.size : (chunks - base) / scale;
    require(base >= 0 && size > 0 && base + size * scale <= chunks,
            "The range of {}·{} chunks from {} on lies outside a buffer of {} chunks.", size, scale,
            base, chunks);
  }
  /// Returns how many of `count` indices from `index` on come before the circle wraps.
  int room(int index, int count) const {
    return !used || absolute ? count : std::min(count, size - wrap(index, size));
  }
  /// Returns the first chunk of index `index` + `step`. Scratch moves by `step` times the scale,
  /// and wraps as the executor does.
  int at(int index, int step) const {
    if (!used) return 0;
    if (!absolute) return base + scale * wrap(index + step, size);
    require(index >= 0 && index < chunks, "There is no scratch chunk {} of {}.", index, chunks);
    return wrap(index + scale * step, chunks);
  }
  /// Returns whether `count` chunks from `chunk` on lie inside the buffer.
  bool holds(int chunk, int count) const {
    return !used || (chunk >= 0 && chunk + count <= chunks);
  }
  /// Returns whether an executor steps from chunk `from` to `to` by `stride`.
  bool follows(int from, int to, int stride) const {
    return !used || wrap(from + stride, chunks) == to;
  }
  static int wrap(int index, int modulus) {
    const int rest = index % modulus;
    return rest < 0 ? rest + modulus : rest;
  }
};

/// Returns the index of `wanted` as consecutive entries of `peers`; appends the missing ones.
std::size_t place(std::vector<std::uint32_t>& peers, const std::vector<int>& wanted) {
  const auto found = std::search(peers.begin(), peers.end(), wanted.begin(), wanted.end(),
                                 [](std::uint32_t a, int b) { return static_cast<int>(a) == b; });
  const auto index = static_cast<std::size_t>(found - peers.begin());
  if (found == peers.end()) peers.insert(peers.end(), wanted.begin(), wanted.end());
  return index;
}

} // namespace

LaneBuilder& LaneBuilder::peers(int tx, int rx) {
  tx_ = {tx};
  rx_ = {rx};
  return *this;
}

LaneBuilder& LaneBuilder::peers(std::span<const int> tx, std::span<const int> rx) {
  tx_.assign(tx.begin(), tx.end());
  rx_.assign(rx.begin(), rx.end());
  std::sort(tx_.begin(), tx_.end());
  std::sort(rx_.begin(), rx_.end());
  return *this;
}

LaneBuilder& LaneBuilder::read(Buffer buffer) {
  src_ = buffer;
  return *this;
}

LaneBuilder& LaneBuilder::write(Buffer buffer) {
  dst_ = buffer;
  return *this;
}

LaneBuilder& LaneBuilder::range(ChunkRange range) {
  range_ = range;
  return *this;
}

LaneBuilder& LaneBuilder::add(int ops, int chunk, int dst_chunk) {
  drafts_.push_back(
      {static_cast<std::uint8_t>(ops), src_, dst_, tx_, rx_, range_, chunk, dst_chunk});
  return *this;
}

LaneBuilder::Draft& LaneBuilder::last() {
  require(!drafts_.empty(), "The lane of channel {} has no step to change yet.", channel_);
  return drafts_.back();
}

LaneBuilder& LaneBuilder::send(int chunk) { return add(kSend, chunk, 0); }
LaneBuilder& LaneBuilder::copy(int chunk, int dst_chunk) { return add(kCopy, chunk, dst_chunk); }
LaneBuilder& LaneBuilder::reduce(int chunk, int dst_chunk) {
  return add(kReduce, chunk, dst_chunk);
}
LaneBuilder& LaneBuilder::recv_copy(int dst_chunk) { return add(kRecv | kCopy, 0, dst_chunk); }
LaneBuilder& LaneBuilder::recv_copy_send(int dst_chunk) {
  return add(kRecv | kCopy | kSend, 0, dst_chunk);
}
LaneBuilder& LaneBuilder::recv_reduce_send(int chunk) {
  return add(kRecv | kReduce | kSend, chunk, 0);
}
LaneBuilder& LaneBuilder::recv_reduce_copy(int chunk, int dst_chunk) {
  return add(kRecv | kReduce | kCopy, chunk, dst_chunk);
}
LaneBuilder& LaneBuilder::recv_reduce_copy_send(int chunk, int dst_chunk) {
  return add(kRecv | kReduce | kCopy | kSend, chunk, dst_chunk);
}
LaneBuilder& LaneBuilder::wait(int lane, int step) { return add(kWait, lane, step); }

LaneBuilder& LaneBuilder::repeat(int times, int stride) {
  require(times >= 0, "A step of channel {} cannot be repeated {} times.", channel_, times);
  last().repeat = times;
  last().stride = stride;
  return *this;
}

LaneBuilder& LaneBuilder::count(int count) {
  require(count > 0, "A step of channel {} cannot move {} chunks.", channel_, count);
  last().count = count;
  return *this;
}

LaneBuilder& LaneBuilder::final() {
  require((last().ops & kReduce) != 0,
          "A step of channel {} that reduces nothing is marked as final.", channel_);
  last().ops |= kFinal;
  return *this;
}

ScheduleBuilder::ScheduleBuilder(int nranks, int rank, int chunks_per_block) {
  require(nranks > 0 && rank >= 0 && rank < nranks, "There is no rank {} of {}.", rank, nranks);
  require(chunks_per_block > 0 && chunks_per_block <= kMaxU16, "A block cannot have {} chunks.",
          chunks_per_block);
  schedule_.rank = rank;
  schedule_.nranks = nranks;
  schedule_.chunks_per_block = static_cast<std::uint16_t>(chunks_per_block);
  blocks(1, 1);
}

ScheduleBuilder& ScheduleBuilder::blocks(int input, int output) {
  const int per_block = schedule_.chunks_per_block;
  for (const int blocks : {input, output}) {
    require(blocks == 0 || blocks == 1 || blocks == schedule_.nranks,
            "A buffer has 0, 1 or {} blocks, not {}.", schedule_.nranks, blocks);
    require(blocks <= kMaxU16 / per_block, "A buffer cannot have {} blocks of {} chunks.", blocks,
            per_block);
  }
  schedule_.input_chunks = static_cast<std::uint16_t>(input * per_block);
  schedule_.output_chunks = static_cast<std::uint16_t>(output * per_block);
  return *this;
}

int ScheduleBuilder::scratch(std::span<const std::uint16_t> holds) {
  const auto first = static_cast<int>(schedule_.scratch.size());
  for (const int index : holds) {
    require(index < schedule_.chunks_per_block,
            "A scratch chunk cannot hold chunk {} of blocks that have {}.", index,
            schedule_.chunks_per_block);
  }
  schedule_.scratch.insert(schedule_.scratch.end(), holds.begin(), holds.end());
  require(schedule_.scratch.size() <= kMaxU16, "{} scratch chunks are too many.",
          schedule_.scratch.size());
  return first;
}

int ScheduleBuilder::scratch(std::initializer_list<std::uint16_t> holds) {
  return scratch(std::span<const std::uint16_t>(holds.begin(), holds.size()));
}

LaneBuilder& ScheduleBuilder::lane(int channel) {
  require(channel >= 0 && channel <= kMaxU16, "There is no channel {}.", channel);
  lanes_.push_back(std::unique_ptr<LaneBuilder>(new LaneBuilder(channel)));
  return *lanes_.back();
}

ScheduleBuilder& ScheduleBuilder::message_chunks(int chunks) {
  require(chunks > 0 && chunks <= kMaxU16, "A message cannot have {} chunks.", chunks);
  message_chunks_ = chunks;
  return *this;
}

/// Collects the partners of all steps, each group in consecutive entries; wider groups first, so
/// that single partners are found inside them.
std::vector<std::uint32_t> ScheduleBuilder::collect_peers(LaneBuilder& lane) const {
  std::vector<const std::vector<int>*> groups;
  for (LaneBuilder::Draft& draft : lane.drafts_) {
    if ((draft.ops & kRecv) == 0 || draft.repeat == 0) draft.rx.clear();
    if ((draft.ops & kSend) == 0 || draft.repeat == 0) draft.tx.clear();
    for (const auto* group : {&draft.tx, &draft.rx}) {
      for (const int peer : *group) {
        require(peer >= 0 && peer < schedule_.nranks && peer != schedule_.rank,
                "Rank {} of {} cannot exchange messages with rank {}.", schedule_.rank,
                schedule_.nranks, peer);
      }
      require(std::adjacent_find(group->begin(), group->end()) == group->end(),
              "Rank {} names a partner twice in one step.", schedule_.rank);
      if (!group->empty()) groups.push_back(group);
    }
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [](const auto* a, const auto* b) { return a->size() > b->size(); });
  std::vector<std::uint32_t> peers;
  for (const auto* group : groups) place(peers, *group);
  require(peers.size() <= kMaxU8, "Rank {} has {} partners in one lane; {} can be encoded.",
          schedule_.rank, peers.size(), kMaxU8);
  return peers;
}

/// Cuts a draft into steps: lays out its messages one by one, then joins those that an executor
/// reproduces by stepping (both indices move by the stride, modulo the whole buffer).
std::vector<Step> ScheduleBuilder::encode(const LaneBuilder::Draft& draft,
                                          std::vector<std::uint32_t>& peers) const {
  if (draft.repeat == 0) return {};
  Step step;
  step.ops = draft.ops;
  if (step.waits()) return {step};
  step.src = step.reads_src() ? draft.src : Buffer::kInput;
  step.dst = step.writes_dst() ? draft.dst : Buffer::kOutput;
  const std::size_t fan = std::max({draft.tx.size(), draft.rx.size(), std::size_t{1}});
  step.fan = static_cast<std::uint8_t>(fan);
  require(step.fan_in() == static_cast<int>(draft.rx.size()) &&
              step.fan_out() == static_cast<int>(draft.tx.size()),
          "Rank {} cannot receive from {} and send to {} ranks in one step with the operations {}.",
          schedule_.rank, draft.rx.size(), draft.tx.size(), step.ops);
  if (step.receives()) step.rx = static_cast<std::uint8_t>(place(peers, draft.rx));
  if (step.sends()) step.tx = static_cast<std::uint8_t>(place(peers, draft.tx));

  const Circle src(step.reads_src(), draft.src, draft.range, schedule_.chunks(draft.src));
  const Circle dst(step.writes_dst(), draft.dst, draft.range, schedule_.chunks(draft.dst));
  std::vector<Piece> pieces;
  for (int i = 0; i < draft.repeat; ++i) {
    const int moved = draft.stride * i;
    for (int done = 0; done < draft.count;) {
      const int left = src.room(draft.chunk + moved + done, draft.count - done);
      const int count = dst.room(draft.dst_chunk + moved + done, left);
      pieces.push_back({src.at(draft.chunk, moved + done), dst.at(draft.dst_chunk, moved + done),
                        count * draft.range.scale});
      done += count;
    }
  }
  const int stride = pieces.size() > 1 ? draft.stride * draft.range.scale : 0;
  require(std::abs(stride) <= std::numeric_limits<std::int16_t>::max(),
          "A stride of {} chunks cannot be encoded.", stride);
  std::vector<Step> steps;
  for (std::size_t i = 0; i < pieces.size();) {
    const Piece& first = pieces[i];
    std::size_t end = i;
    do {
      require(src.holds(pieces[end].chunk, first.count) &&
                  dst.holds(pieces[end].dst_chunk, first.count) && first.count <= kMaxU16,
              "Rank {} moves {} chunks from {} to {}: outside its buffers of {} and {} chunks.",
              schedule_.rank, first.count, pieces[end].chunk, pieces[end].dst_chunk, src.chunks,
              dst.chunks);
      ++end;
    } while (end < pieces.size() && end - i < kMaxU16 && pieces[end].count == first.count &&
             src.follows(pieces[end - 1].chunk, pieces[end].chunk, stride) &&
             dst.follows(pieces[end - 1].dst_chunk, pieces[end].dst_chunk, stride));
    step.chunk = static_cast<std::uint16_t>(first.chunk);
    step.dst_chunk = static_cast<std::uint16_t>(first.dst_chunk);
    step.count = static_cast<std::uint16_t>(first.count);
    step.repeat = static_cast<std::uint16_t>(end - i);
    step.stride = static_cast<std::int16_t>(step.repeat > 1 ? stride : 0);
    steps.push_back(step);
    i = end;
  }
  return steps;
}

Schedule ScheduleBuilder::build() && {
  std::vector<Lane> lanes(lanes_.size());
  std::vector<std::vector<std::vector<Step>>> encoded(lanes_.size()); // by lane and draft
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    lanes[l].channel = static_cast<std::uint16_t>(lanes_[l]->channel_);
    lanes[l].peers = collect_peers(*lanes_[l]);
    for (const auto& draft : lanes_[l]->drafts_) {
      encoded[l].push_back(encode(draft, lanes[l].peers));
    }
  }

  // Counts the steps of lane `l` up to and including those of draft `d`.
  const auto steps_until = [&](int l, int d) {
    require(l >= 0 && l < static_cast<int>(encoded.size()) && d >= 0 &&
                d < static_cast<int>(encoded[static_cast<std::size_t>(l)].size()),
            "Rank {} waits for step {} of lane {}, which does not exist.", schedule_.rank, d, l);
    const auto& drafts = encoded[static_cast<std::size_t>(l)];
    return std::accumulate(
        drafts.begin(), drafts.begin() + d + 1, 0,
        [](int sum, const auto& steps) { return sum + static_cast<int>(steps.size()); });
  };
  const auto for_each_wait = [&](const auto& visit) {
    for (std::size_t l = 0; l < encoded.size(); ++l) {
      for (std::size_t d = 0; d < encoded[l].size(); ++d) {
        const auto& draft = lanes_[l]->drafts_[d];
        if ((draft.ops & kWait) != 0 && !encoded[l][d].empty()) {
          visit(encoded[l][d], draft.chunk, steps_until(draft.chunk, draft.dst_chunk));
        }
      }
    }
  };
  // Waits for removed steps only go away, which may leave other waits without steps to wait for.
  for (bool changed = true; changed;) {
    changed = false;
    for_each_wait([&](std::vector<Step>& wait, int, int steps) {
      if (steps != 0) return;
      wait.clear();
      changed = true;
    });
  }
  std::vector<int> number(lanes.size(), 0); // number of each lane in the schedule
  for (std::size_t l = 0, next = 0; l < lanes.size(); ++l) {
    number[l] = static_cast<int>(next);
    for (const auto& steps : encoded[l]) {
      if (!steps.empty()) {
        ++next;
        break;
      }
    }
  }
  for_each_wait([&](std::vector<Step>& wait, int lane, int steps) {
    require(number[static_cast<std::size_t>(lane)] <= kMaxU8 && steps - 1 <= kMaxU8,
            "Rank {} waits for step {} of lane {}: too far to be encoded.", schedule_.rank,
            steps - 1, lane);
    wait.front().tx = static_cast<std::uint8_t>(number[static_cast<std::size_t>(lane)]);
    wait.front().rx = static_cast<std::uint8_t>(steps - 1);
  });

  int largest = 1;
  for (std::size_t l = 0; l < lanes.size(); ++l) {
    for (const auto& steps : encoded[l]) {
      lanes[l].steps.insert(lanes[l].steps.end(), steps.begin(), steps.end());
      for (const Step& step : steps) largest = std::max<int>(largest, step.count);
    }
    if (!lanes[l].steps.empty()) schedule_.lanes.push_back(std::move(lanes[l]));
  }
  require(message_chunks_ == 0 || message_chunks_ >= largest,
          "Rank {} moves {} chunks at once, more than the {} that all ranks know of.",
          schedule_.rank, largest, message_chunks_);
  schedule_.message_chunks =
      static_cast<std::uint16_t>(message_chunks_ == 0 ? largest : message_chunks_);
  return std::move(schedule_);
}

} // namespace whorl
