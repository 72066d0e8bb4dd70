#include "schedule/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace whorl {

BufferBlocks blocks_of(const CollectiveSpec& spec, int nranks, int rank) noexcept {
  const bool root = rank == spec.root;
  switch (spec.collective) {
    case Collective::kAllReduce:
    case Collective::kBarrier:
      return {1, 1};
    case Collective::kReduce:
      return {1, root ? 1 : 0};
    case Collective::kBroadcast:
      return {root ? 1 : 0, 1};
    case Collective::kAllGather:
      return {1, nranks};
    case Collective::kReduceScatter:
      return {nranks, 1};
    case Collective::kAllToAll:
      return {nranks, nranks};
    case Collective::kGather:
      return {1, root ? nranks : 0};
    case Collective::kScatter:
      return {root ? nranks : 0, 1};
    case Collective::kSend:
    case Collective::kRecv:
      break;
  }
  return {root ? 1 : 0, root ? 0 : 1};
}

ChunkLayout::ChunkLayout(std::span<const Schedule> schedules, const CollectiveSpec& spec,
                         int windows) {
  for (const Schedule& schedule : schedules) {
    const std::uint32_t input = schedule.input_chunks, output = schedule.output_chunks;
    Rank place{cells_, {cells_, cells_ + input, 0}, input + output};
    if (spec.in_place && input > 0 && output > 0) {
      // The smaller buffer is a block of the larger one, or all of it.
      const auto block = static_cast<std::uint32_t>(schedule.rank * schedule.chunks_per_block);
      place.base[0] = cells_ + (input < output ? block : 0);
      place.base[1] = cells_ + (output < input ? block : 0);
      place.user_cells = std::max(input, output);
    }
    place.base[2] = cells_ + place.user_cells * static_cast<std::uint32_t>(windows);
    cells_ = place.base[2] + static_cast<std::uint32_t>(schedule.scratch.size());
    ranks_.push_back(place);
  }
}

Machine::Machine(std::span<const Schedule> schedules, const ChunkLayout* layout)
    : schedules_(schedules), layout_(layout), rank_waits_(schedules.size(), false) {
  std::size_t pairs = 0;
  for (const Schedule& schedule : schedules) {
    for (const Lane& lane : schedule.lanes) pairs += 2 * lane.peers.size();
  }
  fifo_table_.resize(std::bit_ceil(2 * pairs + 1));
  std::vector<bool> sends, receives;
  for (const Schedule& schedule : schedules) {
    const int first_lane = lanes();
    for (const Lane& lane : schedule.lanes) {
      const int self = lanes(), peers = static_cast<int>(lane.peers.size());
      const auto first = static_cast<std::uint32_t>(fifo_of_peer_.size());
      sends.assign(lane.peers.size(), false);
      receives.assign(lane.peers.size(), false);
      for (const Step& step : lane.steps) {
        if (step.waits()) rank_waits_[static_cast<std::size_t>(schedule.rank)] = true;
        for (int p = 0; p < step.fan_out(); ++p)
          sends[static_cast<std::size_t>(step.tx + p)] = true;
        for (int p = 0; p < step.fan_in(); ++p) {
          receives[static_cast<std::size_t>(step.rx + p)] = true;
        }
      }
      fifo_of_peer_.resize(first + 2 * lane.peers.size(), 0);
      for (int p = 0; p < peers; ++p) {
        const auto index = static_cast<std::size_t>(p);
        const int peer = static_cast<int>(lane.peers[index]);
        if (sends[index]) {
          const std::uint32_t out = fifo(schedule.rank, peer, lane.channel);
          fifos_[out].sender = self;
          fifo_of_peer_[first + index] = out;
        }
        if (receives[index]) {
          const std::uint32_t in = fifo(peer, schedule.rank, lane.channel);
          fifos_[in].receiver = self;
          fifo_of_peer_[first + lane.peers.size() + index] = in;
        }
      }
      lanes_.push_back({schedule.rank, self - first_lane, &schedule, &lane, first,
                        first + static_cast<std::uint32_t>(peers), first_lane});
    }
  }
}

/// Returns the number of the FIFO; makes it if there is none.
std::uint32_t Machine::fifo(int from, int to, int channel) {
  const std::size_t mask = fifo_table_.size() - 1;
  const auto key = (static_cast<std::uint64_t>(from) << 40) ^
                   (static_cast<std::uint64_t>(to) << 16) ^ static_cast<std::uint64_t>(channel);
  for (auto at = static_cast<std::size_t>((key * 0x9e3779b97f4a7c15ULL) >> 32) & mask;;
       at = (at + 1) & mask) {
    if (fifo_table_[at] == 0) {
      fifos_.push_back({from, to, channel});
      fifo_table_[at] = static_cast<std::uint32_t>(fifos_.size());
    }
    const Fifo& found = fifos_[fifo_table_[at] - 1];
    if (found.from == from && found.to == to && found.channel == channel) {
      return fifo_table_[at] - 1;
    }
  }
}

void Machine::wake(int global_lane) {
  if (global_lane < 0) return;
  LaneState& lane = lanes_[static_cast<std::size_t>(global_lane)];
  if (lane.queued) return;
  lane.queued = true;
  queue_.push_back(global_lane);
}

void Machine::wake_rank(const LaneState& lane) {
  for (std::size_t l = 0; l < lane.schedule->lanes.size(); ++l) {
    wake(lane.first_lane + static_cast<int>(l));
  }
}

Machine::Blocked Machine::blocked(const LaneState& lane) const {
  const Step& step = lane.what->steps[static_cast<std::size_t>(lane.step)];
  if (step.waits()) {
    const LaneState& other = lanes_[static_cast<std::size_t>(lane.first_lane + step.tx)];
    const bool done =
        other.window > lane.window || (other.window == lane.window && other.step > step.rx);
    return {done ? Block::kNone : Block::kLane};
  }
  for (int p = 0; p < step.fan_in(); ++p) {
    const std::uint32_t in = fifo_of_peer_[lane.first_rx + step.rx + static_cast<unsigned>(p)];
    if (fifos_[in].sent == fifos_[in].received) return {Block::kMessage, in};
  }
  for (int p = 0; p < step.fan_out(); ++p) {
    const std::uint32_t out = fifo_of_peer_[lane.first_tx + step.tx + static_cast<unsigned>(p)];
    if (fifos_[out].sent - fifos_[out].received >= options_.slots) return {Block::kSlot, out};
  }
  if (options_.published && step.writes_dst()) {
    const int first =
        chunk_at(step.dst_chunk, step.stride, lane.repetition, lane.schedule->chunks(step.dst));
    const std::uint32_t cell = layout_->cell(lane.rank, lane.window, step.dst, first);
    if (step.ops == kCopy) { // a copy onto itself, in place, writes nothing
      const int from =
          chunk_at(step.chunk, step.stride, lane.repetition, lane.schedule->chunks(step.src));
      if (layout_->cell(lane.rank, lane.window, step.src, from) == cell) return {};
    }
    for (std::uint32_t i = 0; i < step.count; ++i) {
      if (held_[cell + i] != 0) return {Block::kRelease};
    }
  }
  return {};
}

/// Does all that the lane can do. Returns false if the observer stopped it.
bool Machine::advance(LaneState& lane, MachineObserver* observer) {
  while (lane.window < options_.windows) {
    if (blocked(lane).why != Block::kNone) return true;
    const Step& step = lane.what->steps[static_cast<std::size_t>(lane.step)];
    StepEvent event{
        lane.rank,
        lane.lane,
        lane.step,
        lane.repetition,
        lane.window,
        lane.first_lane + lane.lane,
        &step,
        0,
        0,
        {fifo_of_peer_.data() + lane.first_rx + step.rx, static_cast<std::size_t>(step.fan_in())},
        {fifo_of_peer_.data() + lane.first_tx + step.tx, static_cast<std::size_t>(step.fan_out())},
        lane.repetition == 0,
        lane.repetition + 1 == step.repeat};
    if (step.reads_src()) {
      event.chunk =
          chunk_at(step.chunk, step.stride, lane.repetition, lane.schedule->chunks(step.src));
    }
    if (step.writes_dst()) {
      event.dst_chunk =
          chunk_at(step.dst_chunk, step.stride, lane.repetition, lane.schedule->chunks(step.dst));
    }
    if (observer != nullptr && !observer->on_step(event)) return false;

    for (const std::uint32_t in : event.rx) {
      Fifo& from = fifos_[in];
      if (options_.published) {
        Publication& message = published_[in][static_cast<std::size_t>(from.received)];
        for (std::uint32_t i = 0; i < message.count; ++i) --held_[message.cell + i];
        if (message.count > 0 && from.sender >= 0) {
          wake_rank(lanes_[static_cast<std::size_t>(from.sender)]);
        }
      }
      // Only a sender that had no slot can be waiting.
      if (from.sent - from.received++ >= options_.slots) wake(from.sender);
    }
    // Finished data is sent from memory; a partial result is only in a slot.
    const bool lies = event.tx.size() > 0 && (!step.receives() || step.copies());
    const bool from_dst = step.writes_dst();
    const std::uint32_t source =
        options_.published && lies
            ? layout_->cell(lane.rank, lane.window, from_dst ? step.dst : step.src,
                            from_dst ? event.dst_chunk : event.chunk)
            : 0;
    for (const std::uint32_t out : event.tx) {
      Fifo& to = fifos_[out];
      if (options_.published) {
        const std::uint32_t count = lies ? step.count : 0;
        published_[out].push_back({source, count});
        for (std::uint32_t i = 0; i < count; ++i) ++held_[source + i];
      }
      ++to.sent;
      wake(to.receiver);
    }
    if (++lane.repetition < step.repeat) continue;
    lane.repetition = 0;
    if (++lane.step == static_cast<int>(lane.what->steps.size())) {
      lane.step = 0;
      ++lane.window;
    }
    if (rank_waits_[static_cast<std::size_t>(lane.rank)]) wake_rank(lane);
  }
  return true;
}

Machine::End Machine::run(const MachineOptions& options, MachineObserver* observer) {
  options_ = options;
  queue_.clear();
  for (Fifo& each : fifos_) each.sent = each.received = 0;
  if (options.published) {
    held_.assign(layout_->cells(), 0);
    published_.assign(fifos_.size(), {});
  }
  for (int l = 0; l < lanes(); ++l) {
    LaneState& lane = lanes_[static_cast<std::size_t>(l)];
    lane.step = lane.repetition = 0;
    // A lane without steps has nothing to do in any window.
    lane.window = lane.what->steps.empty() ? options.windows : 0;
    lane.queued = false;
    wake(l);
  }
  // The queue is emptied batch by batch; lanes that are woken meanwhile go into the next batch.
  std::vector<int> batch;
  while (!queue_.empty()) {
    batch.swap(queue_);
    queue_.clear();
    for (const int l : batch) {
      LaneState& lane = lanes_[static_cast<std::size_t>(l)];
      lane.queued = false;
      if (!advance(lane, observer)) return End::kStopped;
    }
  }
  const bool finished = std::all_of(lanes_.begin(), lanes_.end(), [&](const LaneState& lane) {
    return lane.window == options.windows;
  });
  return finished ? End::kFinished : End::kDeadlock;
}

std::string Machine::describe_deadlock(int limit) const {
  std::string text;
  int waiting = 0;
  for (const LaneState& lane : lanes_) {
    if (lane.window == options_.windows) continue;
    if (waiting++ >= limit) continue;
    if (!text.empty()) text += "; ";
    text += describe(*lane.schedule, lane.lane, lane.step, lane.repetition, lane.window);
    const Blocked block = blocked(lane);
    const Step& step = lane.what->steps[static_cast<std::size_t>(lane.step)];
    switch (block.why) {
      case Block::kMessage:
        text += fmt::format(" waits for a message from rank {}", fifos_[block.fifo].from);
        break;
      case Block::kSlot:
        text += fmt::format(" waits for a free slot to rank {}", fifos_[block.fifo].to);
        break;
      case Block::kLane:
        text += fmt::format(" waits for step {} of lane {}", step.rx, step.tx);
        break;
      case Block::kRelease:
        text += " waits until what it overwrites has been received";
        break;
      case Block::kNone:
        text += " could go on";
        break;
    }
  }
  if (waiting > limit) text += fmt::format("; and {} more lanes", waiting - limit);
  return text + ".";
}

std::string ops_name(int ops) {
  std::string name;
  const auto add = [&](int bit, const char* part) {
    if ((ops & bit) == 0) return;
    if (!name.empty()) name += '_';
    name += part;
  };
  add(kRecv, "recv");
  add(kReduce, "reduce");
  add(kCopy, "copy");
  add(kSend, "send");
  add(kWait, "wait");
  return name.empty() ? "nothing" : name;
}

std::string describe(const Schedule& schedule, int lane, int step, int repetition, int window) {
  std::string text = fmt::format("Rank {}, lane {}", schedule.rank, lane);
  if (lane < 0 || lane >= static_cast<int>(schedule.lanes.size())) return text;
  const Lane& where = schedule.lanes[static_cast<std::size_t>(lane)];
  text += fmt::format(" (channel {})", where.channel);
  if (step < 0 || step >= static_cast<int>(where.steps.size())) return text;
  text += fmt::format(", step {} ({})", step,
                      ops_name(where.steps[static_cast<std::size_t>(step)].ops));
  if (repetition >= 0) text += fmt::format(", repetition {}", repetition);
  if (window >= 0) text += fmt::format(", window {}", window);
  return text;
}

} // namespace whorl
