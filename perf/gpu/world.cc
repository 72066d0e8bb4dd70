#include "perf/gpu/world.h"

#include "perf/common/types.h"

namespace perf::gpu {

Kind kind_of(const std::string& name) {
  if (name == "allreduce") return Kind::kAllReduce;
  if (name == "reducescatter") return Kind::kReduceScatter;
  if (name == "allgather") return Kind::kAllGather;
  if (name == "reduce") return Kind::kReduce;
  if (name == "alltoallv") return Kind::kAllToAllv;
  throw Failure("there is no collective \"" + name + "\" here");
}

int type_of(const std::string& name) {
  const TypeInfo* const type = find_type(name);
  if (type == nullptr) throw Failure("\"" + name + "\" is not a datatype");
  return type->type;
}

std::size_t element_bytes(int type) { return info_of(static_cast<DataType>(type)).bytes; }

Layout::Layout(Kind k, int n, std::size_t bytes)
    : send_bytes(bytes), recv_bytes(bytes), kind(k), ranks(n) {
  // Round blocks down to whole vectors, so that everything stays aligned.
  const std::size_t block = bytes / static_cast<std::size_t>(n) / 16 * 16;
  if (kind == Kind::kReduceScatter) {
    send_bytes = block * static_cast<std::size_t>(n);
    recv_bytes = block;
  } else if (kind == Kind::kAllGather) {
    send_bytes = block;
    recv_bytes = block * static_cast<std::size_t>(n);
  } else if (kind == Kind::kAllToAllv) {
    const auto units = static_cast<std::size_t>(n * (n + 1) / 2);
    send_bytes = recv_bytes = bytes / units / 16 * 16 * units;
  }
}

World::World(const Library& library, int ranks) : library_(library) {
  UniqueId id{};
  library.check(library.GetUniqueId(&id), nullptr, "GetUniqueId");
  comms_.resize(static_cast<std::size_t>(ranks));
  Group group(library);
  for (int rank = 0; rank < ranks; ++rank) {
    library.check(library.CommInitRank(&comms_[static_cast<std::size_t>(rank)], ranks, id, rank),
                  nullptr, "CommInitRank");
  }
  group.end(nullptr);
  for (int rank = 0; rank < ranks; ++rank) streams_.push_back(std::make_unique<Stream>());
}

World::~World() {
  for (const Comm comm : comms_) static_cast<void>(library_.CommDestroy(comm));
}

void World::issue(const Layout& layout, CUdeviceptr base, int type) const {
  const auto datatype = static_cast<DataType>(type);
  const std::size_t size = element_bytes(type);
  Group group(library_);
  for (int rank = 0; rank < layout.ranks; ++rank) {
    const Comm comm = comms_[static_cast<std::size_t>(rank)];
    const auto queue = static_cast<void*>(streams_[static_cast<std::size_t>(rank)]->get());
    const void* const send = reinterpret_cast<const void*>(layout.send(base, rank));
    void* const recv = reinterpret_cast<void*>(layout.recv(base, rank));
    Result result = XCCL(Success);
    switch (layout.kind) {
      case Kind::kAllReduce:
        result = library_.AllReduce(send, recv, layout.send_bytes / size, datatype, XCCL(Sum), comm,
                                    queue);
        break;
      case Kind::kReduceScatter:
        result = library_.ReduceScatter(send, recv, layout.recv_bytes / size, datatype, XCCL(Sum),
                                        comm, queue);
        break;
      case Kind::kAllGather:
        result = library_.AllGather(send, recv, layout.send_bytes / size, datatype, comm, queue);
        break;
      case Kind::kReduce:
        result = library_.Reduce(send, recv, layout.send_bytes / size, datatype, XCCL(Sum), 0, comm,
                                 queue);
        break;
      case Kind::kAllToAllv: {
        std::vector<std::size_t> counts;
        for (int peer = 0; peer < layout.ranks; ++peer) {
          counts.push_back(layout.block(rank, peer) / size); // the same in both directions
        }
        if (library_.name() != "whorl") throw Failure("NCCL has no all-to-all of uneven blocks");
        result = XCCL(AlltoAllv)(send, counts.data(), nullptr, recv, counts.data(), nullptr,
                                 datatype, comm, queue);
        break;
      }
    }
    library_.check(result, comm, "the collective");
  }
  group.end(comms_.front());
}

void World::synchronize() const {
  for (const auto& stream : streams_) stream->synchronize();
}

void World::abort() {
  for (const Comm comm : comms_) static_cast<void>(library_.CommAbort(comm));
  comms_.clear();
}

Timer::Timer(std::vector<CUstream> streams) : streams_(std::move(streams)) {
  for (std::size_t i = 0; i < streams_.size(); ++i)
    points_.push_back(std::make_unique<Event>(false));
}

void Timer::fork() {
  PERF_CUDA(cuEventRecord(points_[0]->get(), streams_[0]));
  for (std::size_t i = 1; i < streams_.size(); ++i) {
    PERF_CUDA(cuStreamWaitEvent(streams_[i], points_[0]->get(), 0));
  }
}

void Timer::join() {
  for (std::size_t i = 1; i < streams_.size(); ++i) {
    PERF_CUDA(cuEventRecord(points_[i]->get(), streams_[i]));
    PERF_CUDA(cuStreamWaitEvent(streams_[0], points_[i]->get(), 0));
  }
}

double Timer::eager(const std::function<void()>& body) {
  PERF_CUDA(cuEventRecord(begin_.get(), streams_[0]));
  fork();
  body();
  join();
  PERF_CUDA(cuEventRecord(end_.get(), streams_[0]));
  PERF_CUDA(cuStreamSynchronize(streams_[0]));
  float milliseconds = 0;
  PERF_CUDA(cuEventElapsedTime(&milliseconds, begin_.get(), end_.get()));
  return static_cast<double>(milliseconds) * 1000;
}

Replay::Replay(Timer& timer, const std::function<void()>& body) : timer_(timer) {
  PERF_CUDA(cuStreamBeginCapture(timer.streams_[0], CU_STREAM_CAPTURE_MODE_RELAXED));
  std::string failed;
  try {
    timer.fork();
    body();
    timer.join();
  } catch (const Failure& failure) {
    failed = failure.what();
  }
  const CUresult ended = driver().cuStreamEndCapture(timer.streams_[0], &graph_);
  if (!failed.empty()) throw Failure(failed);
  check(ended, "cuStreamEndCapture");
  PERF_CUDA(cuGraphInstantiate(&executable_, graph_, 0));
}

Replay::~Replay() {
  if (executable_ != nullptr) static_cast<void>(driver().cuGraphExecDestroy(executable_));
  if (graph_ != nullptr) static_cast<void>(driver().cuGraphDestroy(graph_));
}

void Replay::launch() const { PERF_CUDA(cuGraphLaunch(executable_, timer_.streams_[0])); }

double Replay::run() const {
  PERF_CUDA(cuEventRecord(timer_.begin_.get(), timer_.streams_[0]));
  launch();
  PERF_CUDA(cuEventRecord(timer_.end_.get(), timer_.streams_[0]));
  PERF_CUDA(cuStreamSynchronize(timer_.streams_[0]));
  float milliseconds = 0;
  PERF_CUDA(cuEventElapsedTime(&milliseconds, timer_.begin_.get(), timer_.end_.get()));
  return static_cast<double>(milliseconds) * 1000;
}

} // namespace perf::gpu
