/// @file whorl.hpp
/// C++20 over the C API of whorl: handles that free themselves, datatypes deduced from element
/// types, sizes checked, errors as exceptions. Header-only; everything it does goes through
/// whorl.h, whose rules on errors, threads, order and buffers hold unchanged.
///
/// ```cpp
/// auto comm = whorl::Communicator::from_env();
/// std::vector<float> gradients = ...;
/// comm.all_reduce(gradients, whorlAvg);
/// ```
///
/// Collectives come in two forms: on contiguous ranges (vector, array, span,
/// ::whorl::MemoryBuffer), whose sizes are checked before the call, and on pointers with a count,
/// as in C. The last argument is a ::whorl::Stream, or nothing for an operation that is complete
/// when the call returns.
///
/// The classes live in the inline namespace `whorl::api`, so that their symbols are distinct from
/// all others of the library.
#ifndef WHORL_WHORL_HPP_
#define WHORL_WHORL_HPP_

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "whorl/elements.hpp"
#include "whorl/groups.hpp"
#include "whorl/streams.hpp"
#include "whorl/whorl.h"

namespace whorl {
inline namespace api {

/// Returns an unset configuration, to be filled in field by field.
[[nodiscard]] inline whorlConfig_t default_config() noexcept {
  return whorlConfig_t WHORL_CONFIG_INITIALIZER;
}

/// Returns the version of the library that is running, as #WHORL_VERSION_CODE.
[[nodiscard]] inline int version() {
  int code = 0;
  detail::check(whorlGetVersion(&code));
  return code;
}

/// The id of one communicator. Made in one process by create(), carried to the others as bytes.
/// An id contains a secret: do not print or publish an id.
class UniqueId {
 public:
  using Bytes = std::array<std::byte, WHORL_UNIQUE_ID_BYTES>;

  [[nodiscard]] static UniqueId create() {
    UniqueId id;
    detail::check(whorlGetUniqueId(&id.id_));
    return id;
  }
  [[nodiscard]] static UniqueId from_bytes(const Bytes& bytes) noexcept {
    UniqueId id;
    std::memcpy(id.id_.internal, bytes.data(), bytes.size());
    return id;
  }
  [[nodiscard]] Bytes bytes() const noexcept {
    Bytes out;
    std::memcpy(out.data(), id_.internal, out.size());
    return out;
  }
  [[nodiscard]] const whorlUniqueId& get() const noexcept { return id_; }

 private:
  UniqueId() = default;
  whorlUniqueId id_{};
};

/// Memory of whorlMemAlloc(): not zeroed, mappable by the other ranks of this host, so that
/// operations on it need no staging copy. A contiguous range of `T`.
template <class T>
requires std::is_trivially_copyable_v<T>
class MemoryBuffer {
 public:
  using value_type = T;
  using iterator = T*;
  using const_iterator = const T*;

  MemoryBuffer() = default;
  explicit MemoryBuffer(std::size_t count) : count_(count) {
    detail::require(count <= SIZE_MAX / sizeof(T), "The buffer would exceed the address space.");
    void* memory = nullptr;
    if (count > 0) detail::check(whorlMemAlloc(&memory, count * sizeof(T)));
    data_ = static_cast<T*>(memory);
  }
  MemoryBuffer(MemoryBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  MemoryBuffer& operator=(MemoryBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~MemoryBuffer() {
    if (data_ != nullptr) (void)whorlMemFree(data_);
  }

  [[nodiscard]] T* data() noexcept { return data_; }
  [[nodiscard]] const T* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] T* begin() noexcept { return data_; }
  [[nodiscard]] T* end() noexcept { return data_ + count_; }
  [[nodiscard]] const T* begin() const noexcept { return data_; }
  [[nodiscard]] const T* end() const noexcept { return data_ + count_; }
  [[nodiscard]] T& operator[](std::size_t i) noexcept { return data_[i]; }
  [[nodiscard]] const T& operator[](std::size_t i) const noexcept { return data_[i]; }

 private:
  T* data_ = nullptr;
  std::size_t count_ = 0;
};

/// A rank's membership in a group of ranks. Move-only; the destructor destroys it, and so gives up
/// operations for which another rank does not come within 100 ms (whorlCommDestroy()): a program
/// with operations in streams calls finalize() before the end of the scope, or waits for its
/// streams. A destructor that waited for the timeout would hold up the unwinding of an exception.
class Communicator {
 public:
  /// @name Creation
  /// @{

  /// Takes ownership of a communicator made by the C API.
  explicit Communicator(whorlComm_t comm) noexcept : comm_(comm) {}

  /// Makes a communicator with rank, size and meeting point from the launcher; rank 0 of 1 without
  /// a launcher.
  [[nodiscard]] static Communicator from_env(const whorlConfig_t* config = nullptr) {
    return make([&](whorlComm_t* comm, whorlConfig_t* c) { return whorlCommInitEnv(comm, c); },
                config);
  }
  /// Joins as `rank` of `nranks` the communicator that `id` names.
  [[nodiscard]] static Communicator join(int nranks, const UniqueId& id, int rank,
                                         const whorlConfig_t* config = nullptr) {
    return make(
        [&](whorlComm_t* comm, whorlConfig_t* c) {
          return whorlCommInitRankConfig(comm, nranks, id.get(), rank, c);
        },
        config);
  }
  /// Makes a communicator whose ranks meet at `host_port`, where rank 0 listens.
  [[nodiscard]] static Communicator join(int nranks, const std::string& host_port, int rank,
                                         const whorlConfig_t* config = nullptr) {
    return make(
        [&](whorlComm_t* comm, whorlConfig_t* c) {
          return whorlCommInitAddress(comm, nranks, host_port.c_str(), rank, c);
        },
        config);
  }
  /// Makes all ranks of a new communicator in this process; the i-th is rank i.
  [[nodiscard]] static std::vector<Communicator> join_all(int nranks) {
    detail::require(nranks > 0, "A communicator needs at least one rank.");
    std::vector<whorlComm_t> handles(static_cast<std::size_t>(nranks), nullptr);
    detail::check(whorlCommInitAll(handles.data(), nranks, nullptr));
    std::vector<Communicator> comms;
    comms.reserve(handles.size());
    for (whorlComm_t handle : handles) comms.emplace_back(handle);
    return comms;
  }
  /// Forms new communicators of ranks with equal `color`, ordered by `key`. A rank with
  /// #WHORL_SPLIT_NOCOLOR gets an empty one. Collective.
  [[nodiscard]] Communicator split(int color, int key,
                                   const whorlConfig_t* config = nullptr) const {
    return make(
        [&](whorlComm_t* comm, whorlConfig_t* c) {
          return whorlCommSplit(comm_, color, key, comm, config != nullptr ? c : nullptr);
        },
        config, comm_, color == WHORL_SPLIT_NOCOLOR);
  }
  /// Forms a communicator of the ranks that remain, after deaths of others or without `excluded`,
  /// which are found if the list is empty: whorlCommShrink() with #WHORL_SHRINK_ABORT, which ends
  /// all operations of this communicator first. To be called by the ranks that remain, each with
  /// the same list.
  [[nodiscard]] Communicator shrink(std::span<const int> excluded = {},
                                    const whorlConfig_t* config = nullptr) const {
    return make(
        [&](whorlComm_t* comm, whorlConfig_t* c) {
          return whorlCommShrink(comm_, excluded.data(), static_cast<int>(excluded.size()), comm,
                                 config != nullptr ? c : nullptr, WHORL_SHRINK_ABORT);
        },
        config, comm_);
  }
  /// @}

  Communicator() = default;
  Communicator(Communicator&& other) noexcept : comm_(std::exchange(other.comm_, nullptr)) {}
  Communicator& operator=(Communicator&& other) noexcept {
    std::swap(comm_, other.comm_);
    return *this;
  }
  ~Communicator() {
    if (comm_ != nullptr) (void)whorlCommDestroy(comm_);
  }

  /// @name State
  /// @{

  /// Returns false if empty: default-constructed, moved from, aborted, or split off without a
  /// color.
  explicit operator bool() const noexcept { return comm_ != nullptr; }
  [[nodiscard]] whorlComm_t get() const noexcept { return comm_; }
  /// Returns one figure of whorlCommMemStats().
  [[nodiscard]] std::uint64_t memory(whorlCommMemStat_t stat = whorlStatHostMemTotal) const {
    std::uint64_t bytes = 0;
    detail::check(whorlCommMemStats(comm_, stat, &bytes), comm_);
    return bytes;
  }
  [[nodiscard]] int rank() const {
    int rank = -1;
    detail::check(whorlCommUserRank(comm_, &rank), comm_);
    return rank;
  }
  [[nodiscard]] int size() const {
    int count = 0;
    detail::check(whorlCommCount(comm_, &count), comm_);
    return count;
  }
  /// Returns whorlSuccess, whorlInProgress, or the error that killed the communicator. May be
  /// called by any thread.
  [[nodiscard]] whorlResult_t async_error() const {
    whorlResult_t state = whorlSuccess;
    detail::check(whorlCommGetAsyncError(comm_, &state), comm_);
    return state;
  }
  /// Sets the timeout of the operations that this rank issues from now on.
  void set_timeout(int milliseconds) const { check(whorlCommSetTimeout(comm_, milliseconds)); }
  /// Returns the error that killed this communicator as a sentence, else the last one of this
  /// thread; empty without an error.
  [[nodiscard]] std::string last_error() const { return whorlGetLastError(comm_); }
  /// Waits until all operations of this rank are complete, however late another rank comes within
  /// their timeout.
  void finalize() { detail::check(whorlCommFinalize(comm_), comm_); }
  /// Ends all operations on every rank, and keeps this communicator for shrink().
  void revoke() const { check(whorlCommRevoke(comm_, WHORL_REVOKE_DEFAULT)); }
  /// Ends all operations on every rank and frees this one. Throws in a callback of a stream; then
  /// the communicator stays.
  void abort() {
    if (comm_ == nullptr) return;
    const whorlResult_t result = whorlCommAbort(comm_);
    if (result != whorlInvalidUsage) comm_ = nullptr; // not refused
    detail::check(result);
  }
  /// @}

  /// @name Collectives on ranges
  /// Sizes are checked; a range that a rank does not use (recv off the root, …) may be empty.
  /// @{

  template <Readable S, Writable R>
  requires SameElement<S, R>
  void all_reduce(const S& send, R&& recv, whorlRedOp_t op, void* stream = nullptr) const {
    detail::require(count_of(send) == count_of(recv),
                    "all_reduce: send and recv need the same number of elements.");
    all_reduce(std::ranges::data(send), std::ranges::data(recv), count_of(send), op, stream);
  }
  /// Reduces `data` in place.
  template <Writable R>
  void all_reduce(R&& data, whorlRedOp_t op, void* stream = nullptr) const {
    all_reduce(std::ranges::cdata(data), std::ranges::data(data), count_of(data), op, stream);
  }
  template <Readable S, Writable R>
  requires SameElement<S, R>
  void reduce(const S& send, R&& recv, whorlRedOp_t op, int root, void* stream = nullptr) const {
    detail::require(rank() != root || count_of(send) == count_of(recv),
                    "reduce: on the root, send and recv need the same number of elements.");
    reduce(std::ranges::data(send), std::ranges::data(recv), count_of(send), op, root, stream);
  }
  /// Broadcasts in place: root's `data` to everyone's `data`.
  template <Writable R>
  void broadcast(R&& data, int root, void* stream = nullptr) const {
    broadcast(std::ranges::cdata(data), std::ranges::data(data), count_of(data), root, stream);
  }
  template <Readable S, Writable R>
  requires SameElement<S, R>
  void broadcast(const S& send, R&& recv, int root, void* stream = nullptr) const {
    detail::require(rank() != root || count_of(send) == count_of(recv),
                    "broadcast: on the root, send and recv need the same number of elements.");
    broadcast(std::ranges::data(send), std::ranges::data(recv), count_of(recv), root, stream);
  }
  template <Readable S, Writable R>
  requires SameElement<S, R>
  void all_gather(const S& send, R&& recv, void* stream = nullptr) const {
    detail::require(is_multiple(count_of(recv), count_of(send)),
                    "all_gather: recv needs as many elements as all ranks send together.");
    all_gather(std::ranges::data(send), std::ranges::data(recv), count_of(send), stream);
  }
  template <Readable S, Writable R>
  requires SameElement<S, R>
  void reduce_scatter(const S& send, R&& recv, whorlRedOp_t op, void* stream = nullptr) const {
    detail::require(is_multiple(count_of(send), count_of(recv)),
                    "reduce_scatter: send needs one block of recv's size for each rank.");
    reduce_scatter(std::ranges::data(send), std::ranges::data(recv), count_of(recv), op, stream);
  }
  template <Readable S, Writable R>
  requires SameElement<S, R>
  void all_to_all(const S& send, R&& recv, void* stream = nullptr) const {
    const std::size_t block = count_of(send) / static_cast<std::size_t>(size());
    detail::require(count_of(send) == count_of(recv) && is_multiple(count_of(send), block),
                    "all_to_all: send and recv need one block of the same size for each rank.");
    all_to_all(std::ranges::data(send), std::ranges::data(recv), block, stream);
  }
  template <Readable S, Writable R>
  requires SameElement<S, R>
  void gather(const S& send, R&& recv, int root, void* stream = nullptr) const {
    detail::require(rank() != root || is_multiple(count_of(recv), count_of(send)),
                    "gather: on the root, recv needs as many elements as all ranks send together.");
    gather(std::ranges::data(send), std::ranges::data(recv), count_of(send), root, stream);
  }
  template <Readable S, Writable R>
  requires SameElement<S, R>
  void scatter(const S& send, R&& recv, int root, void* stream = nullptr) const {
    detail::require(rank() != root || is_multiple(count_of(send), count_of(recv)),
                    "scatter: on the root, send needs one block of recv's size for each rank.");
    scatter(std::ranges::data(send), std::ranges::data(recv), count_of(recv), root, stream);
  }
  template <Readable S>
  void send(const S& data, int peer, void* stream = nullptr) const {
    send(std::ranges::data(data), count_of(data), peer, stream);
  }
  template <Writable R>
  void recv(R&& data, int peer, void* stream = nullptr) const {
    recv(std::ranges::data(data), count_of(data), peer, stream);
  }
  /// Receives from the rank that sends first; `source` becomes that rank when the operation is
  /// complete.
  template <Writable R>
  void recv_any(R&& data, int& source, void* stream = nullptr) const {
    recv_any(std::ranges::data(data), count_of(data), source, stream);
  }
  /// @}

  /// @name Collectives on pointers
  /// As the C functions, with the datatype deduced. Counts are in elements.
  /// @{

  template <Element T>
  void all_reduce(const T* send, T* recv, std::size_t count, whorlRedOp_t op,
                  void* stream = nullptr) const {
    check(whorlAllReduce(send, recv, count, datatype_of<T>, op, comm_, stream));
  }
  template <Element T>
  void reduce(const T* send, T* recv, std::size_t count, whorlRedOp_t op, int root,
              void* stream = nullptr) const {
    check(whorlReduce(send, recv, count, datatype_of<T>, op, root, comm_, stream));
  }
  template <Element T>
  void broadcast(const T* send, T* recv, std::size_t count, int root,
                 void* stream = nullptr) const {
    check(whorlBroadcast(send, recv, count, datatype_of<T>, root, comm_, stream));
  }
  template <Element T>
  void all_gather(const T* send, T* recv, std::size_t send_count, void* stream = nullptr) const {
    check(whorlAllGather(send, recv, send_count, datatype_of<T>, comm_, stream));
  }
  template <Element T>
  void reduce_scatter(const T* send, T* recv, std::size_t recv_count, whorlRedOp_t op,
                      void* stream = nullptr) const {
    check(whorlReduceScatter(send, recv, recv_count, datatype_of<T>, op, comm_, stream));
  }
  /// Sends `count` elements to each peer, and receives as many from each.
  template <Element T>
  void all_to_all(const T* send, T* recv, std::size_t count, void* stream = nullptr) const {
    check(whorlAlltoAll(send, recv, count, datatype_of<T>, comm_, stream));
  }
  template <Element T>
  void gather(const T* send, T* recv, std::size_t count, int root, void* stream = nullptr) const {
    check(whorlGather(send, recv, count, datatype_of<T>, root, comm_, stream));
  }
  template <Element T>
  void scatter(const T* send, T* recv, std::size_t count, int root, void* stream = nullptr) const {
    check(whorlScatter(send, recv, count, datatype_of<T>, root, comm_, stream));
  }
  template <Element T>
  void send(const T* data, std::size_t count, int peer, void* stream = nullptr) const {
    check(whorlSend(data, count, datatype_of<T>, peer, comm_, stream));
  }
  template <Element T>
  void recv(T* data, std::size_t count, int peer, void* stream = nullptr) const {
    check(whorlRecv(data, count, datatype_of<T>, peer, comm_, stream));
  }
  template <Element T>
  void recv_any(T* data, std::size_t count, int& source, void* stream = nullptr) const {
    check(whorlRecvAny(data, count, datatype_of<T>, &source, comm_, stream));
  }
  /// Returns when every rank has entered it.
  void barrier(void* stream = nullptr) const { check(whorlBarrier(comm_, stream)); }
  /// @}

  /// @name Collectives with blocks of different sizes
  /// Blocks lie side by side in rank order; counts have one entry for each rank. A range that a
  /// rank does not use may be empty. Displacements: the C API.
  /// @{

  template <Readable S, Writable R>
  requires SameElement<S, R>
  void all_gather_v(const S& send, R&& recv, std::span<const std::size_t> counts,
                    void* stream = nullptr) const {
    require_blocks(count_of(recv), counts, "all_gather_v: recv needs as many elements as counts.");
    check(whorlAllGatherv(std::ranges::data(send), count_of(send), std::ranges::data(recv),
                          counts.data(), nullptr, datatype_of<ElementType<S>>, comm_, stream));
  }
  template <Readable S, Writable R>
  requires SameElement<S, R>
  void reduce_scatter_v(const S& send, R&& recv, std::span<const std::size_t> counts,
                        whorlRedOp_t op, void* stream = nullptr) const {
    require_blocks(count_of(send), counts,
                   "reduce_scatter_v: send needs as many elements as counts.");
    detail::require(count_of(recv) == counts[static_cast<std::size_t>(rank())],
                    "reduce_scatter_v: recv needs as many elements as this rank's count.");
    check(whorlReduceScatterv(std::ranges::data(send), std::ranges::data(recv), counts.data(),
                              datatype_of<ElementType<S>>, op, comm_, stream));
  }
  template <Readable S, Writable R>
  requires SameElement<S, R>
  void all_to_all_v(const S& send, std::span<const std::size_t> send_counts, R&& recv,
                    std::span<const std::size_t> recv_counts, void* stream = nullptr) const {
    require_blocks(count_of(send), send_counts,
                   "all_to_all_v: send needs as many elements as send_counts.");
    require_blocks(count_of(recv), recv_counts,
                   "all_to_all_v: recv needs as many elements as recv_counts.");
    check(whorlAlltoAllv(std::ranges::data(send), send_counts.data(), nullptr,
                         std::ranges::data(recv), recv_counts.data(), nullptr,
                         datatype_of<ElementType<S>>, comm_, stream));
  }
  /// Gathers blocks of different sizes at the root; `recv` and `counts` are used on the root only.
  template <Readable S, Writable R>
  requires SameElement<S, R>
  void gather_v(const S& send, R&& recv, std::span<const std::size_t> counts, int root,
                void* stream = nullptr) const {
    if (rank() == root) {
      require_blocks(count_of(recv), counts, "gather_v: recv needs as many elements as counts.");
    }
    check(whorlGatherv(std::ranges::data(send), count_of(send), std::ranges::data(recv),
                       counts.data(), nullptr, datatype_of<ElementType<S>>, root, comm_, stream));
  }
  /// Scatters blocks of different sizes from the root; `send` and `counts` are used on the root
  /// only.
  template <Readable S, Writable R>
  requires SameElement<S, R>
  void scatter_v(const S& send, std::span<const std::size_t> counts, R&& recv, int root,
                 void* stream = nullptr) const {
    if (rank() == root) {
      require_blocks(count_of(send), counts, "scatter_v: send needs as many elements as counts.");
    }
    check(whorlScatterv(std::ranges::data(send), counts.data(), nullptr, std::ranges::data(recv),
                        count_of(recv), datatype_of<ElementType<S>>, root, comm_, stream));
  }
  /// @}

 private:
  /// Makes a communicator by `create`, out of `parent` if that is not null. Within a group the C
  /// API writes the communicator only at the end, to an address that is gone by then. The creation
  /// has been collected if the C API has opened the group, and then fails the group: the error of
  /// whorlGroupEnd() is that of a refused send. `may_be_empty`: whether this rank may get no
  /// communicator. A split without a color may be collected, because it writes no communicator.
  template <class Create>
  static Communicator make(Create create, const whorlConfig_t* config, whorlComm_t parent = nullptr,
                           bool may_be_empty = false) {
    const auto refuse = [] {
      throw Error(whorlInvalidUsage,
                  "A group would make the communicator only at its end: make communicators outside "
                  "of a Group, or by join_all().");
    };
    if (detail::open_groups > 0) refuse();
    whorlConfig_t copy = config != nullptr ? *config : default_config();
    whorlComm_t comm = nullptr;
    const whorlResult_t result = create(&comm, &copy);
    if (result != whorlInProgress) detail::check(result, parent); // config->blocking was 0
    if (comm == nullptr && !may_be_empty) {
      detail::fail_group();
      refuse();
    }
    return Communicator(comm);
  }
  template <class R>
  static std::size_t count_of(const R& range) {
    return static_cast<std::size_t>(std::ranges::size(range));
  }
  [[nodiscard]] bool is_multiple(std::size_t whole, std::size_t part) const {
    return whole == part * static_cast<std::size_t>(size());
  }
  /// Checks that there is one count for each rank, and that the sum of the counts is `elements`.
  void require_blocks(std::size_t elements, std::span<const std::size_t> counts,
                      const char* sentence) const {
    detail::require(counts.size() == static_cast<std::size_t>(size()),
                    "Counts of blocks need one entry for each rank.");
    for (const std::size_t count : counts) {
      detail::require(count <= elements, sentence);
      elements -= count;
    }
    detail::require(elements == 0, sentence);
  }
  void check(whorlResult_t result) const { detail::check(result, comm_); }

  whorlComm_t comm_ = nullptr;
};

/// Registration of a buffer that will be used often (whorlCommRegister()), until destruction. The
/// communicator and the buffer must outlive the registration.
class Registration {
 public:
  template <Writable R>
  Registration(const Communicator& comm, R&& range) : comm_(comm.get()) {
    detail::check(whorlCommRegister(comm_, std::ranges::data(range),
                                    std::ranges::size(range) * sizeof(ElementType<R>), &handle_),
                  comm_);
  }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
  ~Registration() { (void)whorlCommDeregister(comm_, handle_); }

 private:
  whorlComm_t comm_;
  void* handle_ = nullptr;
};

/// An operator that multiplies this rank's input by a scalar and then sums. Converts to the
/// operator that collectives take. The communicator must outlive it.
class ScaledSum {
 public:
  template <Element T>
  ScaledSum(const Communicator& comm, T scalar) : comm_(comm.get()) {
    detail::check(
        whorlRedOpCreatePreMulSum(&op_, &scalar, datatype_of<T>, whorlScalarHostImmediate, comm_),
        comm_);
  }
  ScaledSum(const ScaledSum&) = delete;
  ScaledSum& operator=(const ScaledSum&) = delete;
  ~ScaledSum() { (void)whorlRedOpDestroy(op_, comm_); }
  // NOLINTNEXTLINE(google-explicit-constructor): it is passed where an operator is.
  operator whorlRedOp_t() const noexcept { return op_; }

 private:
  whorlComm_t comm_;
  whorlRedOp_t op_ = whorlSum;
};

} // namespace api
} // namespace whorl
#endif // WHORL_WHORL_HPP_
