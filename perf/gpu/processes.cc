// Measures ranks in processes of their own that share a device, over mapped memory or over the
// host; against the kernel of one of them, copies to and from pinned memory, and the cost of two
// processes waiting for each other on the device.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <optional>

#include "perf/common/forked.h"
#include "perf/gpu/arena.h"
#include "perf/gpu/rows.h"
#include "perf/gpu/world.h"

namespace perf::gpu {
namespace {

constexpr int kMaxProcesses = 16;
constexpr std::size_t kPage = 4096;
constexpr int kPings = 100;

/// Memory that the processes share.
struct Board {
  Meeting meeting;
  UniqueId id;
  double us[kMaxProcesses];
  CUipcEventHandle events[2];
  std::atomic<int> turn;
  alignas(kPage) std::uint32_t words[kPage / 4]; ///< words that streams write and wait for
};

template <class T>
T* share() {
  void* const memory =
      mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw Failure("cannot map memory for the processes");
  return new (memory) T;
}

class Rank {
 public:
  Rank(const Settings& settings, Board& board, int rank)
      : settings_(settings), board_(board), rank_(rank), whorl_(Library::whorl()) {
    if (rank == 0) whorl_.check(whorl_.GetUniqueId(&board.id), nullptr, "GetUniqueId");
    board.meeting.meet();
    whorl_.check(whorl_.CommInitRank(&comm_, settings.ranks, board.id, rank), nullptr,
                 "CommInitRank");
  }

  void run() {
    if (rank_ < 2) ping_pong();
    board_.meeting.meet();
    for (const std::size_t bytes : settings_.sizes) measure(bytes);
    static_cast<void>(whorl_.CommDestroy(comm_));
    comm_ = nullptr;
  }

 private:
  [[nodiscard]] bool first() const { return rank_ == 0; }

  /// Returns the longest of all ranks' times, on every rank.
  double longest(double us) {
    board_.us[rank_] = us;
    board_.meeting.meet();
    const double most = *std::max_element(board_.us, board_.us + settings_.ranks);
    board_.meeting.meet();
    return most;
  }

  void measure(std::size_t bytes) {
    const auto ranks = static_cast<std::size_t>(settings_.ranks);
    const std::size_t moved = 2 * ranks * bytes;
    // The places of all ranks together exceed the cache; each rank has its share of the memory.
    Places places(2 * bytes, device_.cache_bytes() / ranks, settings_.memory / ranks, 100);
    Json row{{"collective", "allreduce"},
             {"ranks", settings_.ranks},
             {"bytes", bytes},
             {"type", settings_.type},
             {"moved_bytes", moved}};
    if (places.count() == 0) {
      row["skipped"] = "memory: each rank needs " + std::to_string(2 * bytes >> 20) + " MiB";
      if (first()) emit(settings_, row);
      return;
    }
    const Memory memory(places.bytes());
    const int type = type_of(settings_.type);
    device_.fill(memory.address(), places.bytes(), type, stream_.get());
    stream_.synchronize();
    const std::size_t count = bytes / element_bytes(type);
    Timer timer({stream_.get()});
    const auto issue = [&](std::size_t times) {
      for (std::size_t i = 0; i < times; ++i) {
        const CUdeviceptr place = places.take(memory.address());
        whorl_.check(whorl_.AllReduce(reinterpret_cast<const void*>(place),
                                      reinterpret_cast<void*>(place + bytes), count,
                                      static_cast<DataType>(type), XCCL(Sum), comm_, stream_.get()),
                     comm_, "AllReduce");
      }
    };
    issue(places.count()); // so that every place is mapped
    stream_.synchronize();
    board_.meeting.meet();
    // Every rank runs as many operations as the slowest rank has time for.
    const double once = longest(timer.eager([&] { issue(2); })) / 2;
    const auto times = static_cast<std::size_t>(
        std::clamp(settings_.ms * 4 * 1000 / std::max(once, 1.0), 2.0, 100.0));
    Rounds rounds;
    for (int round = 0; round < settings_.rounds; ++round) {
      board_.meeting.meet();
      const double own = timer.eager([&] { issue(times); }) / static_cast<double>(times);
      rounds.add("whorl", longest(own));
      if (first()) {
        rounds.add("triad", timer.eager([&] {
          for (int i = 0; i < 3; ++i) {
            for (std::size_t done = 0; done < ranks; ++done) {
              device_.triad(places.take(memory.address()), 2 * bytes, stream_.get());
            }
          }
        }) / 3);
      }
      board_.meeting.meet();
      rounds.add("copies of one", first() ? copies(bytes) : 0);
      board_.meeting.meet();
      rounds.add("copies of all", longest(copies(bytes)));
    }
    if (first()) {
      row["rounds"] = settings_.rounds;
      row["operations"] = times;
      row["places"] = places.count();
      row["us"] = rounds.us();
      row["min_us"] = rounds.min_us();
      row["times_as_fast_as"] = rounds.ratios("whorl");
      emit(settings_, row);
    }
    board_.meeting.meet(); // no rank frees memory that others still map
  }

  /// Returns the time to copy `bytes` from pinned memory to the device and as many back at the same
  /// time.
  double copies(std::size_t bytes) {
    const std::size_t piece = std::min<std::size_t>(bytes, std::size_t{64} << 20);
    if (pinned_bytes_ < piece) {
      for (auto& one : pinned_) one.emplace(piece);
      for (auto& one : staged_) one.emplace(piece);
      pinned_bytes_ = piece;
    }
    Timer timer({stream_.get(), back_.get()});
    return timer.eager([&] {
      for (std::size_t done = 0; done < bytes; done += piece) {
        const std::size_t now = std::min(piece, bytes - done);
        PERF_CUDA(cuMemcpyAsync(staged_[0]->address(), pinned_[0]->address(), now, stream_.get()));
        PERF_CUDA(cuMemcpyAsync(pinned_[1]->address(), staged_[1]->address(), now, back_.get()));
      }
    });
  }

  /// Measures ranks 0 and 1 alone: their streams wait for each other's words, then for each other's
  /// events.
  void ping_pong() {
    Json row{{"collective", "ping-pong"}, {"ranks", 2}};
    try {
      PERF_CUDA(cuMemHostRegister(board_.words, sizeof board_.words,
                                  CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
      CUdeviceptr words = 0;
      PERF_CUDA(cuMemHostGetDevicePointer(&words, board_.words, 0));
      Timer timer({stream_.get()});
      both();
      const double us = timer.eager([&] {
        for (std::uint32_t ping = 1; ping <= kPings; ++ping) {
          const CUdeviceptr mine = words + static_cast<unsigned>(rank_) * 128;
          const CUdeviceptr theirs = words + static_cast<unsigned>(1 - rank_) * 128;
          if (first()) PERF_CUDA(cuStreamWriteValue32(stream_.get(), mine, ping, 0));
          PERF_CUDA(cuStreamWaitValue32(stream_.get(), theirs, ping, CU_STREAM_WAIT_VALUE_GEQ));
          if (!first()) PERF_CUDA(cuStreamWriteValue32(stream_.get(), mine, ping, 0));
        }
      });
      row["us"] = {{"words, one way", us / kPings / 2}};
      both();
      PERF_CUDA(cuMemHostUnregister(board_.words));
    } catch (const Failure& failure) {
      row["skipped"] = failure.what();
      if (first()) emit(settings_, row);
      return;
    }
    events(row);
    if (first()) emit(settings_, row);
  }

  void events(Json& row) {
    CUevent own = nullptr;
    CUevent other = nullptr;
    const Driver& cuda = driver();
    bool good =
        cuda.cuEventCreate(&own, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS) == CUDA_SUCCESS &&
        cuda.cuIpcGetEventHandle(&board_.events[rank_], own) == CUDA_SUCCESS;
    board_.us[rank_] = good ? 1 : 0;
    both();
    good = good && board_.us[1 - rank_] > 0 &&
           cuda.cuIpcOpenEventHandle(&other, board_.events[1 - rank_]) == CUDA_SUCCESS;
    board_.us[rank_] = good ? 1 : 0;
    both();
    if (!good || board_.us[1 - rank_] == 0) {
      row["note"] = "no events between processes";
      return;
    }
    // A stream waits for the event's latest record at the time of the call, so the hosts must take
    // turns, too.
    const double begin = now_us();
    for (int turn = 0; turn < 2 * kPings; ++turn) {
      while (board_.turn.load(std::memory_order_acquire) < turn) usleep(0);
      if (turn % 2 == rank_) {
        if (turn > 0) PERF_CUDA(cuStreamWaitEvent(stream_.get(), other, 0));
        PERF_CUDA(cuEventRecord(own, stream_.get()));
        board_.turn.store(turn + 1, std::memory_order_release);
      } else {
        while (board_.turn.load(std::memory_order_acquire) == turn) usleep(0);
      }
    }
    stream_.synchronize();
    row["us"]["events, one way"] = (now_us() - begin) / (2 * kPings);
    both();
    static_cast<void>(cuda.cuEventDestroy(other));
    static_cast<void>(cuda.cuEventDestroy(own));
  }

  /// Waits until ranks 0 and 1 have both called it.
  void both() {
    const int now = ++pair_meetings_;
    pair_[rank_].store(now, std::memory_order_release);
    while (pair_[1 - rank_].load(std::memory_order_acquire) < now) usleep(0);
  }

 public:
  static std::atomic<int>* pair_; ///< shared memory of ranks 0 and 1

 private:
  const Settings& settings_;
  Board& board_;
  int rank_;
  int pair_meetings_ = 0;
  Device device_;
  Stream stream_, back_;
  Library whorl_;
  Comm comm_ = nullptr;
  std::optional<Pinned> pinned_[2];
  std::optional<Memory> staged_[2];
  std::size_t pinned_bytes_ = 0;
};

std::atomic<int>* Rank::pair_ = nullptr;

} // namespace

int measure_processes(const Settings& given) {
  auto* const board = share<Board>();
  struct Pair {
    std::atomic<int> of[2];
  };
  Rank::pair_ = share<Pair>()->of;
  board->meeting.open(given.ranks);
  std::vector<pid_t> children;
  for (int rank = 0; rank < given.ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      int code = 1;
      try {
        Settings settings = given;
        {
          const Device device;
          const std::size_t most = device.free_bytes() / 100 * 80;
          if (settings.memory == 0 || settings.memory > most) settings.memory = most;
        }
        // All ranks take the smallest figure: others may have allocated since it was read.
        board->us[rank] = static_cast<double>(settings.memory);
        board->meeting.meet();
        settings.memory =
            static_cast<std::size_t>(*std::min_element(board->us, board->us + settings.ranks));
        board->meeting.meet();
        Rank(settings, *board, rank).run();
        code = 0;
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
      }
      _exit(code);
    }
    if (child > 0) children.push_back(child);
  }
  return await_all(children, children.size() == static_cast<std::size_t>(given.ranks)) ? 0 : 1;
}

} // namespace perf::gpu
