// Checks whether results on a device are bit for bit as required, whatever the number of ranks, the
// path and the segments.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <optional>

#include "kernels/reductions.h"
#include "perf/common/forked.h"
#include "perf/gpu/kernels.h"
#include "perf/gpu/rows.h"
#include "perf/gpu/world.h"

namespace perf::gpu {
namespace {

using Bytes = std::vector<std::byte>;

constexpr int kMaxRanks = 16;

struct Data {
  std::vector<Bytes> inputs; ///< input of each rank
  Bytes sum;                 ///< combined from rank 0 to the last, rounded once
};

/// Makes inputs and their sum. `sensitive` inputs have different magnitudes, so that their sum
/// depends on the order; the others are small integers, whose sum does not.
template <whorl::DataType kType>
Data make(int ranks, std::size_t count, bool sensitive) {
  using R = whorl::kernels::Reduction<kType, whorl::ReduceOp::kSum>;
  using Format = typename R::Format;
  using Storage = typename Format::Storage;
  Data data;
  data.inputs.resize(static_cast<std::size_t>(ranks));
  data.sum.resize(count * sizeof(Storage));
  std::vector<typename Format::Value> sums(count);
  for (int rank = 0; rank < ranks; ++rank) {
    Bytes& input = data.inputs[static_cast<std::size_t>(rank)];
    input.resize(count * sizeof(Storage));
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t bits = random_word(i * kMaxRanks + static_cast<std::size_t>(rank));
      double value = static_cast<double>(bits % 3);
      if (sensitive && std::is_floating_point_v<typename Format::Value>) {
        value = (1 + static_cast<double>(bits & 0xffff) / 0x10000) *
                static_cast<double>(1U << (bits >> 16 & 7)) / 8 * (bits >> 31 != 0 ? -1 : 1);
      } else if (sensitive) {
        value = static_cast<double>(bits & 0x7f);
      }
      const Storage stored = Format::store(static_cast<typename Format::Value>(value));
      std::memcpy(input.data() + i * sizeof(Storage), &stored, sizeof stored);
      const auto loaded = Format::load(stored);
      sums[i] = rank == 0 ? loaded : R::Function::apply(sums[i], loaded);
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    const Storage stored = Format::store(sums[i]);
    std::memcpy(data.sum.data() + i * sizeof(Storage), &stored, sizeof stored);
  }
  return data;
}

Data make(int type, int ranks, std::size_t count, bool sensitive) {
  using whorl::DataType;
  switch (type) {
    case XCCL(Float32):
      return make<DataType::kFloat32>(ranks, count, sensitive);
    case XCCL(Float64):
      return make<DataType::kFloat64>(ranks, count, sensitive);
    case XCCL(Bfloat16):
      return make<DataType::kBfloat16>(ranks, count, sensitive);
    case XCCL(Float16):
      return make<DataType::kFloat16>(ranks, count, sensitive);
    case XCCL(Float8e4m3):
      return make<DataType::kFloat8e4m3>(ranks, count, sensitive);
    case XCCL(Float8e5m2):
      return make<DataType::kFloat8e5m2>(ranks, count, sensitive);
    case XCCL(Int8):
      return make<DataType::kInt8>(ranks, count, sensitive);
    default:
      throw Failure("identity is measured of float, double, bfloat16, half, f8e4m3, f8e5m2, int8");
  }
}

std::int64_t differing(const Bytes& got, const Bytes& right, std::size_t size) {
  std::int64_t wrong = 0;
  for (std::size_t at = 0; at < right.size(); at += size) {
    if (std::memcmp(got.data() + at, right.data() + at, size) != 0) ++wrong;
  }
  return wrong;
}

/// Counts of wrong elements on all ranks together.
struct Found {
  std::atomic<std::int64_t> order, host; ///< elements that differ from rank order, host's result
};

/// Ranks of one thread: one rank, or all.
class Ranks {
 public:
  Ranks(const Settings& settings, const UniqueId& id, int first, int count)
      : settings_(settings), first_(first), whorl_(Library::whorl()) {
    comms_.resize(static_cast<std::size_t>(count));
    Group group(whorl_);
    for (int i = 0; i < count; ++i) {
      whorl_.check(
          whorl_.CommInitRank(&comms_[static_cast<std::size_t>(i)], settings.ranks, id, first + i),
          nullptr, "CommInitRank");
    }
    group.end(nullptr);
    for (int i = 0; i < count; ++i) streams_.push_back(std::make_unique<Stream>());
  }
  ~Ranks() {
    for (const Comm comm : comms_) static_cast<void>(whorl_.CommDestroy(comm));
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  void check(int type, std::size_t count, bool sensitive, Found& found) {
    const Data data = make(type, settings_.ranks, count, sensitive);
    const std::size_t size = element_bytes(type);
    const std::size_t bytes = data.sum.size();
    std::vector<std::unique_ptr<Memory>> buffers;
    std::vector<Bytes> on_device(comms_.size(), Bytes(bytes));
    std::vector<Bytes> on_host(comms_.size(), Bytes(bytes));
    for (std::size_t i = 0; i < comms_.size(); ++i) {
      buffers.push_back(std::make_unique<Memory>(2 * bytes));
      PERF_CUDA(cuMemcpyAsync(buffers[i]->address(),
                              reinterpret_cast<CUdeviceptr>(input(data, i).data()), bytes,
                              streams_[i]->get()));
      streams_[i]->synchronize();
    }
    reduce(type, count, [&](std::size_t i) {
      const CUdeviceptr address = buffers[i]->address();
      return Call{reinterpret_cast<const void*>(address), reinterpret_cast<void*>(address + bytes),
                  streams_[i]->get()};
    });
    for (std::size_t i = 0; i < comms_.size(); ++i) {
      PERF_CUDA(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(on_device[i].data()),
                              buffers[i]->address() + bytes, bytes, streams_[i]->get()));
      streams_[i]->synchronize();
    }
    reduce(type, count, [&](std::size_t i) {
      return Call{input(data, i).data(), on_host[i].data(), nullptr};
    });
    for (std::size_t i = 0; i < comms_.size(); ++i) {
      found.order += differing(on_device[i], data.sum, size);
      found.host += differing(on_device[i], on_host[i], size);
    }
  }

 private:
  struct Call {
    const void* send;
    void* recv;
    void* stream;
  };

  [[nodiscard]] const Bytes& input(const Data& data, std::size_t i) const {
    return data.inputs[static_cast<std::size_t>(first_) + i];
  }

  template <class Calls>
  void reduce(int type, std::size_t count, const Calls& calls) {
    Group group(whorl_);
    for (std::size_t i = 0; i < comms_.size(); ++i) {
      const Call call = calls(i);
      whorl_.check(whorl_.AllReduce(call.send, call.recv, count, static_cast<DataType>(type),
                                    XCCL(Sum), comms_[i], call.stream),
                   comms_[i], "AllReduce");
    }
    group.end(comms_.front());
  }

  const Settings& settings_;
  int first_;
  Library whorl_;
  std::vector<Comm> comms_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

/// Memory that the processes share.
struct Board {
  Meeting meeting;
  UniqueId id;
  Found found;
};

template <class Meet>
void check_type(const Settings& settings, Ranks& ranks, bool first, Found& found,
                const Meet& meet) {
  const int type = type_of(settings.type);
  for (const std::size_t bytes : settings.sizes) {
    const std::size_t count = bytes / element_bytes(type);
    for (const bool sensitive : {false, true}) {
      ranks.check(type, count, sensitive, found);
      meet();
      if (first) {
        emit(settings, {{"collective", "allreduce"},
                        {"path", settings.path},
                        {"ranks", settings.ranks},
                        {"bytes", bytes},
                        {"type", settings.type},
                        {"data", sensitive ? "order-sensitive" : "exact"},
                        {"compared", count * static_cast<std::size_t>(settings.ranks)},
                        {"differ_from_rank_order", found.order.exchange(0)},
                        {"differ_from_host", found.host.exchange(0)}});
      }
      meet();
    }
  }
}

template <class Meet>
void check_all(Settings settings, Ranks& ranks, bool first, Found& found, const Meet& meet) {
  for (const std::string& type : settings.types) {
    settings.type = type;
    check_type(settings, ranks, first, found, meet);
  }
}

int check_rank(const Settings& settings, Board& board, int rank) {
  try {
    const Device device;
    const auto meet = [&board] { board.meeting.meet(); };
    if (rank == 0) {
      const Library whorl = Library::whorl();
      whorl.check(whorl.GetUniqueId(&board.id), nullptr, "GetUniqueId");
    }
    meet();
    Ranks ranks(settings, board.id, rank, 1);
    check_all(settings, ranks, rank == 0, board.found, meet);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    return 1;
  }
}

} // namespace

int measure_identity(const Settings& settings) {
  if (settings.path == "one kernel" || settings.path.starts_with("schedules")) { // of one process
    const Device device;
    const Library whorl = Library::whorl();
    UniqueId id{};
    whorl.check(whorl.GetUniqueId(&id), nullptr, "GetUniqueId");
    Ranks ranks(settings, id, 0, settings.ranks);
    Found found{};
    check_all(settings, ranks, true, found, [] {});
    return 0;
  }
  void* const memory =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw Failure("cannot map memory for the processes");
  auto* const board = new (memory) Board;
  board->meeting.open(settings.ranks);
  std::vector<pid_t> children;
  for (int rank = 0; rank < settings.ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) _exit(check_rank(settings, *board, rank));
    if (child > 0) children.push_back(child);
  }
  return await_all(children, children.size() == static_cast<std::size_t>(settings.ranks)) ? 0 : 1;
}

} // namespace perf::gpu
