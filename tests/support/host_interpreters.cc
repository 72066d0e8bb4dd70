#include "tests/support/host_interpreters.h"

#include <chrono>
#include <thread>
#include <utility>

#include "base/types.h"
#include "gpu/interpret.h"
#include "kernels/reductions.h"

namespace whorl::testing {
namespace {

using Table = std::map<std::string, HostInterpreter, std::less<>>;

/// A block of one thread.
struct HostBlock {
  std::uint64_t index() const { return 0; }
  std::uint64_t count() const { return 1; }
  void sync() const {}
  bool any(bool value) const { return value; }
  std::uint64_t acquire(const std::uint64_t* flag) const {
    return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
  }
  void release(std::uint64_t* flag, std::uint64_t value) const {
    __atomic_store_n(flag, value, __ATOMIC_RELEASE);
  }
  std::uint32_t look(const std::uint32_t* word) const {
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
  }
  void tell(std::uint32_t* word, std::uint32_t value) const {
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
};

/// All reductions in one type, so that the interpreter is compiled once.
struct HostMoves {
  using Move = void (*)(const gpu::BlockMemory&, gpu::Lane);
  std::uint64_t bytes;
  Move combine, copy;
  std::uint64_t element() const { return bytes; }
};

void interpret(const gpu::Launch& launch, unsigned x, unsigned y, HostMoves moves) {
  gpu::BlockMemory memory;
  HostBlock block;
  gpu::Interpreter<HostMoves, HostBlock>(launch, x, y, memory, block, moves).run();
}

template <class Moves>
void combine(const gpu::BlockMemory& memory, gpu::Lane threads) {
  Moves::combine(memory, threads);
}
template <class T>
void copy(const gpu::BlockMemory& memory, gpu::Lane threads) {
  gpu::copy_piece<T>(memory, threads);
}

template <class Moves, class T>
void run(const gpu::Launch& launch, unsigned x, unsigned y) {
  interpret(launch, x, y, {Moves::element(), combine<Moves>, copy<T>});
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
  Table table{{"whorl_interpret_copy", run<gpu::Copies, std::uint8_t>}};
  (add_type<kTypes>(table, std::make_index_sequence<kNumReduceOps>()), ...);
  return table;
}

} // namespace

const Table& host_interpreters() {
  static const Table table = all(std::make_index_sequence<kNumDataTypes>());
  return table;
}

} // namespace whorl::testing
