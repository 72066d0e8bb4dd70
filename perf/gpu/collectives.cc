// Measures collectives of ranks that share a device and a process, against the device's own
// kernels, NCCL and a ring kernel written for this case.
#include <cmath>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <optional>

#include "perf/gpu/arena.h"
#include "perf/gpu/kernels.h"
#include "perf/gpu/rows.h"
#include "perf/gpu/world.h"

namespace perf::gpu {
namespace {

constexpr std::size_t kMaxOperations = 100; ///< maximum number of operations in a graph

/// One way to carry out the operation of a row.
struct Variant {
  std::string name;
  Timer* timer;
  std::function<void()> body; ///< queues all operations of a round
  std::unique_ptr<Replay> replay = nullptr;

  double run() { return replay != nullptr ? replay->run() : timer->eager(body); }
};

float sample(std::size_t word) {
  // Device::fill() writes floats in this way.
  const std::uint32_t bits = (random_word(word) & 0x807fffffU) | 0x3f800000U;
  return __builtin_bit_cast(float, bits);
}

/// Makes the flags of the ring kernel equal: its blocks have other neighbours when their number
/// changes.
void clear(CUdeviceptr flags, CUstream stream) {
  static const std::vector<std::uint32_t> zeros(kMaxRingBlocks);
  PERF_CUDA(cuMemcpyAsync(flags, reinterpret_cast<CUdeviceptr>(zeros.data()),
                          zeros.size() * sizeof zeros[0], stream));
}

class Case {
 public:
  Case(const Settings& settings, const Device& device, CUdeviceptr base, std::size_t bytes)
      : settings_(settings),
        device_(device),
        base_(base),
        layout_(kind_of(settings.collective), settings.ranks, bytes),
        type_(type_of(settings.type)) {}

  void run(const World& whorl, const World* nccl, CUdeviceptr flags) {
    Json row{{"collective", settings_.collective},
             {"ranks", settings_.ranks},
             {"bytes", std::max(layout_.send_bytes, layout_.recv_bytes)},
             {"type", settings_.type},
             {"moved_bytes", layout_.moved()}};
    Places places(layout_.moved(), device_.cache_bytes(), settings_.memory, kMaxOperations);
    if (places.count() == 0) {
      row["skipped"] = "memory: it needs " + std::to_string(layout_.moved() >> 20) + " MiB";
      return emit(settings_, row);
    }
    std::vector<CUstream> streams;
    for (const auto& stream : whorl.streams()) streams.push_back(stream->get());
    device_.fill(base_, places.bytes(), type_, streams[0]);
    PERF_CUDA(cuStreamSynchronize(streams[0]));

    const std::size_t operations =
        operations_for(static_cast<double>(layout_.moved()), settings_.ms, kMaxOperations);
    Timer all(streams);
    Timer one({streams[0]});
    const auto repeat = [&](auto&& operation) {
      return [&places, operations, operation, this] {
        for (std::size_t i = 0; i < operations; ++i) operation(places.take(base_));
      };
    };
    std::vector<Variant> variants;
    variants.push_back(
        {"whorl", &all, repeat([&](CUdeviceptr place) { whorl.issue(layout_, place, type_); })});
    whorl.issue(layout_, base_, type_); // includes loading and mapping; reports errors
    whorl.synchronize();
    row["wrong"] = wrong();
    std::unique_ptr<Timer> theirs;
    if (nccl != nullptr) {
      std::vector<CUstream> queues;
      for (const auto& stream : nccl->streams()) queues.push_back(stream->get());
      theirs = std::make_unique<Timer>(queues);
      nccl->issue(layout_, base_, type_);
      nccl->synchronize();
      row["wrong_nccl"] = wrong(1e-5F);
      variants.push_back({"nccl", theirs.get(),
                          repeat([&](CUdeviceptr place) { nccl->issue(layout_, place, type_); })});
    }
    if (flags != 0 && layout_.kind == Kind::kAllReduce) {
      clear(flags, streams[0]);
      device_.ring(ring_at(base_, flags), streams[0]);
      PERF_CUDA(cuStreamSynchronize(streams[0]));
      row["wrong_ring"] = wrong(1e-5F);
      variants.push_back({"ring", &one, repeat([&](CUdeviceptr place) {
                            device_.ring(ring_at(place, flags), streams[0]);
                          })});
    }
    variants.push_back({"triad", &one, repeat([&](CUdeviceptr place) {
                          device_.triad(place, layout_.moved(), streams[0]);
                        })});
    variants.push_back({"copy", &one, repeat([&](CUdeviceptr place) {
                          device_.copy(place, layout_.moved(), streams[0]);
                        })});

    Json how = Json::object();
    for (Variant& variant : variants) {
      how[variant.name] = "eager";
      if (!settings_.eager) {
        try {
          variant.replay = std::make_unique<Replay>(*variant.timer, variant.body);
          how[variant.name] = "graph";
        } catch (const Failure& failure) {
          how[variant.name] = std::string("eager: ") + failure.what();
        }
      }
      variant.run(); // untimed: the first run is slower
    }
    Rounds rounds;
    for (int round = 0; round < settings_.rounds; ++round) {
      for (Variant& variant : variants) {
        rounds.add(variant.name, variant.run() / static_cast<double>(operations));
      }
    }
    row["how"] = how;
    row["operations"] = operations;
    row["rounds"] = settings_.rounds;
    row["places"] = places.count();
    row["us"] = rounds.us();
    row["min_us"] = rounds.min_us();
    row["times_as_fast_as"] = rounds.ratios("whorl");
    emit(settings_, row);
  }

 private:
  Device::Ring ring_at(CUdeviceptr place, CUdeviceptr flags) const {
    Device::Ring ring{{}, {}, layout_.send_bytes, flags};
    for (int rank = 0; rank < layout_.ranks; ++rank) {
      ring.send.push_back(layout_.send(place, rank));
      ring.recv.push_back(layout_.recv(place, rank));
    }
    return ring;
  }

  /// Returns the float that must stand at element `i` of a rank's result.
  [[nodiscard]] float expected(int rank, std::size_t i) const {
    const std::size_t stride = layout_.send_bytes / 4;
    if (layout_.kind == Kind::kAllGather) return sample(i); // blocks lie side by side
    if (layout_.kind == Kind::kAllToAllv) {
      int from = 0;
      std::size_t at = i; // in the block of `from`
      for (; at >= layout_.block(from, rank) / 4; ++from) at -= layout_.block(from, rank) / 4;
      for (int to = 0; to < rank; ++to) at += layout_.block(from, to) / 4;
      return sample(at + static_cast<std::size_t>(from) * stride);
    }
    const std::size_t at = i + (layout_.kind == Kind::kReduceScatter
                                    ? static_cast<std::size_t>(rank) * (layout_.recv_bytes / 4)
                                    : 0);
    float sum = sample(at);
    for (int r = 1; r < layout_.ranks; ++r)
      sum += sample(at + static_cast<std::size_t>(r) * stride);
    return sum;
  }

  /// Counts the wrong elements among some at the beginning and the end of each rank's result; −1
  /// for types other than float. `tolerance` is for algorithms that add in an order of their own.
  [[nodiscard]] int wrong(float tolerance = 0) const {
    if (settings_.type != "float") return -1;
    const std::size_t count = layout_.recv_bytes / 4;
    const std::size_t some = std::min<std::size_t>(count, 512);
    std::vector<float> got(some);
    Stream stream;
    int wrong = 0;
    for (int rank = 0; rank < (layout_.kind == Kind::kReduce ? 1 : layout_.ranks); ++rank) {
      for (const std::size_t from : {std::size_t{0}, count - some}) {
        PERF_CUDA(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(got.data()),
                                layout_.recv(base_, rank) + from * 4, some * 4, stream.get()));
        stream.synchronize();
        for (std::size_t i = 0; i < some; ++i) {
          const float right = expected(rank, from + i);
          const bool good = tolerance == 0 ? got[i] == right
                                           : std::fabs(got[i] - right) <=
                                                 tolerance * static_cast<float>(layout_.ranks);
          if (!good) ++wrong;
        }
      }
    }
    return wrong;
  }

  const Settings& settings_;
  const Device& device_;
  CUdeviceptr base_;
  Layout layout_;
  int type_;
};

} // namespace

int measure_collectives(const Settings& given) {
  Settings settings = given;
  if (!settings.needs.empty() && !whorl_mentions(settings.needs)) {
    emit(settings, {{"collective", settings.collective},
                    {"ranks", settings.ranks},
                    {"skipped", "not available: this library has no " + settings.needs}});
    return 0;
  }
  const Device device;
  const std::size_t most = device.free_bytes() / 100 * 85;
  if (settings.memory == 0 || settings.memory > most) settings.memory = most;
  const Kind kind = kind_of(settings.collective);
  std::size_t needed = 4096;
  for (const std::size_t bytes : settings.sizes) {
    const std::size_t moved = Layout(kind, settings.ranks, bytes).moved();
    needed = std::max(needed,
                      Places(moved, device.cache_bytes(), settings.memory, kMaxOperations).bytes());
  }
  const Memory arena(needed);
  const Memory flags(kMaxRingBlocks * 4);
  const Library whorl = Library::whorl();
  const World world(whorl, settings.ranks);
  std::optional<Library> nccl;
  std::unique_ptr<World> other;
  if (!settings.nccl.empty()) {
    nccl = Library::nccl(settings.nccl);
    other = std::make_unique<World>(*nccl, settings.ranks);
    emit(settings, {{"note", "nccl " + std::to_string(nccl->version())}});
  }
  for (const std::string& type : given.types) {
    settings.type = type;
    for (const std::size_t bytes : settings.sizes) {
      Case(settings, device, arena.address(), bytes)
          .run(world, other.get(), settings.ring ? flags.address() : 0);
    }
  }
  return 0;
}

} // namespace perf::gpu
