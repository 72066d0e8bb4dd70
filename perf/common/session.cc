#include "perf/common/session.h"

#include <unistd.h>

#include <array>

#include "perf/common/device.h"

namespace perf {
namespace {

using Clock = std::chrono::steady_clock;

/// Returns the names of the transports to the other ranks, in the order of the first ranks that are
/// reached by each.
std::string transports([[maybe_unused]] const LocalRank& rank) {
  std::string names;
#ifndef WHORL_PERF_NCCL
  for (int peer = 0; peer < rank.nranks; ++peer) {
    const char* name = "";
    check(XCCL(CommGetTransport)(rank.comm, peer, &name), rank.comm, "CommGetTransport");
    if (*name == '\0' || names.find(name) != std::string::npos) continue;
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
#endif
  return names;
}

} // namespace

void check(Result result, Comm comm, const char* call) {
  if (result == XCCL(Success)) return;
  const char* sentence = XCCL(GetLastError)(comm);
  if ((sentence == nullptr || *sentence == '\0') && comm != nullptr) {
    sentence = XCCL(GetLastError)(nullptr);
  }
  std::string text = std::string(call) + ": " + XCCL(GetErrorString)(result);
  if (sentence != nullptr && *sentence != '\0') text += std::string(": ") + sentence;
  throw Failure(text);
}

std::vector<Segment> block_from_each(std::size_t count, const Place& place,
                                     std::size_t source_offset) {
  std::vector<Segment> segments;
  for (int rank = 0; rank < place.nranks; ++rank) {
    segments.push_back({static_cast<std::size_t>(rank) * count, count, rank, source_offset});
  }
  return segments;
}

Session Session::join(const Options& options, const UniqueId& id, int nranks, int base) {
  Session session;
  for (int i = 0; i < options.ranks_per_thread; ++i) {
    session.ranks_.push_back({nullptr, base + i, nranks, nullptr});
  }
  const auto start = Clock::now();
  // The handles are written when the group ends: they must not move until then.
  session.issue(
      [&](const LocalRank&, std::size_t i) {
        LocalRank& rank = session.ranks_[i];
        if (options.alloc == Alloc::kDevice) Device::driver().attach(rank.rank);
        return XCCL(CommInitRank)(&rank.comm, nranks, id, rank.rank);
      },
      "CommInitRank");
  session.init_ms_ = microseconds(Clock::now() - start) / 1000;
  session.open_streams(options);
  return session;
}

Session Session::from_launcher(const Options& options) {
  Session session;
  LocalRank rank{};
  const auto start = Clock::now();
  check(XCCL(CommInitEnv)(&rank.comm, nullptr), nullptr, "CommInitEnv");
  session.init_ms_ = microseconds(Clock::now() - start) / 1000;
  session.ranks_.push_back(rank);
  check(XCCL(CommUserRank)(rank.comm, &session.ranks_[0].rank), rank.comm, "CommUserRank");
  check(XCCL(CommCount)(rank.comm, &session.ranks_[0].nranks), rank.comm, "CommCount");
  session.open_streams(options);
  return session;
}

Session::Session(Session&& other) noexcept
    : ranks_(std::move(other.ranks_)), on_device_(other.on_device_), init_ms_(other.init_ms_) {
  other.ranks_.clear();
}

Session::~Session() {
  for (const LocalRank& rank : ranks_) {
    if (rank.stream != nullptr && on_device_) {
      Device::driver().destroy(rank.stream);
    } else if (rank.stream != nullptr) {
      (void)XCCL(StreamDestroy)(static_cast<XCCL(Stream_t)>(rank.stream));
    }
    if (rank.comm != nullptr) (void)XCCL(CommDestroy)(rank.comm);
  }
}

void Session::open_streams(const Options& options) {
  if (!options.stream) return;
  on_device_ = options.alloc == Alloc::kDevice;
  for (LocalRank& rank : ranks_) {
    if (on_device_) {
      rank.device = Device::driver().attach(rank.rank);
      rank.stream = Device::driver().make_stream();
      continue;
    }
    XCCL(Stream_t) stream = nullptr;
    check(XCCL(StreamCreate)(&stream), nullptr, "StreamCreate");
    rank.stream = stream;
  }
}

void Session::synchronize() const {
  for (const LocalRank& rank : ranks_) {
    if (rank.stream == nullptr) continue;
    if (on_device_) {
      Device::driver().synchronize(rank.stream);
      continue;
    }
    check(XCCL(StreamSynchronize)(static_cast<XCCL(Stream_t)>(rank.stream)), rank.comm,
          "StreamSynchronize");
  }
}

void Session::barrier() const {
  issue([](const LocalRank& rank, std::size_t) { return XCCL(Barrier)(rank.comm, nullptr); },
        "Barrier");
}

double Session::combine(double value, Average average) const {
  std::vector<double> values(ranks_.size(), value);
  issue(
      [&](const LocalRank& rank, std::size_t i) {
        if (average == Average::kRank0) {
          return XCCL(Broadcast)(&values[i], &values[i], 1, XCCL(Float64), 0, rank.comm, nullptr);
        }
        const RedOp op = average == Average::kMin   ? XCCL(Min)
                         : average == Average::kMax ? XCCL(Max)
                                                    : XCCL(Sum);
        return XCCL(AllReduce)(&values[i], &values[i], 1, XCCL(Float64), op, rank.comm, nullptr);
      },
      "combining the ranks' times");
  return average == Average::kMean ? values[0] / nranks() : values[0];
}

std::int64_t Session::total(std::int64_t value) const {
  std::vector<std::int64_t> values(ranks_.size(), 0);
  values[0] = value;
  issue(
      [&](const LocalRank& rank, std::size_t i) {
        return XCCL(AllReduce)(&values[i], &values[i], 1, XCCL(Int64), XCCL(Sum), rank.comm,
                               nullptr);
      },
      "adding up the ranks' errors");
  return values[0];
}

std::string Session::topology() const {
#ifndef WHORL_PERF_NCCL
  std::array<char, 512> line{};
  check(XCCL(CommDescribe)(ranks_[0].comm, line.data(), line.size()), ranks_[0].comm,
        "CommDescribe");
  return line.data();
#else
  return {};
#endif
}

std::int64_t Session::communicator_bytes() const {
  std::uint64_t total = 0;
#ifndef WHORL_PERF_NCCL
  for (const auto stat : {XCCL(StatHostMemTotal), XCCL(StatGpuMemTotal)}) {
    std::uint64_t bytes = 0;
    check(XCCL(CommMemStats)(ranks_[0].comm, stat, &bytes), ranks_[0].comm, "CommMemStats");
    total += bytes;
  }
#endif
  return static_cast<std::int64_t>(total);
}

std::vector<RankInfo> Session::everyone(int thread) const {
  std::vector<RankInfo> mine(ranks_.size());
  std::vector<std::vector<RankInfo>> all(ranks_.size());
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    mine[i] = {ranks_[i].rank, static_cast<int>(getpid()), thread, {}, ranks_[i].device, {}};
    gethostname(mine[i].host, sizeof(mine[i].host) - 1);
    if (ranks_[i].device >= 0) {
      const std::string name = Device::driver().name(ranks_[i].device);
      name.copy(mine[i].device_name, sizeof(mine[i].device_name) - 1);
    }
    transports(ranks_[i]).copy(mine[i].transports, sizeof(mine[i].transports) - 1);
    all[i].resize(static_cast<std::size_t>(nranks()));
  }
  issue(
      [&](const LocalRank& rank, std::size_t i) {
        return XCCL(AllGather)(&mine[i], all[i].data(), sizeof(RankInfo), XCCL(Uint8), rank.comm,
                               nullptr);
      },
      "gathering the ranks' hosts");
  return all[0];
}

} // namespace perf
