// Measures latency and throughput of one endpoint between two threads: inproc, and shm with both
// ends in one process (the same code and the same memory as between processes).

#include <benchmark/benchmark.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "transports/inproc/transport.h"
#include "transports/shm/transport.h"

namespace whorl {
namespace {

/// Two connected ranks.
template <class T>
class Pair {
 public:
  Pair() {
    static std::uint64_t job = 0;
    ++job;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      Membership& membership = members_[rank];
      membership.rank = static_cast<int>(rank);
      membership.nranks = 2;
      membership.comm_error = &comm_error_;
      std::memcpy(membership.identity.job.data(), &job, sizeof job);
      PeerInfo info;
      info.rank = rank;
      info.process_id = static_cast<std::uint32_t>(::getpid());
      info.process_key = std::is_same_v<T, ShmTransport> ? 2 * job + rank : job;
      const auto address = transports_[rank].listen(membership.identity);
      if (!address.ok()) throw std::runtime_error(address.status().message());
      info.addresses[0].size = static_cast<std::uint32_t>(address->size());
      std::copy(address->begin(), address->end(), info.addresses[0].bytes.begin());
      for (Membership& m : members_) m.peers.push_back(info);
    }
    std::thread other([&] { connect(1); });
    connect(0);
    other.join();
    if (comm_error_.is_set()) throw std::runtime_error(comm_error_.status().message());
  }
  Endpoint& end(int rank) {
    return *transports_[static_cast<std::size_t>(rank)].endpoint(1 - rank, 0);
  }
  template <class Attempt>
  bool wait(int rank, Attempt&& attempt) {
    return wait_until([&] { return attempt() ? Progress::kDone : Progress::kIdle; },
                      {.timeout_ns = 10'000'000'000}, comm_error_,
                      transports_[static_cast<std::size_t>(rank)]) == WaitResult::kReady;
  }
  void stop() { comm_error_.set(Status::error(Code::kInvalidUsage, "the measurement is over")); }

 private:
  void connect(std::size_t rank) {
    const int peer = 1 - static_cast<int>(rank);
    const Status status = transports_[rank].connect(members_[rank], std::span(&peer, 1), 0);
    if (!status.ok()) comm_error_.set(status);
  }
  CommError comm_error_;
  Membership members_[2];
  T transports_[2];
};

template <class T>
void ping_pong(benchmark::State& state) {
  Pair<T> pair;
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const auto send = [&](int rank) {
    std::span<std::byte> slot;
    if (!pair.wait(rank, [&] { return !(slot = pair.end(rank).try_reserve()).empty(); })) {
      return false;
    }
    std::memset(slot.data(), rank, bytes);
    pair.end(rank).commit(bytes, {});
    return true;
  };
  const auto receive = [&](int rank) {
    Message message;
    if (!pair.wait(rank, [&] { return bool(message = pair.end(rank).try_peek()); })) return false;
    benchmark::DoNotOptimize(message.data[0]);
    pair.end(rank).release();
    return true;
  };
  std::thread echo([&] {
    while (receive(1) && send(1)) {
    }
  });
  for (auto _ : state) {
    if (!send(0) || !receive(0)) state.SkipWithError("the other end is gone");
  }
  pair.stop();
  echo.join();
  state.counters["one_way_s"] = benchmark::Counter(
      2.0, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

template <class T>
void stream(benchmark::State& state) {
  Pair<T> pair;
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const std::vector<std::byte> source(bytes, std::byte{1});
  std::thread sink([&] {
    std::vector<std::byte> target(bytes);
    Message message;
    while (pair.wait(1, [&] { return bool(message = pair.end(1).try_peek()); })) {
      std::memcpy(target.data(), message.data, message.bytes);
      pair.end(1).release();
    }
  });
  for (auto _ : state) {
    std::span<std::byte> slot;
    if (!pair.wait(0, [&] { return !(slot = pair.end(0).try_reserve()).empty(); })) {
      state.SkipWithError("the other end is gone");
      break;
    }
    std::memcpy(slot.data(), source.data(), bytes);
    pair.end(0).commit(bytes, {});
  }
  pair.stop();
  sink.join();
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * state.range(0));
}

BENCHMARK(ping_pong<InprocTransport>)->Arg(8)->Arg(64)->UseRealTime();
BENCHMARK(ping_pong<ShmTransport>)->Arg(8)->Arg(64)->UseRealTime();
BENCHMARK(stream<InprocTransport>)->Arg(65536)->UseRealTime();
BENCHMARK(stream<ShmTransport>)->Arg(65536)->UseRealTime();

} // namespace
} // namespace whorl

BENCHMARK_MAIN();
