#include "tests/support/host_interpreters.h"

#include <atomic>
#include <barrier>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "base/types.h"
#include "gpu/exchange.h"
#include "gpu/interpret.h"
#include "kernels/reductions.h"

namespace whorl::test {
namespace {

using Table = std::map<std::string, HostInterpreter, std::less<>>;

/// State that the threads of a block share.
struct Team {
  explicit Team(unsigned threads) : size(threads), barrier(static_cast<std::ptrdiff_t>(threads)) {}
  const unsigned size;
  std::barrier<> barrier;
  std::atomic<bool> said[3] = {}; ///< flags of three successive calls of any()
};

/// Block from the view of one of its threads.
class HostBlock {
 public:
  HostBlock(Team& team, unsigned index) : team_(team), index_(index) {}
  std::uint64_t index() const { return index_; }
  std::uint64_t count() const { return team_.size; }
  void sync() const {
    if (team_.size > 1) team_.barrier.arrive_and_wait();
  }
  bool any(bool value) {
    if (team_.size == 1) return value;
    std::atomic<bool>& said = team_.said[turn_];
    if (value) said = true;
    team_.barrier.arrive_and_wait();
    turn_ = (turn_ + 1) % 3;
    team_.said[(turn_ + 1) % 3] = false; // no thread has reached this flag, and all have read it
    return said;
  }
  std::uint64_t acquire(const std::uint64_t* flag) const {
    return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
  }
  void release(std::uint64_t* flag, std::uint64_t value) const {
    __atomic_store_n(flag, value, __ATOMIC_RELEASE);
  }
  std::uint64_t peek(const std::uint64_t* flag) const {
    return __atomic_load_n(flag, __ATOMIC_ACQUIRE); // of what post() releases
  }
  template <class T>
  void post(T* flag, T value) const {
    // Reads of a slot must not come behind this store: on devices their data is in registers.
    __atomic_store_n(flag, value, __ATOMIC_RELEASE);
  }
  // Lines in two accesses: the number tells that the data is there.
  gpu::Line get(const gpu::Line* line) const {
    gpu::Line found{};
    found.number = __atomic_load_n(&line->number, __ATOMIC_ACQUIRE);
    found.data = __atomic_load_n(&line->data, __ATOMIC_RELAXED);
    return found;
  }
  void put(gpu::Line* to, const gpu::Line& line) const {
    __atomic_store_n(&to->data, line.data, __ATOMIC_RELAXED);
    __atomic_store_n(&to->number, line.number, __ATOMIC_RELEASE);
  }
  std::uint32_t look(const std::uint32_t* word) const {
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
  }
  void publish(std::uint32_t* word, std::uint32_t value) const {
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
  }
  std::uint32_t add(std::uint32_t* word, std::uint32_t value) const {
    return __atomic_fetch_add(word, value, __ATOMIC_ACQ_REL);
  }
  std::uint64_t now_ns() const {
    return static_cast<std::uint64_t>(
        std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
  }
  void pause() const { std::this_thread::yield(); }

 private:
  Team& team_;
  const unsigned index_;
  unsigned turn_ = 0;
};

/// Runs `body(block)` in each of `size` threads of a block, the caller among them.
template <class Body>
void run_block(unsigned size, Body&& body) {
  Team team(size);
  const auto run = [&](unsigned index) {
    HostBlock block(team, index);
    body(block);
  };
  std::vector<std::thread> threads;
  for (unsigned index = 1; index < size; ++index) threads.emplace_back(run, index);
  run(0);
  for (std::thread& thread : threads) thread.join();
}

struct HostMoves;
using HostDirectExchange = gpu::DirectExchange<HostMoves, HostBlock>;

/// Move functions without template arguments, so that the interpreter is compiled once for all
/// reductions.
struct HostMoves {
  using Move = void (*)(const gpu::BlockMemory&, gpu::Lane);
  using MoveUnit = bool (*)(const HostDirectExchange&, std::uint64_t unit);
  std::uint64_t bytes;
  Move combine, copy;
  MoveUnit combine_units;
  std::uint64_t element() const { return bytes; }
};

void interpret(const gpu::Launch& launch, unsigned x, unsigned y, unsigned size, HostMoves moves) {
  gpu::BlockMemory memory;
  run_block(size, [&](HostBlock& block) {
    if (launch.form == gpu::LaunchForm::kDirect) {
      HostDirectExchange(launch, x, y, memory, block, moves).run();
    } else {
      gpu::Interpreter<HostMoves, HostBlock>(launch, x, y, memory, block, moves).run();
    }
  });
}

void exchange(const gpu::Launch& launch, unsigned x, unsigned y, unsigned size) {
  gpu::ExchangeMemory memory;
  run_block(size,
            [&](HostBlock& block) { gpu::Exchange<HostBlock>(launch, x, y, memory, block).run(); });
}

template <class Moves>
void combine(const gpu::BlockMemory& memory, gpu::Lane threads) {
  Moves::combine(memory, threads);
}
template <class T>
void copy(const gpu::BlockMemory& memory, gpu::Lane threads) {
  gpu::copy_piece<T>(memory, threads);
}

template <class Moves>
bool combine_units(const HostDirectExchange& exchange, std::uint64_t unit) {
  return Moves::combine_units(exchange, unit);
}

template <class Moves, class T>
void run(const gpu::Launch& launch, unsigned x, unsigned y, unsigned threads) {
  interpret(launch, x, y, threads,
            {Moves::element(), combine<Moves>, copy<T>, combine_units<Moves>});
}

template <DataType kType, ReduceOp kOp>
void add(Table& table) {
  if constexpr (combines(kType, kOp) && kOp != ReduceOp::kAvg) {
    const std::string name =
        "whorl_interpret_" + std::string(name_of(kType)) + "_" + std::string(name_of(kOp));
    using Moves = gpu::Reductions<kernels::Reduction<kType, kOp>>;
    table[name] = run<Moves, typename gpu::BitsOf<sizeof(typename Moves::Storage)>::Type>;
  }
}

template <std::size_t kType, std::size_t... kOps>
void add_type(Table& table, std::index_sequence<kOps...>) {
  (add<static_cast<DataType>(kType), kReduceOps[kOps]>(table), ...);
}

template <std::size_t... kTypes>
Table all(std::index_sequence<kTypes...>) {
  Table table{{"whorl_interpret_copy", run<gpu::Copies, std::uint8_t>},
              {"whorl_exchange", exchange}};
  (add_type<kTypes>(table, std::make_index_sequence<kNumReduceOps>()), ...);
  return table;
}

} // namespace

const Table& host_interpreters() {
  static const Table table = all(std::make_index_sequence<kNumDataTypes>());
  return table;
}

} // namespace whorl::test
