#include "schedule/simulate.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "schedule/check.h"
#include "schedule/machine.h"
#include "schedule/symbolic.h"

namespace whorl {
namespace {

/// Observer that gives every step of a Machine the earliest time that its dependencies allow.
class Clock : public MachineObserver {
 public:
  Clock(std::span<const Schedule> schedules, const Machine& machine, SymbolicData& data,
        const SimulationCosts& costs)
      : machine_(machine), data_(data), costs_(costs), fifos_(machine.fifos().size()) {
    for (const Schedule& schedule : schedules) {
      first_lane_.push_back(static_cast<int>(lanes_.size()));
      for (const Lane& lane : schedule.lanes) lanes_.push_back({0, {}, lane.steps.size()});
    }
    for (LaneTime& lane : lanes_) lane.finished.resize(lane.steps);
  }

  bool on_step(const StepEvent& event) override {
    if (!data_.on_step(event)) return false;
    LaneTime& lane = lanes_[static_cast<std::size_t>(event.global_lane)];
    double now = lane.now;
    if (event.what->waits()) {
      const int other = first_lane_[static_cast<std::size_t>(event.rank)] + event.what->tx;
      now = std::max(now, lanes_[static_cast<std::size_t>(other)].finished[event.what->rx]);
    }
    for (const std::uint32_t in : event.rx) {
      now = std::max(now, fifos_[in].arrivals[fifos_[in].releases.size()]);
    }
    for (const std::uint32_t out : event.tx) {
      const FifoTime& fifo = fifos_[out];
      const auto slots = static_cast<std::size_t>(costs_.slots);
      if (slots > 0 && fifo.arrivals.size() >= slots) {
        now = std::max(now, fifo.releases[fifo.arrivals.size() - slots]);
      }
    }
    for (const std::uint32_t in : event.rx) fifos_[in].releases.push_back(now);
    for (const std::uint32_t out : event.tx) send(out, now, event.what->count);
    lane.now = now;
    if (event.last) lane.finished[static_cast<std::size_t>(event.step)] = now;
    return true;
  }

  Simulation result() && {
    auto& messages = simulation_.messages;
    std::stable_sort(messages.begin(), messages.end(), [](const auto& a, const auto& b) {
      return std::tie(a.sent, a.from, a.to) < std::tie(b.sent, b.from, b.to);
    });
    return std::move(simulation_);
  }

 private:
  struct LaneTime {
    double now;
    std::vector<double> finished; ///< finishing time of each step
    std::size_t steps;
  };
  struct FifoTime {
    std::vector<double> arrivals, releases; ///< times of each message
  };

  void send(std::uint32_t out, double now, int count) {
    FifoTime& fifo = fifos_[out];
    const double sent = fifo.arrivals.empty() ? now : std::max(now, fifo.arrivals.back());
    const double received = sent + costs_.message + costs_.chunk * count;
    fifo.arrivals.push_back(received);
    simulation_.end = std::max(simulation_.end, received);
    const Machine::Fifo& ends = machine_.fifos()[out];
    const auto& values = data_.messages()[out].values;
    const Value& first = values[values.size() - static_cast<std::size_t>(count)];
    const auto [contributions, source] = data_.sets().summary(first.from);
    simulation_.messages.push_back({ends.from, ends.to, ends.channel, sent, received, first.tag,
                                    count, contributions, source});
  }

  const Machine& machine_;
  SymbolicData& data_;
  SimulationCosts costs_;
  std::vector<FifoTime> fifos_;
  std::vector<LaneTime> lanes_;
  std::vector<int> first_lane_; ///< global number of each rank's lane 0
  Simulation simulation_;
};

} // namespace

Result<Simulation> simulate(std::span<const Schedule> schedules, const CollectiveSpec& spec,
                            const SimulationCosts& costs) {
  WHORL_TRY(check_fields(schedules, spec));
  const ChunkLayout layout(schedules, spec, 1);
  Machine machine(schedules, &layout);
  SymbolicData data(schedules, machine, layout, spec, {.keep_messages = true});
  Clock clock(schedules, machine, data, costs);
  MachineOptions run;
  if (costs.slots > 0) run.slots = costs.slots;
  switch (machine.run(run, &clock)) {
    case Machine::End::kStopped:
      return Status::error(Code::kInternalError, data.error());
    case Machine::End::kDeadlock:
      return Status::error(Code::kInternalError, "Deadlock: " + machine.describe_deadlock(8));
    case Machine::End::kFinished:
      break;
  }
  return std::move(clock).result();
}

} // namespace whorl
