#include "tests/support/oracle.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/convert.h"

namespace whorl::test {
namespace {

constexpr std::size_t kGuard = 128;

void store(std::byte* at, whorlDataType_t type, double value) {
  const auto put = [at](auto v) { std::memcpy(at, &v, sizeof v); };
  const auto f = static_cast<float>(value);
  switch (type) {
    case whorlInt8:
      return put(static_cast<std::int8_t>(value));
    case whorlUint8:
      return put(static_cast<std::uint8_t>(value));
    case whorlInt32:
      return put(static_cast<std::int32_t>(value));
    case whorlUint32:
      return put(static_cast<std::uint32_t>(value));
    case whorlInt64:
      return put(static_cast<std::int64_t>(value));
    case whorlUint64:
      return put(static_cast<std::uint64_t>(value));
    case whorlFloat16:
      return put(Float16::encode(f));
    case whorlFloat32:
      return put(f);
    case whorlFloat64:
      return put(value);
    case whorlBfloat16:
      return put(Bfloat16::encode(f));
    case whorlFloat8e4m3:
      return put(Float8e4m3::encode(f));
    case whorlInt16:
      return put(static_cast<std::int16_t>(value));
    case whorlUint16:
      return put(static_cast<std::uint16_t>(value));
    case whorlBool:
      return put(static_cast<std::uint8_t>(value));
    default:
      return put(Float8e5m2::encode(f));
  }
}

/// Returns rank `rank`'s input element `i`. Partial sums stay at most 8 in magnitude and partial
/// products at most 4, so they are exact in every datatype; averages are whole numbers.
double input(const CollectiveCase& c, int rank, int nranks, std::size_t i) {
  const auto r = static_cast<std::size_t>(rank);
  const auto n = static_cast<std::size_t>(nranks);
  const bool reduces = c.kind == CollectiveCase::kAllReduce || c.kind == CollectiveCase::kReduce ||
                       c.kind == CollectiveCase::kReduceScatter;
  if (!reduces) return static_cast<double>((r * 5 + i * 3 + i / 7) % 16);
  // Truth values are arbitrary bytes; half of the elements are equal on all ranks.
  if (c.type == whorlBool)
    return i % 2 == 0 ? static_cast<double>(i % 4) : static_cast<double>((r + i / 2) % n);
  switch (c.op) {
    case whorlSum:
      return (r + i) % n < 4 ? static_cast<double>(1 + i % 2) : 0;
    case whorlProd:
      return (r + i) % n < 2 ? 2 : 1;
    case whorlAvg: {
      // A sum of 8 or less is exact in 8 bits, for at most 8 ranks.
      const double even = c.type == whorlFloat8e4m3 || c.type == whorlFloat8e5m2
                              ? 1.0
                              : static_cast<double>(1 + i % 3);
      if (n < 2) return even;
      if (r == i % n) return even + 1;
      return r == (i + 1) % n ? even - 1 : even;
    }
    case whorlBand:
      return static_cast<double>(15 ^ ((r * 7 + i * 5) % 5));
    default:
      return static_cast<double>((r * 7 + i * 5) % 13);
  }
}

/// Returns the reduction of truth values, which depends only on how many ranks have a true element.
double reduced_truth(const CollectiveCase& c, int nranks, std::size_t i) {
  int number = 0;
  for (int rank = 0; rank < nranks; ++rank) number += input(c, rank, nranks, i) != 0 ? 1 : 0;
  switch (c.op) {
    case whorlProd:
    case whorlMin:
    case whorlBand:
      return number == nranks ? 1 : 0;
    case whorlBxor:
      return number % 2;
    default:
      return number > 0 ? 1 : 0;
  }
}

double reduced(const CollectiveCase& c, int nranks, std::size_t i) {
  if (c.type == whorlBool) return reduced_truth(c, nranks, i);
  const auto bits = [](double value) { return static_cast<unsigned>(value); };
  double result = input(c, 0, nranks, i);
  for (int rank = 1; rank < nranks; ++rank) {
    const double value = input(c, rank, nranks, i);
    switch (c.op) {
      case whorlProd:
        result *= value;
        break;
      case whorlMax:
        result = std::max(result, value);
        break;
      case whorlMin:
        result = std::min(result, value);
        break;
      case whorlBand:
        result = bits(result) & bits(value);
        break;
      case whorlBor:
        result = bits(result) | bits(value);
        break;
      case whorlBxor:
        result = bits(result) ^ bits(value);
        break;
      default:
        result += value;
        break;
    }
  }
  return c.op == whorlAvg ? result / nranks : result;
}

std::size_t blocks(bool all, int nranks) { return all ? static_cast<std::size_t>(nranks) : 1; }

} // namespace

std::size_t size_of(whorlDataType_t type) {
  constexpr std::size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1, 2, 2, 1};
  return kSizes[type];
}

std::string CollectiveCase::text() const {
  constexpr const char* kNames[] = {"allreduce",     "reduce",   "broadcast", "allgather",
                                    "reducescatter", "alltoall", "gather",    "scatter"};
  return std::string(kNames[kind]) + " count=" + std::to_string(count) +
         " type=" + std::to_string(type) + " op=" + std::to_string(op) +
         " root=" + std::to_string(root) + (in_place ? " in place" : "");
}

std::vector<CollectiveCase> every_case(const std::vector<std::size_t>& counts) {
  std::vector<CollectiveCase> cases;
  for (const CollectiveCase::Kind kind : CollectiveCase::kKinds) {
    for (const bool in_place : {false, true}) {
      if (in_place && kind == CollectiveCase::kAllToAll) continue;
      for (const std::size_t count : counts) {
        cases.push_back({.kind = kind, .count = count, .in_place = in_place});
      }
    }
  }
  return cases;
}

Buffers::Buffers(const CollectiveCase& c, int rank, int nranks)
    : c_(c), rank_(rank), nranks_(nranks) {
  using Kind = CollectiveCase::Kind;
  const std::size_t block = c.count * size_of(c.type);
  const bool root = rank == c.root;
  in_bytes_ = block * blocks(c.kind == Kind::kReduceScatter || c.kind == Kind::kAllToAll ||
                                 c.kind == Kind::kScatter,
                             nranks);
  out_bytes_ = block * blocks(c.kind == Kind::kAllGather || c.kind == Kind::kAllToAll ||
                                  c.kind == Kind::kGather,
                              nranks);
  if (!root && (c.kind == Kind::kBroadcast || c.kind == Kind::kScatter)) in_bytes_ = 0;
  if (!root && (c.kind == Kind::kReduce || c.kind == Kind::kGather)) out_bytes_ = 0;

  const auto own = static_cast<std::size_t>(rank) * block;
  std::size_t in_at = kGuard, out_at = kGuard, size = std::max(in_bytes_, out_bytes_);
  if (!c.in_place) {
    out_at += in_bytes_ + kGuard;
    size = in_bytes_ + kGuard + out_bytes_;
  } else if (c.kind == Kind::kAllGather || (c.kind == Kind::kGather && root)) {
    in_at += own;
  } else if (c.kind == Kind::kReduceScatter || (c.kind == Kind::kScatter && root)) {
    out_at += own;
  }
  memory_.assign(size + 2 * kGuard, std::byte{0x5a});
  send_ = memory_.data() + in_at;
  recv_ = memory_.data() + out_at;
  const std::size_t element = size_of(c.type);
  for (std::size_t i = 0; i < in_bytes_ / element; ++i) {
    store(send_ + i * element, c.type, input(c, rank, nranks, i));
  }
  before_ = memory_;
}

whorlResult_t Buffers::run(whorlComm_t comm, void* stream) {
  return run_on(memory_.data(), comm, stream);
}

whorlResult_t Buffers::run_on(std::byte* copy, whorlComm_t comm, void* stream) const {
  using Kind = CollectiveCase::Kind;
  const std::byte* const send = copy + (send_ - memory_.data());
  std::byte* const recv = copy + (recv_ - memory_.data());
  switch (c_.kind) {
    case Kind::kAllReduce:
      return whorlAllReduce(send, recv, c_.count, c_.type, c_.op, comm, stream);
    case Kind::kReduce:
      return whorlReduce(send, recv, c_.count, c_.type, c_.op, c_.root, comm, stream);
    case Kind::kBroadcast:
      return whorlBroadcast(send, recv, c_.count, c_.type, c_.root, comm, stream);
    case Kind::kAllGather:
      return whorlAllGather(send, recv, c_.count, c_.type, comm, stream);
    case Kind::kReduceScatter:
      return whorlReduceScatter(send, recv, c_.count, c_.type, c_.op, comm, stream);
    case Kind::kAllToAll:
      return whorlAlltoAll(send, recv, c_.count, c_.type, comm, stream);
    case Kind::kGather:
      return whorlGather(send, recv, c_.count, c_.type, c_.root, comm, stream);
    case Kind::kScatter:
      return whorlScatter(send, recv, c_.count, c_.type, c_.root, comm, stream);
  }
  return whorlInternalError;
}

std::string Buffers::check() const {
  using Kind = CollectiveCase::Kind;
  const std::size_t element = size_of(c_.type);
  std::vector<std::byte> expected = before_;
  std::byte* const out = expected.data() + (recv_ - memory_.data());
  for (std::size_t i = 0; i < out_bytes_ / element; ++i) {
    const std::size_t block = c_.count == 0 ? 0 : i / c_.count;
    const std::size_t within = c_.count == 0 ? 0 : i % c_.count;
    const auto own = static_cast<std::size_t>(rank_) * c_.count;
    const int from = static_cast<int>(block);
    double value = 0;
    switch (c_.kind) {
      case Kind::kAllReduce:
      case Kind::kReduce:
        value = reduced(c_, nranks_, i);
        break;
      case Kind::kReduceScatter:
        value = reduced(c_, nranks_, own + i);
        break;
      case Kind::kBroadcast:
        value = input(c_, c_.root, nranks_, i);
        break;
      case Kind::kScatter:
        value = input(c_, c_.root, nranks_, own + i);
        break;
      case Kind::kAllGather:
      case Kind::kGather:
        value = input(c_, from, nranks_, within);
        break;
      case Kind::kAllToAll:
        value = input(c_, from, nranks_, own + within);
        break;
    }
    store(out + i * element, c_.type, value);
  }
  // In place, operations such as reduce-scatter may use the rest of the larger buffer only for
  // reading.
  const auto difference = std::mismatch(expected.begin(), expected.end(), memory_.begin());
  if (difference.first == expected.end()) return {};
  const auto at = difference.first - expected.begin();
  return c_.text() + ": rank " + std::to_string(rank_) + " of " + std::to_string(nranks_) +
         ": byte " + std::to_string(at - (recv_ - memory_.data())) + " of recvbuff is " +
         std::to_string(static_cast<int>(*difference.second)) + ", not " +
         std::to_string(static_cast<int>(*difference.first));
}

namespace {

std::string error_of(whorlResult_t result, whorlComm_t comm) {
  return result == whorlSuccess ? "" : whorlGetLastError(comm);
}

} // namespace

std::string run_all_kinds(int rank, int nranks, whorlComm_t comm,
                          const std::vector<std::size_t>& counts) {
  for (CollectiveCase c : every_case(counts)) {
    c.root = nranks - 1;
    Buffers buffers(c, rank, nranks);
    if (std::string error = error_of(buffers.run(comm), comm); !error.empty()) {
      return c.text() + ": " + error;
    }
    if (std::string difference = buffers.check(); !difference.empty()) return difference;
  }
  return {};
}

std::string pass_around(int rank, int nranks, whorlComm_t comm) {
  const int next = (rank + 1) % nranks, previous = (rank + nranks - 1) % nranks;
  std::vector<int> out(50'000, rank), in(out.size());
  whorlGroupStart();
  whorlSend(out.data(), out.size(), whorlInt32, next, comm, nullptr);
  whorlRecv(in.data(), in.size(), whorlInt32, previous, comm, nullptr);
  if (std::string error = error_of(whorlGroupEnd(), comm); !error.empty()) return error;
  if (in == std::vector<int>(out.size(), previous)) return {};
  return "rank " + std::to_string(rank) + " has received something other than what rank " +
         std::to_string(previous) + " has sent";
}

} // namespace whorl::test
