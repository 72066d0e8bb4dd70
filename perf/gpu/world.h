#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "perf/gpu/device.h"
#include "perf/gpu/library.h"

namespace perf::gpu {

enum class Kind { kAllReduce, kReduceScatter, kAllGather, kReduce };
Kind kind_of(const std::string& name);
std::size_t element_bytes(int type);
/// whorlDataType_t of a name in nccl-tests; throws Failure.
int type_of(const std::string& name);

/// How a collective of `ranks` ranks of which the larger side has `bytes` lies in device memory:
/// all send buffers, then all receive buffers, without gaps.
struct Layout {
  Layout(Kind kind, int ranks, std::size_t bytes);
  std::size_t send_bytes, recv_bytes; ///< of each rank; recv of a reduce: of rank 0 alone
  Kind kind;
  int ranks;
  [[nodiscard]] CUdeviceptr send(CUdeviceptr base, int rank) const {
    return base + static_cast<std::size_t>(rank) * send_bytes;
  }
  [[nodiscard]] CUdeviceptr recv(CUdeviceptr base, int rank) const {
    const int receivers = kind == Kind::kReduce ? 0 : rank;
    return base + static_cast<std::size_t>(ranks) * send_bytes +
           static_cast<std::size_t>(receivers) * recv_bytes;
  }
  /// What any algorithm must read and write at least: each input and each output once. It is also
  /// the size of the layout.
  [[nodiscard]] std::size_t moved() const {
    return static_cast<std::size_t>(ranks) * send_bytes +
           static_cast<std::size_t>(kind == Kind::kReduce ? 1 : ranks) * recv_bytes;
  }
};

/// The ranks of one thread, each with a stream of its own on one device.
class World {
 public:
  World(const Library& library, int ranks);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// One collective of all ranks in one group.
  void issue(const Layout& layout, CUdeviceptr base, int type) const;
  [[nodiscard]] const std::vector<std::unique_ptr<Stream>>& streams() const { return streams_; }
  void synchronize() const;
  /// Ends all ranks. Nothing is issued afterwards.
  void abort();

 private:
  const Library& library_;
  std::vector<Comm> comms_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

/// Operations between two points of the first stream that the others are joined to.
class Timer {
 public:
  /// `streams` outlive it.
  explicit Timer(std::vector<CUstream> streams);
  /// Microseconds that `body`, which queues work in any of the streams, takes on the device.
  double eager(const std::function<void()>& body);

 private:
  friend class Replay;
  void fork();
  void join();
  std::vector<CUstream> streams_;
  Event begin_, end_;
  std::vector<std::unique_ptr<Event>> points_;
};

/// The same as a graph.
class Replay {
 public:
  /// Captures `body`. Throws Failure if that cannot be.
  Replay(Timer& timer, const std::function<void()>& body);
  ~Replay();
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;
  double run() const;
  /// Queues it in the first stream.
  void launch() const;

 private:
  Timer& timer_;
  CUgraph graph_ = nullptr;
  CUgraphExec executable_ = nullptr;
};

} // namespace perf::gpu
