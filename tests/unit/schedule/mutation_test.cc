// Mutation test of the verifier: every field of every step of every small schedule is changed to
// every plausible other value. verify() must refuse the mutant, or the mutant must do exactly what
// the original does.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "algorithms/algorithm.h"
#include "schedule/machine.h"
#include "schedule/symbolic.h"
#include "schedule/text.h"
#include "schedule/verify.h"
#include "unit/schedule/handmade.h"

namespace whorl {
namespace {

using Schedules = std::vector<Schedule>;

/// Observable behaviour of an execution: the contents of every message of every FIFO, and the final
/// output. Two accepted schedules with equal behaviour are the same program: they differ in the
/// order of independent steps or in which of several copies of a value a rank reads.
struct Behaviour {
  struct Message {
    int chunks;
    std::vector<Value> values;
    friend bool operator==(const Message&, const Message&) = default;
  };
  std::map<std::tuple<int, int, int>, std::vector<Message>> messages; // key: from, to, channel
  std::vector<Value> output;                                          // outputs of all ranks
  friend bool operator==(const Behaviour&, const Behaviour&) = default;
};

Behaviour behaviour_of(const Schedules& schedules, const CollectiveSpec& spec) {
  const ChunkLayout layout(schedules, spec, 1);
  Machine machine(schedules, &layout);
  SymbolicData data(schedules, machine, layout, spec, {.keep_messages = true});
  EXPECT_EQ(machine.run({}, &data), Machine::End::kFinished);
  Behaviour behaviour;
  for (std::size_t f = 0; f < machine.fifos().size(); ++f) {
    const Machine::Fifo& fifo = machine.fifos()[f];
    const SymbolicData::Messages& sent = data.messages()[f];
    auto at = sent.values.begin();
    for (const auto& header : sent.headers) {
      behaviour.messages[{fifo.from, fifo.to, fifo.channel}].push_back(
          {header.count, std::vector<Value>(at, at + header.count)});
      at += header.count;
    }
  }
  for (const Schedule& schedule : schedules) {
    for (int c = 0; c < schedule.output_chunks; ++c) {
      behaviour.output.push_back(data.value(schedule.rank, 0, Buffer::kOutput, c));
    }
  }
  return behaviour;
}

struct Tally {
  int mutants = 0, refused = 0, equivalent = 0;
};

/// Tries one mutant. It counts as refused if any way to run it is refused: apart, in place, or
/// published.
void judge(const Schedules& mutant, const CollectiveSpec& spec, const Behaviour& original,
           const std::function<std::string()>& what, Tally& tally) {
  ++tally.mutants;
  for (const bool in_place : {false, true}) {
    if (in_place &&
        (spec.collective == Collective::kAllToAll || spec.collective == Collective::kSend ||
         spec.collective == Collective::kRecv)) {
      continue;
    }
    CollectiveSpec mode = spec;
    mode.in_place = in_place;
    if (!verify(mutant, mode, {.published = in_place}).ok()) {
      ++tally.refused;
      return;
    }
  }
  ++tally.equivalent;
  EXPECT_TRUE(behaviour_of(mutant, spec) == original)
      << what() << " is accepted, but is another program:\n"
      << to_text(mutant);
}

/// Returns the steps with one field changed to any other value that is tried.
std::vector<Step> mutations(const Step& step) {
  std::vector<Step> all;
  const auto add = [&](const auto& change) {
    Step mutant = step;
    change(mutant);
    if (!(mutant == step)) all.push_back(mutant);
  };
  for (int ops = 0; ops < 64; ++ops) {
    add([&](Step& s) { s.ops = static_cast<std::uint8_t>(ops); });
  }
  for (int buffer = 0; buffer < 4; ++buffer) {
    add([&](Step& s) { s.src = static_cast<Buffer>(buffer); });
    add([&](Step& s) { s.dst = static_cast<Buffer>(buffer); });
  }
  for (const int by : {-2, -1, 1, 2}) {
    const auto moved = [by]<class T>(T& field) { field = static_cast<T>(field + by); };
    add([&](Step& s) { moved(s.fan); });
    add([&](Step& s) { moved(s.tx); });
    add([&](Step& s) { moved(s.rx); });
    add([&](Step& s) { moved(s.chunk); });
    add([&](Step& s) { moved(s.dst_chunk); });
    add([&](Step& s) { moved(s.stride); });
    add([&](Step& s) { moved(s.count); });
    if (step.repeat + by >= 0) add([&](Step& s) { moved(s.repeat); }); // not 65,535 times
  }
  add([](Step& s) { s.stride = static_cast<std::int16_t>(-s.stride); });
  return all;
}

void mutate(const std::string& name, const Schedules& good, const CollectiveSpec& spec,
            Tally& tally) {
  ASSERT_TRUE(verify(good, spec).ok()) << name;
  const Behaviour original = behaviour_of(good, spec);
  Schedules mutant = good;
  for (std::size_t r = 0; r < good.size(); ++r) {
    const auto judge_rank = [&](std::size_t lane, std::size_t step, const char* what) {
      judge(
          mutant, spec, original,
          [&] {
            return fmt::format("{}: rank {}, lane {}, step {}: {}", name, r, lane, step, what);
          },
          tally);
      mutant[r] = good[r];
    };
    Schedule& schedule = mutant[r];
    for (std::size_t l = 0; l < good[r].lanes.size(); ++l) {
      const Lane& lane = good[r].lanes[l];
      for (std::size_t s = 0; s < lane.steps.size(); ++s) {
        for (const Step& step : mutations(lane.steps[s])) {
          schedule.lanes[l].steps[s] = step;
          judge_rank(l, s, "a field is changed");
        }
        auto& steps = schedule.lanes[l].steps;
        steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(s));
        judge_rank(l, s, "it is dropped");
        schedule.lanes[l].steps.insert(
            schedule.lanes[l].steps.begin() + static_cast<std::ptrdiff_t>(s), lane.steps[s]);
        judge_rank(l, s, "it is doubled");
        if (s + 1 < lane.steps.size()) {
          std::swap(schedule.lanes[l].steps[s], schedule.lanes[l].steps[s + 1]);
          judge_rank(l, s, "it is swapped with the next");
        }
      }
      for (std::size_t p = 0; p < lane.peers.size(); ++p) {
        for (std::uint32_t peer = 0; peer <= good.size(); ++peer) {
          if (peer == lane.peers[p]) continue;
          schedule.lanes[l].peers[p] = peer;
          judge_rank(l, p, "a peer is changed");
        }
      }
      ++schedule.lanes[l].channel;
      judge_rank(l, 0, "the channel is changed");
      schedule.lanes.erase(schedule.lanes.begin() + static_cast<std::ptrdiff_t>(l));
      judge_rank(l, 0, "the lane is dropped");
    }
    for (std::size_t i = 0; i < good[r].scratch.size(); ++i) {
      ++schedule.scratch[i];
      judge_rank(0, i, "scratch holds another chunk");
    }
    for (auto field : {&Schedule::chunks_per_block, &Schedule::input_chunks,
                       &Schedule::output_chunks, &Schedule::message_chunks}) {
      ++(schedule.*field);
      judge_rank(0, 0, "a size is increased");
      --(schedule.*field);
      --(schedule.*field);
      judge_rank(0, 0, "a size is decreased");
    }
  }
}

TEST(Mutation, EveryMutantOfHandmadeSchedulesIsFound) {
  Tally tally;
  for (const int n : {2, 3, 4}) {
    for (const handmade::Named& named : handmade::all(n)) {
      mutate(fmt::format("{} of {}", named.name, n), named.schedules, named.spec, tally);
    }
  }
  EXPECT_GT(tally.refused, 20 * tally.equivalent);
  RecordProperty("mutants", tally.mutants);
  RecordProperty("equivalent", tally.equivalent);
}

TEST(Mutation, EveryMutantOfEveryAlgorithmIsFound) {
  Tally tally;
  for (const Algorithm& algorithm : all_algorithms()) {
    for (const int n : {2, 3, 4}) {
      Shape shape;
      shape.nranks = n;
      if (has_root(algorithm.collective)) shape.root = n - 1;
      shape.channels = n == 2 ? 2 : 1;
      if (n == 3) shape.groups = {2, 1};
      if (n == 4) shape.dims = {{2, ""}, {2, ""}};
      if (!algorithm.supports(shape)) continue;
      mutate(fmt::format("{} {} of {}", name_of(algorithm.collective), algorithm.name, n),
             build_all(algorithm, shape), {algorithm.collective, shape.root}, tally);
    }
  }
  EXPECT_GT(tally.mutants, 10000);
  EXPECT_GT(tally.refused, 20 * tally.equivalent);
  RecordProperty("mutants", tally.mutants);
  RecordProperty("equivalent", tally.equivalent);
}

} // namespace
} // namespace whorl
