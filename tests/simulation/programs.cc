#include "simulation/programs.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace whorl::simulation {
namespace {

constexpr std::byte kUnwritten{0xa5};

/// Input of a rank at an index. Small, so that all results fit into all datatypes.
std::uint64_t input(int rank, std::size_t index) {
  return static_cast<std::uint64_t>(rank + 1) * (index % 5 + 1);
}

void put(std::byte* to, std::size_t index, std::size_t size, std::uint64_t value) {
  std::memcpy(to + index * size, &value, size); // little-endian
}

std::uint64_t get(const std::byte* from, std::size_t index, std::size_t size) {
  std::uint64_t value = 0;
  std::memcpy(&value, from + index * size, size);
  return value;
}

std::uint64_t reduced(const Step& step, int ranks, std::size_t index) {
  std::uint64_t value = input(0, index);
  for (int rank = 1; rank < ranks; ++rank) {
    const std::uint64_t next = input(rank, index);
    if (step.op == ReduceOp::kSum) value += next;
    if (step.op == ReduceOp::kMax) value = std::max(value, next);
    if (step.op == ReduceOp::kMin) value = std::min(value, next);
  }
  return value;
}

/// Returns the number of elements that a rank gets in a step.
std::size_t outputs(const Step& step, int rank, int ranks) {
  switch (step.collective) {
    case Collective::kAllReduce:
      return step.count;
    case Collective::kBroadcast:
      return step.count;
    case Collective::kReduce:
      return rank == step.root ? step.count : 0;
    case Collective::kAllGather:
      return step.count * static_cast<std::size_t>(ranks);
    case Collective::kSend:
      return rank == step.receiver ? step.count : 0;
    default:
      return 0;
  }
}

std::uint64_t expected(const Step& step, int ranks, std::size_t index) {
  switch (step.collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
      return reduced(step, ranks, index);
    case Collective::kAllGather:
      return input(static_cast<int>(index / step.count), index % step.count);
    default:
      return input(step.root, index);
  }
}

Request request_of(const Step& step, int rank, const std::byte* in, std::byte* out) {
  Request request{.collective = step.collective,
                  .type = step.type,
                  .op = step.op,
                  .peer = step.root,
                  .count = step.count,
                  .send = in,
                  .recv = out};
  if (step.collective == Collective::kSend) {
    request.collective = rank == step.root ? Collective::kSend : Collective::kRecv;
    request.peer = rank == step.root ? step.receiver : step.root;
  }
  return request;
}

/// Requires that a rank that disagrees with another one on `request` has nothing in its receive
/// buffer, unless messages of a sender that agrees may have come before: with one other rank, only
/// its own input.
void require_untouched(const CommRank& rank, const Status& status, const Request& request,
                       std::span<const std::byte> in, std::span<const std::byte> out) {
  const bool of_all =
      request.collective == Collective::kAllGather || request.collective == Collective::kAllReduce;
  const auto says = [&](std::string_view words) {
    return status.message().find(words) != std::string::npos;
  };
  // Others may disagree on a later operation while this rank is in one that all have begun.
  if (!says("ranks disagree") || says(" was in ")) return;
  if (!of_all && rank.comm->nranks() != 2) return;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const bool is_own = !of_all && i < in.size() && out[i] == in[i];
    world().require(is_own || out[i] == kUnwritten,
                    "rank {} has something at {} of the receive buffer of {}, which has failed: {}",
                    rank.number, i, describe(request), status.message());
  }
}

Status run_step(CommRank& rank, const Step& step) {
  const int ranks = rank.comm->nranks();
  const std::size_t size = size_of(step.type);
  const std::size_t count = outputs(step, rank.number, ranks);
  std::vector<std::byte> in(std::max<std::size_t>(step.count * size, 1));
  std::vector<std::byte> out(std::max<std::size_t>(count * size, 1), kUnwritten);
  for (std::size_t i = 0; i < step.count; ++i) put(in.data(), i, size, input(rank.number, i));
  const Request request = request_of(step, rank.number, in.data(), out.data());
  world().note("begins {}", describe(request));
  const Status status = rank.comm->run({&request, 1});
  if (!status.ok()) {
    require_untouched(rank, status, request, in, out);
    return status;
  }
  world().note("has done {}", describe(request));
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t right = expected(step, ranks, i), got = get(out.data(), i, size);
    world().require(got == right, "rank {} gets {} instead of {} at {} of {}", rank.number, got,
                    right, i, describe(request));
  }
  return {};
}

} // namespace

Program make_program(int ranks) {
  Random& random = world().random();
  const auto any_rank = [&] {
    return static_cast<int>(random.below(static_cast<std::uint64_t>(ranks)));
  };
  Program program(1 + random.below(3));
  for (Step& step : program) {
    step.collective =
        random.one_of(Collective::kAllReduce, Collective::kBroadcast, Collective::kReduce,
                      Collective::kAllGather, Collective::kBarrier, Collective::kSend);
    if (step.collective == Collective::kBarrier) continue;
    step.type = random.one_of(DataType::kInt32, DataType::kInt64, DataType::kUint8);
    step.count = random.one_of<std::size_t>(1, 2, 9, 40);
    if (reduces(step.collective)) {
      step.op = random.one_of(ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin);
    }
    if (step.collective != Collective::kAllReduce && step.collective != Collective::kAllGather) {
      step.root = any_rank();
    }
    if (step.collective == Collective::kSend) {
      step.receiver =
          (step.root + 1 + static_cast<int>(random.below(static_cast<std::uint64_t>(ranks - 1)))) %
          ranks;
    }
  }
  // All ranks need each other in the end, so that none leaves before the others have an error.
  program.push_back({.collective = Collective::kAllReduce, .count = 3});
  return program;
}

void add_pauses(Program& program, std::uint64_t most_ns) {
  for (Step& step : program) {
    if (world().random().chance(30)) step.pause_ns = world().random().below(most_ns);
  }
}

void run_program(CommRank& rank, const Program& program, int first_step) {
  int number = first_step;
  for (const Step& step : program) {
    if (step.pause_ns > 0) sys().sleep_ns(step.pause_ns);
    rank.began_ns = sys().now_ns();
    if (step.concerns(rank.number)) rank.error = run_step(rank, step);
    if (!rank.error.ok()) {
      rank.failed_step = number;
      world().note("fails: {}", rank.error.message());
      return;
    }
    ++number;
  }
}

} // namespace whorl::simulation
