#include "schedule/symbolic.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

namespace whorl {
namespace {

const char* name_of(Buffer buffer) {
  constexpr const char* kNames[] = {"input", "output", "scratch"};
  return kNames[static_cast<std::size_t>(buffer)];
}

} // namespace

RankSets::RankSets(int nranks)
    : nranks_(nranks), small_(nranks <= 64), words_((static_cast<std::size_t>(nranks) + 63) / 64) {
  if (small_) {
    all_ = ~Set{0} >> (64 - nranks);
    return;
  }
  std::vector<std::uint64_t> set(words_, 0);
  for (std::size_t r = 0; r < static_cast<std::size_t>(nranks); ++r) {
    set[r / 64] = std::uint64_t{1} << (r % 64);
    store(set); // gets the number r
    set[r / 64] = 0;
  }
  for (std::size_t r = 0; r < static_cast<std::size_t>(nranks); ++r) {
    set[r / 64] |= std::uint64_t{1} << (r % 64);
  }
  all_ = store(set);
}

RankSets::Set RankSets::store(const std::vector<std::uint64_t>& set) {
  std::uint64_t hash = 0;
  for (const std::uint64_t word : set) hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL ^ (hash >> 29);
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (std::equal(set.begin(), set.end(), bits(it->second))) return it->second;
  }
  const Set number = stored_.size() / words_;
  stored_.insert(stored_.end(), set.begin(), set.end());
  by_hash_.emplace(hash, number);
  return number;
}

bool RankSets::unite_large(Set a, Set b, Set* both) {
  constexpr Set kOverlap = ~Set{0};
  const auto [entry, added] = unions_.try_emplace(std::min(a, b) << 32 | std::max(a, b), kOverlap);
  if (added) {
    std::vector<std::uint64_t> set(bits(a), bits(a) + words_);
    bool overlap = false;
    for (std::size_t w = 0; w < words_; ++w) {
      overlap |= (set[w] & bits(b)[w]) != 0;
      set[w] |= bits(b)[w];
    }
    if (!overlap) entry->second = store(set);
  }
  *both = entry->second;
  return entry->second != kOverlap;
}

std::pair<int, int> RankSets::summary(Set set) const {
  const std::uint64_t* const begin = small_ ? &set : bits(set);
  int count = 0, lowest = -1;
  for (std::size_t w = 0; w < words_; ++w) {
    if (count == 0 && begin[w] != 0) {
      lowest = static_cast<int>(64 * w) + std::countr_zero(begin[w]);
    }
    count += std::popcount(begin[w]);
  }
  return {count, lowest};
}

std::string RankSets::text(Set set) const {
  std::string text;
  for (int r = 0; r < nranks_; ++r) {
    const auto index = static_cast<std::size_t>(r);
    const std::uint64_t word = small_ ? set : bits(set)[index / 64];
    if ((word >> (index % 64) & 1) == 0) continue;
    if (!text.empty()) text += ", ";
    text += std::to_string(r);
  }
  return text;
}

SymbolicData::SymbolicData(std::span<const Schedule> schedules, const Machine& machine,
                           const ChunkLayout& layout, const CollectiveSpec& spec,
                           const Options& options)
    : schedules_(schedules),
      machine_(machine),
      layout_(layout),
      spec_(spec),
      options_(options),
      sets_(static_cast<int>(schedules.size())),
      access_(schedules, layout, options.windows,
              options.placed ? AccessOrder::Domain::kAllRanks : AccessOrder::Domain::kRank),
      cells_(layout.cells()),
      messages_(machine.fifos().size()),
      depth_(static_cast<std::size_t>(machine.lanes()), 0),
      sent_chunks_(schedules.size(), 0) {
  if (options.placed) placement_.emplace(schedules, machine);
  for (const Schedule& schedule : schedules) {
    for (int w = 0; w < options.windows; ++w) {
      for (int c = 0; c < schedule.input_chunks; ++c) {
        cells_[layout.cell(schedule.rank, w, Buffer::kInput, c)] = {sets_.single(schedule.rank),
                                                                    static_cast<std::uint32_t>(c)};
      }
    }
  }
}

bool SymbolicData::fail(const StepEvent& event, const std::string& what) {
  error_ = describe(schedules_[static_cast<std::size_t>(event.rank)], event.lane, event.step,
                    event.repetition, event.window) +
           ": " + what + ".";
  return false;
}

std::string SymbolicData::text(const Value& value) const {
  if (value.tag == Value::kUnwritten) return "nothing";
  return fmt::format("chunk {} of ranks {{{}}}", value.tag, sets_.text(value.from));
}

bool SymbolicData::combine(const StepEvent& event, Value& value, const Value& other) {
  if (value.tag != other.tag) {
    return fail(event, "it combines " + text(value) + " with " + text(other));
  }
  RankSets::Set both = 0;
  if (!sets_.unite(value.from, other.from, &both)) {
    return fail(event, "it counts a rank twice: " + text(value) + " and " + text(other));
  }
  value.from = both;
  return true;
}

/// Takes the headers of the messages that the step receives; their values are read later.
bool SymbolicData::receive_headers(const StepEvent& event) {
  for (const std::uint32_t in : event.rx) {
    Messages& from = messages_[in];
    const Messages::Header header = from.headers[from.next_header++];
    const int sender = machine_.fifos()[in].from;
    if (header.count != event.what->count) {
      return fail(event, fmt::format("it expects {} chunks, and rank {} sent {}", event.what->count,
                                     sender, header.count));
    }
    if (header.window != event.window) {
      return fail(event, fmt::format("it receives a message that rank {} sent in window {}", sender,
                                     header.window));
    }
    auto& depth = depth_[static_cast<std::size_t>(event.global_lane)];
    depth = std::max(depth, header.depth);
    access_.receive(event, in);
    if (header.source == kCopied) continue;
    for (std::uint32_t i = 0; i < header.count; ++i) {
      const int lane = access_.peek(event, header.source + i);
      if (lane < 0) continue;
      return fail(event, fmt::format("rank {} published chunk {} of this message, and lane {} of "
                                     "all ranks writes it with nothing that orders the two",
                                     sender, i, lane));
    }
  }
  return true;
}

bool SymbolicData::conflict(const StepEvent& event, Buffer buffer, int chunk, int lane) {
  const int own = lane - (event.global_lane - event.lane);
  const auto lanes =
      static_cast<int>(schedules_[static_cast<std::size_t>(event.rank)].lanes.size());
  if (own < 0 || own >= lanes) {
    return fail(event, fmt::format("lane {} of all ranks, on another rank, touches {} chunk {} "
                                   "too, and nothing orders the two",
                                   lane, name_of(buffer), chunk));
  }
  return fail(event, fmt::format("lane {} touches {} chunk {} too, and no wait orders the two", own,
                                 name_of(buffer), chunk));
}

/// Notes that the step writes its message directly to the receiver's output, if it may.
bool SymbolicData::place(const StepEvent& event, std::uint32_t fifo) {
  const Placement::Place place = placement_->next(fifo);
  if (place.count != event.what->count || place.window != event.window) return true; // fails later
  for (int i = 0; i < place.count; ++i) {
    const int chunk = place.chunk + i;
    const int lane =
        access_.place(event, layout_.cell(place.rank, place.window, Buffer::kOutput, chunk));
    if (lane < 0) continue;
    return fail(event, fmt::format("it places output chunk {} of rank {}, which lane {} of all "
                                   "ranks touches, too, and nothing orders the two",
                                   chunk, place.rank, lane));
  }
  return true;
}

/// Puts the header of a message of the step into a FIFO; its values are there already.
void SymbolicData::send_header(const StepEvent& event, std::uint32_t fifo, std::int32_t depth) {
  const Step& step = *event.what;
  // Finished data is in memory; a partial result is in the message only.
  const bool lies = !step.receives() || step.copies();
  const bool from_dst = step.writes_dst();
  const std::uint32_t source =
      options_.published && options_.placed && lies
          ? layout_.cell(event.rank, event.window, from_dst ? step.dst : step.src,
                         from_dst ? event.dst_chunk : event.chunk)
          : kCopied;
  messages_[fifo].headers.push_back(
      {step.count, static_cast<std::uint16_t>(event.window), depth, source});
  access_.send(event, fifo);
}

/// Moves number `index` of the chunks that the step moves at once.
bool SymbolicData::move_chunk(const StepEvent& event, int index) {
  const Step& step = *event.what;
  const Schedule& schedule = schedules_[static_cast<std::size_t>(event.rank)];
  Value value;
  bool have = false;
  if (step.reads_src()) {
    const int chunk = event.chunk + index;
    const std::uint32_t cell = layout_.cell(event.rank, event.window, step.src, chunk);
    value = cells_[cell];
    have = true;
    if (value.tag == Value::kUnwritten) {
      return fail(event, fmt::format("it reads {} chunk {}, which nothing was written to",
                                     name_of(step.src), chunk));
    }
    if (const int lane = access_.read(event, cell); lane >= 0) {
      return conflict(event, step.src, chunk, lane);
    }
  }
  for (const std::uint32_t in : event.rx) {
    const Messages& from = messages_[in];
    const Value& received = from.values[from.next_value + static_cast<std::size_t>(index)];
    if (!have) {
      value = received;
      have = true;
    } else if (!combine(event, value, received)) {
      return false;
    }
  }
  if (step.writes_dst()) {
    const int chunk = event.dst_chunk + index;
    const std::uint32_t cell = layout_.cell(event.rank, event.window, step.dst, chunk);
    if (step.reduces() && !step.receives()) {
      if (cells_[cell].tag == Value::kUnwritten) {
        return fail(event, fmt::format("it reduces into {} chunk {}, which nothing was written to",
                                       name_of(step.dst), chunk));
      }
      if (!combine(event, value, cells_[cell])) return false;
    }
    const auto in_block = [&](std::uint32_t c) { return c % schedule.chunks_per_block; };
    const auto position = static_cast<std::uint32_t>(
        step.dst == Buffer::kScratch ? schedule.scratch[static_cast<std::size_t>(chunk)] : chunk);
    if (in_block(value.tag) != in_block(position)) {
      return fail(event, fmt::format("it puts {} into {} chunk {}, which has the size of chunk {}",
                                     text(value), name_of(step.dst), chunk, in_block(position)));
    }
    if (const int lane = access_.write(event, cell); lane >= 0) {
      return conflict(event, step.dst, chunk, lane);
    }
    cells_[cell] = value;
  }
  if (step.reduces() && (value.from == sets_.all()) != step.final()) {
    return fail(event, (step.final() ? "it is marked as final, but makes " : "it makes ") +
                           text(value) + (step.final() ? "" : " and is not marked as final"));
  }
  for (const std::uint32_t out : event.tx) messages_[out].values.push_back(value);
  return true;
}

bool SymbolicData::on_step(const StepEvent& event) {
  const Step& step = *event.what;
  std::int32_t& depth = depth_[static_cast<std::size_t>(event.global_lane)];
  if (step.waits()) {
    depth = std::max(depth, access_.take(event));
    access_.finish(event, depth);
    return true;
  }
  if (!receive_headers(event)) return false;
  if (step.reads_src() && step.writes_dst()) {
    const auto src =
        static_cast<std::int64_t>(layout_.cell(event.rank, event.window, step.src, event.chunk));
    const auto dst = static_cast<std::int64_t>(
        layout_.cell(event.rank, event.window, step.dst, event.dst_chunk));
    if (src == dst && step.ops == kCopy) { // in place: nothing to do
      access_.finish(event, depth);
      return true;
    }
    if (src != dst && std::abs(src - dst) < step.count) {
      return fail(event, "its source and its target overlap in part");
    }
  }
  for (int i = 0; i < step.count; ++i) {
    if (!move_chunk(event, i)) return false;
  }
  for (const std::uint32_t out : event.tx) {
    if (placement_ && !place(event, out)) return false;
  }
  for (const std::uint32_t in : event.rx) {
    Messages& from = messages_[in];
    from.next_value += step.count;
    if (from.next_header == from.headers.size() && !options_.keep_messages) {
      from.headers.clear();
      from.values.clear();
      from.next_header = from.next_value = 0;
    }
  }
  for (const std::uint32_t out : event.tx) send_header(event, out, depth + 1);
  if (event.window == 0 && !event.tx.empty()) {
    const int sent = static_cast<int>(event.tx.size());
    message_count_ += sent;
    sent_chunks_[static_cast<std::size_t>(event.rank)] += sent * step.count;
    rounds_ = std::max(rounds_, depth + 1);
  }
  access_.finish(event, depth);
  return true;
}

Value SymbolicData::expected(int rank, int chunk) const {
  const int per_block = schedules_[0].chunks_per_block;
  const auto own = static_cast<std::uint32_t>(rank * per_block + chunk % per_block);
  const auto index = static_cast<std::uint32_t>(chunk % per_block);
  const int block = chunk / per_block;
  switch (spec_.collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kBarrier:
      return {sets_.all(), static_cast<std::uint32_t>(chunk)};
    case Collective::kReduceScatter:
      return {sets_.all(), own};
    case Collective::kAllGather:
    case Collective::kGather:
      return {sets_.single(block), index};
    case Collective::kAllToAll:
      return {sets_.single(block), own};
    case Collective::kScatter:
      return {sets_.single(spec_.root), own};
    case Collective::kBroadcast:
    case Collective::kSend:
    case Collective::kRecv:
      break;
  }
  return {sets_.single(spec_.root), static_cast<std::uint32_t>(chunk)};
}

std::string SymbolicData::check_result() const {
  for (const Machine::Fifo& fifo : machine_.fifos()) {
    if (fifo.sent == fifo.received) continue;
    return fmt::format("Rank {} sends {} messages to rank {} on channel {} that no step receives.",
                       fifo.from, fifo.sent - fifo.received, fifo.to, fifo.channel);
  }
  for (const Schedule& schedule : schedules_) {
    for (int w = 0; w < options_.windows; ++w) {
      for (int c = 0; c < schedule.output_chunks; ++c) {
        const Value& got = value(schedule.rank, w, Buffer::kOutput, c);
        const Value want = expected(schedule.rank, c);
        if (got == want) continue;
        return fmt::format("Rank {}: output chunk {} (window {}) has {} in the end, not {}.",
                           schedule.rank, c, w, text(got), text(want));
      }
    }
  }
  return {};
}

int SymbolicData::max_sent_chunks() const {
  return *std::max_element(sent_chunks_.begin(), sent_chunks_.end());
}

} // namespace whorl
