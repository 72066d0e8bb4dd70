#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "perf/gpu/device.h"
#include "perf/gpu/library.h"

namespace perf::gpu {

/// Collectives that are measured; kAllToAllv has blocks of 1 to `ranks` units, which only whorl
/// has.
enum class Kind { kAllReduce, kReduceScatter, kAllGather, kReduce, kAllToAllv };
Kind kind_of(const std::string& name);
std::size_t element_bytes(int type);
/// Returns the whorlDataType_t of a name in nccl-tests; throws Failure.
int type_of(const std::string& name);

/// Positions in device memory of a collective of `ranks` ranks whose larger side has `bytes`: all
/// send buffers, then all receive buffers, without gaps.
struct Layout {
  Layout(Kind kind, int ranks, std::size_t bytes);
  std::size_t send_bytes, recv_bytes; ///< bytes of each rank; recv of a reduce: of rank 0 alone
  Kind kind;
  int ranks;
  /// Returns the bytes of the block from one rank to another, of an all-to-all.
  [[nodiscard]] std::size_t block(int from, int to) const {
    return unit() * static_cast<std::size_t>((from + to) % ranks + 1);
  }
  [[nodiscard]] CUdeviceptr send(CUdeviceptr base, int rank) const {
    return base + static_cast<std::size_t>(rank) * send_bytes;
  }
  [[nodiscard]] CUdeviceptr recv(CUdeviceptr base, int rank) const {
    const int receivers = kind == Kind::kReduce ? 0 : rank;
    return base + static_cast<std::size_t>(ranks) * send_bytes +
           static_cast<std::size_t>(receivers) * recv_bytes;
  }
  /// Returns the bytes that any algorithm must read and write at least, each input and each output
  /// once, which is also the size of the layout.
  [[nodiscard]] std::size_t moved() const {
    return static_cast<std::size_t>(ranks) * send_bytes +
           static_cast<std::size_t>(kind == Kind::kReduce ? 1 : ranks) * recv_bytes;
  }

 private:
  /// Returns the bytes of the smallest block of an all-to-all.
  [[nodiscard]] std::size_t unit() const {
    return send_bytes / static_cast<std::size_t>(ranks * (ranks + 1) / 2);
  }
};

/// Ranks of one thread, each with a stream of its own on one device.
class World {
 public:
  World(const Library& library, int ranks);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// Queues one collective of all ranks in one group.
  void issue(const Layout& layout, CUdeviceptr base, int type) const;
  [[nodiscard]] const std::vector<std::unique_ptr<Stream>>& streams() const { return streams_; }
  void synchronize() const;
  /// Aborts all ranks. No issue() may follow.
  void abort();

 private:
  const Library& library_;
  std::vector<Comm> comms_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

/// Stopwatch for work between two points of the first stream; fork() and join() order the other
/// streams between them.
class Timer {
 public:
  /// Makes a timer of `streams`, which must outlive it.
  explicit Timer(std::vector<CUstream> streams);
  /// Returns the microseconds that `body`, which queues work in any of the streams, takes on the
  /// device.
  double eager(const std::function<void()>& body);

 private:
  friend class Replay;
  void fork();
  void join();
  std::vector<CUstream> streams_;
  Event begin_, end_;
  std::vector<std::unique_ptr<Event>> points_;
};

/// Graph of work in a Timer's streams, with the time of each launch.
class Replay {
 public:
  /// Captures `body`. Throws Failure if the capture fails.
  Replay(Timer& timer, const std::function<void()>& body);
  ~Replay();
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;
  double run() const;
  /// Queues the graph in the first stream.
  void launch() const;

 private:
  Timer& timer_;
  CUgraph graph_ = nullptr;
  CUgraphExec executable_ = nullptr;
};

} // namespace perf::gpu
