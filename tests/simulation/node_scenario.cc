// Ranks of one host, some of which share a process, meet over a unix socket, and get memory, heaps,
// descriptors of processes and a channel for descriptors; one of them may die at any access, be
// refused something by the kernel, not come, stop, give up, or belong to another user.
#include <algorithm>
#include <array>
#include <cstring>

#include "simulation/node_ranks.h"
#include "simulation/scenario_list.h"
#include "simulation/world.h"

namespace whorl::simulation {
namespace {

constexpr std::uint64_t kGraceNs =
    1'000'000'000; ///< time that ranks wait for the lowest one's word
constexpr std::uint64_t kSlackNs = 300'000'000;
/// Time after which words come too late to explain why a rank has hung up.
constexpr std::uint64_t kSlowWordNs = 200'000'000;

void choose_flaw(NodePlan& plan) {
  using Call = HostKernel::Call;
  Random& random = world().random();
  plan.flaw =
      random.one_of(Flaw::kNone, Flaw::kDeath, Flaw::kDeath, Flaw::kRefusal, Flaw::kRefusal,
                    Flaw::kLimit, Flaw::kAbsent, Flaw::kFrozen, Flaw::kOtherUser, Flaw::kGivesUp);
  plan.culprit = random.below(processes_of(plan));
  plan.call =
      random.one_of(Call::kMemory, Call::kSize, Call::kBack, Call::kMap, Call::kPidfd, Call::kPass);
  plan.word_ns = random.one_of<std::uint64_t>(1'000'000, 20'000'000, kSlowWordNs, kNoWordNs);
  plan.refusal = random.one_of(-EMFILE, -ENOMEM, -EPERM);
}

/// Makes memory and returns its descriptor.
Fd make_memory() {
  Fd memory(sys().memfd_create("memory"));
  sys().ftruncate(memory.get(), Arena::kPageBytes);
  return memory;
}

/// Lets what is wrong with a process begin, just before its first rank meets the others.
void begin_flaw(NodePlan& plan, HostKernel& kernel, NodeRank& rank) {
  Random& random = world().random();
  if (rank.process != plan.culprit) return;
  const bool first = rank.number == lowest_of(plan, rank.process);
  if (plan.flaw == Flaw::kAbsent && first) sys().sleep_ns(5 * kMeetingNs);
  if (plan.flaw == Flaw::kFrozen && first) {
    world().scheduler().freeze_in(1 + random.below(120), 5 * kMeetingNs);
  }
  if (plan.flaw == Flaw::kDeath) world().scheduler().kill_in(1 + random.below(120));
  if (plan.flaw == Flaw::kRefusal && first) {
    kernel.refuse(rank.process, plan.call, plan.refusal);
  }
  if (plan.flaw == Flaw::kLimit && first) {
    kernel.limit(rank.process, kernel.open_descriptors(rank.process) + random.below(6));
  }
  if (plan.flaw == Flaw::kGivesUp && first) {
    const std::uint64_t delay_ns = random.below(random.one_of<std::uint64_t>(10'000, 5'000'000));
    world().add_to_process("gives up", [&rank, delay_ns] {
      sys().sleep_ns(delay_ns);
      rank.comm_error.set(Status::error(Code::kInvalidUsage, "the cause"));
    });
  }
}

/// Requires that a rank has got exactly the descriptors that it should have.
void check_descriptors(const NodePlan& plan, const HostKernel& kernel, const NodeRank& rank) {
  const ShmMeeting& met = *rank.met;
  const std::size_t lowest = plan.ranks.front().process;
  std::size_t heaps = 0;
  for (std::size_t process = 0; process < processes_of(plan); ++process) {
    heaps += process != rank.process && plan.heaps[process].valid();
  }
  world().require(met.heaps.size() == heaps, "rank {} has {} heaps instead of {}", rank.number,
                  met.heaps.size(), heaps);
  for (const ProcessFd& heap : met.heaps) {
    const std::size_t process = plan.ranks[static_cast<std::size_t>(heap.rank)].process;
    world().require(
        kernel.memory_of(heap.fd.get()) != nullptr &&
            kernel.memory_of(heap.fd.get()) == kernel.memory_of(plan.heaps[process].get()),
        "rank {} has the wrong heap for rank {}", rank.number, heap.rank);
  }
  const std::size_t others = plan.has_pidfds ? processes_of(plan) - 1 : 0;
  world().require(met.pidfds.size() == others, "rank {} has {} pidfds instead of {}", rank.number,
                  met.pidfds.size(), others);
  for (const ProcessFd& pidfd : met.pidfds) {
    world().require(kernel.process_of(pidfd.fd.get()) ==
                        plan.ranks[static_cast<std::size_t>(pidfd.rank)].process,
                    "rank {} has the wrong pidfd for rank {}", rank.number, pidfd.rank);
  }
  std::size_t sockets = 0; // to processes for which there is no pidfd
  for (const NodeRank& other : plan.ranks) {
    const bool linked = rank.number == 0 || other.number == 0;
    sockets += !plan.has_pidfds && linked && other.process != rank.process;
  }
  world().require(met.sockets.size() == sockets, "rank {} has {} sockets instead of {}",
                  rank.number, met.sockets.size(), sockets);
  const bool sends = rank.membership.shares_devices() && rank.process != lowest;
  world().require(const_cast<Node&>(rank.node).fd_channel()->sends() == sends,
                  "rank {} has {} channel for descriptors", rank.number, sends ? "no" : "a");
}

/// Passes memory of each rank in another process to the lowest rank, over the channel for
/// descriptors, and requires that it arrives.
void use_channel(const NodePlan& plan, const HostKernel& kernel, NodeRank& rank) {
  FdChannel& channel = *rank.node.fd_channel();
  if (channel.sends()) {
    std::vector<Fd> memory;
    memory.push_back(make_memory());
    const std::array<std::byte*, 1> body{kernel.memory_of(memory.front().get())};
    while (channel.send(std::as_bytes(std::span(body)), memory) == Progress::kIdle) {
      sys().sleep_ns(10'000);
    }
  }
  if (!channel.receives()) return;
  std::size_t expected = 0;
  for (const NodeRank& other : plan.ranks) expected += other.process != rank.process;
  const std::uint64_t deadline_ns = sys().now_ns() + kMeetingNs;
  FdChannel::Message message;
  while (expected > 0 && sys().now_ns() < deadline_ns) {
    if (channel.receive(message) != Progress::kDone) {
      sys().sleep_ns(10'000);
      continue;
    }
    std::byte* memory = nullptr;
    world().require(message.size == sizeof memory && message.fds.size() == 1 && !message.cut,
                    "a message for rank {} has {} bytes and {} descriptors", rank.number,
                    message.size, message.fds.size());
    std::memcpy(&memory, message.bytes.data(), sizeof memory);
    world().require(kernel.memory_of(message.fds.front().get()) == memory,
                    "rank {} gets a descriptor of something else", rank.number);
    --expected;
  }
  world().require(expected == 0, "{} messages have not come to rank {}", expected, rank.number);
}

void run_rank(NodePlan& plan, HostKernel& kernel, NodeRank& rank) {
  if (rank.number == lowest_of(plan, rank.process) && world().random().chance(70)) {
    plan.heaps[rank.process] = make_memory();
  }
  listen(plan, rank);
  begin_flaw(plan, kernel, rank);
  const std::uint64_t began_ns = sys().now_ns();
  auto met = rank.node.meet(meeting_of(plan, rank));
  rank.took_ns = sys().now_ns() - began_ns;
  rank.listener.reset();
  if (met.ok()) {
    rank.met = std::move(*met);
  } else {
    rank.error = met.status();
    world().note("fails: {}", rank.error.message());
  }
  if (plan.flaw == Flaw::kNone && rank.met) {
    check_descriptors(plan, kernel, rank);
    use_channel(plan, kernel, rank);
  }
  rank.ended_ns = sys().now_ns();
}

/// Whether a rank comes, or goes on, when the others have given up.
bool is_late(const NodePlan& plan, const NodeRank& rank) {
  return (plan.flaw == Flaw::kAbsent || plan.flaw == Flaw::kFrozen) && rank.process == plan.culprit;
}

/// Whether the text of a rank's error says what is wrong, or names a rank with which something is.
bool names_cause(const NodePlan& plan, const NodeRank& failed) {
  const std::string& text = failed.error.message();
  if (is_late(plan, failed)) return true;
  const auto has = [&](std::string_view part) { return text.find(part) != std::string::npos; };
  if (plan.flaw == Flaw::kOtherUser) return has("runs as user");
  if (plan.flaw == Flaw::kRefusal && has(std::strerror(-plan.refusal))) return true;
  if (plan.flaw == Flaw::kLimit && has("raise the limit on open files")) return true;
  if (plan.flaw == Flaw::kGivesUp && has("the cause")) return true;
  // The lowest rank cannot say why it stops in the middle of an answer to this one.
  const std::string& of_lowest = plan.ranks.front().error.message();
  const bool stopped =
      of_lowest.find(describe(plan, failed.number) + " cannot be talked to") != std::string::npos;
  if (plan.word_ns >= kSlowWordNs && stopped && has(describe(plan, 0))) return true;
  return std::any_of(plan.ranks.begin(), plan.ranks.end(), [&](const NodeRank& rank) {
    return rank.process == plan.culprit && has(describe(plan, rank.number));
  });
}

/// Whether a flaw makes somebody fail, whenever it comes.
bool must_fail(const NodePlan& plan, const HostKernel& kernel) {
  if (plan.flaw == Flaw::kAbsent || plan.flaw == Flaw::kOtherUser) return true;
  const bool is_soft = plan.call == HostKernel::Call::kPidfd; // then sockets stay open
  return plan.flaw == Flaw::kRefusal && kernel.refused() && !is_soft;
}

void check(const NodePlan& plan, const HostKernel& kernel) {
  bool failed = false;
  const std::byte* memory = nullptr;
  for (const NodeRank& rank : plan.ranks) {
    if (world().scheduler().died(rank.process)) continue;
    world().require(rank.ended_ns != 0, "rank {} has not come to its end", rank.number);
    world().require(rank.took_ns < kMeetingNs + kGraceNs + kSlackNs || is_late(plan, rank),
                    "rank {} took {} ms", rank.number, rank.took_ns / 1'000'000);
    if (!rank.met) {
      failed = true;
      world().require(plan.flaw != Flaw::kNone && names_cause(plan, rank),
                      "rank {} has the wrong error, process {} is to blame: {}", rank.number,
                      plan.culprit, rank.error.message());
      continue;
    }
    const std::byte* const own = rank.node.transport_memory().data();
    world().require(memory == nullptr || own == memory, "rank {} has memory of its own",
                    rank.number);
    memory = own;
  }
  world().require(failed || !must_fail(plan, kernel), "no rank has an error");
}

/// Requires that nothing is left open once all ranks have given back what they have.
void check_leaks(NodePlan& plan, const HostKernel& kernel) {
  const std::size_t processes = processes_of(plan);
  bool died = false;
  plan.heaps.clear();
  plan.ranks.clear();
  for (std::size_t process = 0; process < processes; ++process) {
    if (world().scheduler().died(process)) {
      died = true;
      continue;
    }
    const std::size_t open = kernel.open_descriptors(process);
    world().require(open == 0, "process {} has {} descriptors that nobody closes", process, open);
  }
  world().require(died || kernel.mappings() == 0, "{} mappings are left", kernel.mappings());
}

} // namespace

void run_node() {
  HostKernel kernel;
  const ScopedSystem replaced(&kernel);
  NodePlan plan;
  make_ranks(plan);
  choose_flaw(plan);
  if (plan.flaw == Flaw::kOtherUser) kernel.set_stranger(plan.culprit);
  if (world().random().chance(30)) {
    const bool all = world().random().chance(50);
    const std::size_t without = world().random().below(processes_of(plan));
    kernel.forbid_pidfds(all, without);
    plan.has_pidfds = !all && without != plan.ranks.front().process;
  }
  for (std::size_t process = 0; process < processes_of(plan); ++process) {
    world().add(fmt::format("process {}", process), [&plan, &kernel, process] {
      const int lowest = lowest_of(plan, process);
      for (NodeRank& rank : plan.ranks) {
        if (rank.process != process || rank.number == lowest) continue;
        world().add_to_process(fmt::format("rank {}", rank.number),
                               [&plan, &kernel, &rank] { run_rank(plan, kernel, rank); });
      }
      run_rank(plan, kernel, plan.ranks[static_cast<std::size_t>(lowest)]);
      for (const NodeRank& rank : plan.ranks) {
        while (rank.process == process && rank.ended_ns == 0) sys().sleep_ns(100'000);
      }
    });
  }
  world().run();
  if (!world().failure().empty()) return;
  check(plan, kernel);
  if (world().failure().empty()) check_leaks(plan, kernel);
}

} // namespace whorl::simulation
