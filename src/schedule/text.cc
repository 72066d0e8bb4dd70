#include "schedule/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "base/printable.h"
#include "schedule/machine.h"

namespace whorl {
namespace {

constexpr std::string_view kBuffers = "ios"; // letters of Buffer

std::string chunks_text(Buffer buffer, int first, int count) {
  const auto index = static_cast<std::size_t>(buffer);
  std::string text(1, index < kBuffers.size() ? kBuffers[index] : '?');
  text += std::to_string(first);
  return count == 1 ? text : text + ".." + std::to_string(first + count - 1);
}

using Peers = std::vector<std::uint32_t>;

/// Returns the index of the first occurrence of `wanted` in `peers`, or the size of `peers`.
std::size_t find_peers(const Peers& peers, std::span<const std::uint32_t> wanted) {
  return static_cast<std::size_t>(
      std::search(peers.begin(), peers.end(), wanted.begin(), wanted.end()) - peers.begin());
}

std::string peers_text(const Peers& peers, int first, int fan) {
  const auto index = static_cast<std::size_t>(first), count = static_cast<std::size_t>(fan);
  if (index + count <= peers.size()) {
    const std::span<const std::uint32_t> ranks(peers.data() + index, count);
    if (find_peers(peers, ranks) == index) return fmt::format("{}", fmt::join(ranks, ","));
  }
  return fmt::format("#{}+{}", first, fan);
}

/// Reader of one line, word by word. Keeps the first error, which ends everything.
class LineReader {
 public:
  LineReader(std::string_view line, int number) : line_(line), number_(number) { next(); }

  bool ok() const { return error_.empty(); }
  bool done() const { return word_.empty(); }
  const std::string& error() const { return error_; }
  std::string_view word() const { return word_; }
  void next() {
    const auto begin = std::min(line_.find_first_not_of(" \t\r"), line_.size());
    line_.remove_prefix(begin);
    const auto end = std::min(line_.find_first_of(" \t\r"), line_.size());
    word_ = line_.substr(0, end);
    line_.remove_prefix(end);
  }
  void fail(std::string_view field, const std::string& what) {
    if (ok()) error_ = fmt::format("Line {}, {}: {}.", number_, field, printable(what));
  }
  /// Takes `prefix` off the front of the word. Returns whether it was there.
  bool take(std::string_view prefix) {
    if (!word_.starts_with(prefix)) return false;
    word_.remove_prefix(prefix.size());
    return true;
  }
  /// Takes a number off the front of the word.
  template <class T>
  T number(std::string_view field, int smallest = 0) {
    int value = 0;
    const auto [end, error] = std::from_chars(word_.data(), word_.data() + word_.size(), value);
    if (error != std::errc() || value < smallest ||
        value > static_cast<std::int64_t>(std::numeric_limits<T>::max())) {
      fail(field, fmt::format("there is no number from {} to {} in \"{}\"", smallest,
                              std::min<std::int64_t>(std::numeric_limits<T>::max(),
                                                     std::numeric_limits<int>::max()),
                              word_));
      return T{};
    }
    word_.remove_prefix(static_cast<std::size_t>(end - word_.data()));
    return static_cast<T>(value);
  }
  template <class T>
  std::vector<T> numbers(std::string_view field) {
    std::vector<T> values;
    do {
      values.push_back(number<T>(field));
    } while (ok() && take(","));
    return values;
  }
  /// Checks that the next word is `expected`, and takes it.
  void expect(std::string_view expected) {
    if (word_ == expected) return next();
    fail(expected, fmt::format("expected here, not \"{}\"", word_));
  }
  /// Checks that the word is used up, and goes to the next one.
  void end_word(std::string_view field) {
    if (!word_.empty()) fail(field, fmt::format("\"{}\" does not belong there", word_));
    next();
  }

 private:
  std::string_view line_, word_;
  int number_;
  std::string error_;
};

void read_peers(LineReader& in, const Lane& lane, std::string_view field, std::uint8_t& index,
                std::uint8_t& fan) {
  if (in.take("#")) {
    index = in.number<std::uint8_t>(field);
    if (in.take("+")) fan = in.number<std::uint8_t>(field, 1);
  } else {
    const auto ranks = in.numbers<std::uint32_t>(field);
    const std::size_t first = find_peers(lane.peers, ranks);
    if (first == lane.peers.size() || first > std::numeric_limits<std::uint8_t>::max() ||
        ranks.size() > std::numeric_limits<std::uint8_t>::max()) {
      return in.fail(field,
                     fmt::format("{} are no consecutive peers of the lane", fmt::join(ranks, ",")));
    }
    index = static_cast<std::uint8_t>(first);
    fan = static_cast<std::uint8_t>(std::max<std::size_t>(fan, ranks.size()));
  }
  in.end_word(field);
}

/// Reads a range of chunks. Count 0 means that none is known yet.
void read_chunks(LineReader& in, std::string_view field, Buffer& buffer, std::uint16_t& chunk,
                 int& count) {
  const std::size_t letter = in.done() ? kBuffers.npos : kBuffers.find(in.word().front());
  if (letter == kBuffers.npos) {
    return in.fail(field, fmt::format("\"{}\" is no chunk of i, o or s", in.word()));
  }
  in.take(in.word().substr(0, 1));
  buffer = static_cast<Buffer>(letter);
  chunk = in.number<std::uint16_t>(field);
  const int found = in.take("..") ? in.number<std::uint16_t>(field, chunk) - chunk + 1 : 1;
  if (in.ok() && count != 0 && count != found) {
    in.fail(field, fmt::format("has {} chunks, the source {}", found, count));
  }
  count = found;
  in.end_word(field);
}

Step read_step(LineReader& in, const Lane& lane) {
  Step step;
  const int ops = ops_from_name(in.word());
  if (ops < 0) {
    in.fail("operations", fmt::format("there is no \"{}\"", in.word()));
    return step;
  }
  step.ops = static_cast<std::uint8_t>(ops);
  in.next();
  if (step.waits()) {
    in.expect("lane");
    step.tx = in.number<std::uint8_t>("lane");
    in.end_word("lane");
    in.expect("step");
    step.rx = in.number<std::uint8_t>("step");
    in.end_word("step");
    return step;
  }
  int count = 0;
  if (step.receives()) {
    if (!in.take("<")) in.fail("<", "the ranks to receive from are missing");
    read_peers(in, lane, "<", step.rx, step.fan);
  }
  if (in.ok() && step.reads_src()) read_chunks(in, "source", step.src, step.chunk, count);
  if (in.ok() && step.writes_dst()) {
    in.expect("->");
    if (in.ok()) read_chunks(in, "target", step.dst, step.dst_chunk, count);
  }
  if (in.ok() && step.sends()) {
    if (!in.take(">")) in.fail(">", "the ranks to send to are missing");
    read_peers(in, lane, ">", step.tx, step.fan);
  }
  step.count = static_cast<std::uint16_t>(std::max(count, 1));
  if (in.ok() && in.take("x")) {
    step.repeat = in.number<std::uint16_t>("repeat", 1);
    in.end_word("repeat");
    in.expect("by");
    if (in.ok()) {
      step.stride = in.number<std::int16_t>("stride", std::numeric_limits<std::int16_t>::min());
      in.end_word("stride");
    }
  }
  if (in.ok() && in.word() == "final") {
    step.ops |= kFinal;
    in.next();
  }
  return step;
}

Schedule read_schedule(LineReader& in) {
  Schedule schedule;
  while (in.ok() && !in.done()) {
    if (in.take("rank=")) {
      schedule.rank = in.number<int>("rank");
      if (!in.take("/")) in.fail("rank", "the number of ranks is missing");
      schedule.nranks = in.number<int>("rank", 1);
    } else if (in.take("chunks_per_block=")) {
      schedule.chunks_per_block = in.number<std::uint16_t>("chunks_per_block", 1);
    } else if (in.take("input=")) {
      schedule.input_chunks = in.number<std::uint16_t>("input");
    } else if (in.take("output=")) {
      schedule.output_chunks = in.number<std::uint16_t>("output");
    } else if (in.take("message_chunks=")) {
      schedule.message_chunks = in.number<std::uint16_t>("message_chunks", 1);
    } else if (in.take("min_slots=")) {
      schedule.min_slots = in.number<std::uint8_t>("min_slots", 1);
    } else if (in.take("scratch=")) {
      schedule.scratch = in.numbers<std::uint16_t>("scratch");
    } else {
      in.fail("schedule", fmt::format("there is no field \"{}\"", in.word()));
    }
    in.end_word("schedule");
  }
  return schedule;
}

Lane read_lane(LineReader& in) {
  Lane lane;
  while (in.ok() && !in.done()) {
    if (in.take("channel=")) {
      lane.channel = in.number<std::uint16_t>("channel");
    } else if (in.take("peers=")) {
      lane.peers = in.numbers<std::uint32_t>("peers");
    } else {
      in.fail("lane", fmt::format("there is no field \"{}\"", in.word()));
    }
    in.end_word("lane");
  }
  return lane;
}

} // namespace

int ops_from_name(std::string_view name) noexcept {
  constexpr std::pair<std::string_view, int> kOps[] = {
      {"recv", kRecv}, {"reduce", kReduce}, {"copy", kCopy}, {"send", kSend}, {"wait", kWait}};
  int ops = 0;
  while (true) {
    const std::string_view part = name.substr(0, name.find('_'));
    const auto* const found =
        std::find_if(std::begin(kOps), std::end(kOps), [&](auto& op) { return op.first == part; });
    // The names must come in the order of the bits.
    if (found == std::end(kOps) || ops >= found->second) return -1;
    ops |= found->second;
    if (part.size() == name.size()) return ops;
    name.remove_prefix(part.size() + 1);
  }
}

std::string to_text(const Lane& lane, const Step& step) {
  std::string text = ops_name(step.ops);
  if (step.waits()) return text + fmt::format(" lane {} step {}", step.tx, step.rx);
  if (step.receives()) text += " <" + peers_text(lane.peers, step.rx, step.fan_in());
  if (step.reads_src()) text += " " + chunks_text(step.src, step.chunk, step.count);
  if (step.writes_dst()) text += " -> " + chunks_text(step.dst, step.dst_chunk, step.count);
  if (step.sends()) text += " >" + peers_text(lane.peers, step.tx, step.fan_out());
  if (step.repeat != 1) text += fmt::format(" x{} by {}", step.repeat, step.stride);
  if (step.final()) text += " final";
  return text;
}

std::string to_text(const Schedule& schedule) {
  std::string text = fmt::format(
      "schedule rank={}/{} chunks_per_block={} input={} output={} message_chunks={} min_slots={}",
      schedule.rank, schedule.nranks, schedule.chunks_per_block, schedule.input_chunks,
      schedule.output_chunks, schedule.message_chunks, schedule.min_slots);
  if (!schedule.scratch.empty()) {
    text += fmt::format(" scratch={}", fmt::join(schedule.scratch, ","));
  }
  text += '\n';
  for (const Lane& lane : schedule.lanes) {
    text += fmt::format("lane channel={}", lane.channel);
    if (!lane.peers.empty()) text += fmt::format(" peers={}", fmt::join(lane.peers, ","));
    text += '\n';
    for (const Step& step : lane.steps) text += "  " + to_text(lane, step) + '\n';
  }
  return text;
}

std::string to_text(std::span<const Schedule> schedules) {
  std::string text;
  for (const Schedule& schedule : schedules) text += to_text(schedule);
  return text;
}

Result<std::vector<Schedule>> schedules_from_text(std::string_view text) {
  std::vector<Schedule> schedules;
  for (int number = 1; !text.empty(); ++number) {
    const auto length = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, length);
    text.remove_prefix(std::min(length + 1, text.size()));
    line = line.substr(0, line.find(';'));
    LineReader in(line, number);
    if (in.done()) continue;
    if (in.word() == "schedule") {
      in.next();
      schedules.push_back(read_schedule(in));
    } else if (schedules.empty()) {
      in.fail("schedule", "expected first");
    } else if (in.word() == "lane") {
      in.next();
      schedules.back().lanes.push_back(read_lane(in));
    } else if (schedules.back().lanes.empty()) {
      in.fail("lane", "expected before the steps");
    } else {
      Lane& lane = schedules.back().lanes.back();
      lane.steps.push_back(read_step(in, lane));
      if (!in.done()) in.fail("step", fmt::format("\"{}\" does not belong there", in.word()));
    }
    if (!in.ok()) return Status::error(Code::kInvalidArgument, in.error());
  }
  return schedules;
}

} // namespace whorl
