#include "tests/faults/operations.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "tests/support/oracle.h"

namespace whorl::test {
namespace {

/// Returns the sizes of blocks that differ between ranks: the last rank's is one larger.
std::vector<std::size_t> uneven(const Arguments& a, const Caller& c) {
  std::vector<std::size_t> counts(static_cast<std::size_t>(c.nranks), a.count);
  ++counts.back();
  return counts;
}

std::size_t own(const std::vector<std::size_t>& counts, const Caller& c) {
  return counts[static_cast<std::size_t>(c.rank)];
}

whorlResult_t all_gatherv(const Arguments& a, const Caller& c) {
  const auto counts = uneven(a, c);
  return whorlAllGatherv(c.send, own(counts, c), c.recv, counts.data(), nullptr, a.type, c.comm,
                         nullptr);
}

whorlResult_t reduce_scatterv(const Arguments& a, const Caller& c) {
  return whorlReduceScatterv(c.send, c.recv, uneven(a, c).data(), a.type, a.op, c.comm, nullptr);
}

whorlResult_t all_to_allv(const Arguments& a, const Caller& c) {
  const auto counts = uneven(a, c);
  const std::vector<std::size_t> sent(counts.size(), own(counts, c));
  return whorlAlltoAllv(c.send, sent.data(), nullptr, c.recv, counts.data(), nullptr, a.type,
                        c.comm, nullptr);
}

whorlResult_t gatherv(const Arguments& a, const Caller& c) {
  const auto counts = uneven(a, c);
  return whorlGatherv(c.send, own(counts, c), c.recv, counts.data(), nullptr, a.type, a.root,
                      c.comm, nullptr);
}

whorlResult_t scatterv(const Arguments& a, const Caller& c) {
  const auto counts = uneven(a, c);
  return whorlScatterv(c.send, counts.data(), nullptr, c.recv, own(counts, c), a.type, a.root,
                       c.comm, nullptr);
}

/// Sends to the next rank and receives from the previous one.
whorlResult_t pass_on(const Arguments& a, const Caller& c) {
  whorlGroupStart();
  whorlSend(c.send, a.count, a.type, (c.rank + 1) % c.nranks, c.comm, nullptr);
  whorlRecv(c.recv, a.count, a.type, (c.rank + c.nranks - 1) % c.nranks, c.comm, nullptr);
  return whorlGroupEnd();
}

/// Receives from all others at the root, in any order, and sends to the root elsewhere. A barrier
/// keeps one rank from sending in place of another.
whorlResult_t collect(const Arguments& a, const Caller& c) {
  whorlResult_t result = whorlSuccess;
  if (c.rank != a.root) result = whorlSend(c.send, a.count, a.type, a.root, c.comm, nullptr);
  for (int i = 1; i < c.nranks && c.rank == a.root && result == whorlSuccess; ++i) {
    int source = -1;
    result = whorlRecvAny(c.recv, a.count, a.type, &source, c.comm, nullptr);
  }
  return result == whorlSuccess ? whorlBarrier(c.comm, nullptr) : result;
}

const std::array kOperations{
    Operation{.name = "allreduce",
              .called = "allreduce",
              .reduces = true,
              .call =
                  [](const Arguments& a, const Caller& c) {
                    return whorlAllReduce(c.send, c.recv, a.count, a.type, a.op, c.comm, nullptr);
                  }},
    Operation{.name = "reduce",
              .called = "reduce",
              .reduces = true,
              .rooted = true,
              .call =
                  [](const Arguments& a, const Caller& c) {
                    return whorlReduce(c.send, c.recv, a.count, a.type, a.op, a.root, c.comm,
                                       nullptr);
                  }},
    Operation{.name = "broadcast",
              .called = "broadcast",
              .rooted = true,
              .call =
                  [](const Arguments& a, const Caller& c) {
                    return whorlBroadcast(c.send, c.recv, a.count, a.type, a.root, c.comm, nullptr);
                  }},
    Operation{.name = "allgather",
              .called = "allgather",
              .call =
                  [](const Arguments& a, const Caller& c) {
                    return whorlAllGather(c.send, c.recv, a.count, a.type, c.comm, nullptr);
                  }},
    Operation{.name = "reducescatter",
              .called = "reducescatter",
              .reduces = true,
              .call =
                  [](const Arguments& a, const Caller& c) {
                    return whorlReduceScatter(c.send, c.recv, a.count, a.type, a.op, c.comm,
                                              nullptr);
                  }},
    Operation{.name = "alltoall",
              .called = "alltoall",
              .call =
                  [](const Arguments& a, const Caller& c) {
                    return whorlAlltoAll(c.send, c.recv, a.count, a.type, c.comm, nullptr);
                  }},
    Operation{.name = "gather",
              .called = "gather",
              .rooted = true,
              .call =
                  [](const Arguments& a, const Caller& c) {
                    return whorlGather(c.send, c.recv, a.count, a.type, a.root, c.comm, nullptr);
                  }},
    Operation{.name = "scatter",
              .called = "scatter",
              .rooted = true,
              .call =
                  [](const Arguments& a, const Caller& c) {
                    return whorlScatter(c.send, c.recv, a.count, a.type, a.root, c.comm, nullptr);
                  }},
    Operation{
        .name = "barrier",
        .called = "barrier",
        .counts = false,
        .call = [](const Arguments&, const Caller& c) { return whorlBarrier(c.comm, nullptr); }},
    Operation{.name = "allgatherv", .called = "allgatherv", .call = all_gatherv},
    Operation{.name = "reducescatterv",
              .called = "reducescatterv",
              .reduces = true,
              .call = reduce_scatterv},
    Operation{.name = "alltoallv", .called = "alltoallv", .call = all_to_allv},
    Operation{.name = "gatherv", .called = "gatherv", .rooted = true, .call = gatherv},
    Operation{.name = "scatterv", .called = "scatterv", .rooted = true, .call = scatterv},
    Operation{.name = "sendrecv", .called = "(send|recv)", .call = pass_on},
    Operation{.name = "recvany", .called = "(send|recv|barrier)", .rooted = true, .call = collect},
};

} // namespace

std::span<const Operation> operations() { return kOperations; }

const Operation& operation(std::string_view name) {
  return *std::find_if(kOperations.begin(), kOperations.end(),
                       [name](const Operation& one) { return one.name == name; });
}

std::size_t buffer_bytes(const Arguments& arguments, int nranks) {
  return (arguments.count + 1) * static_cast<std::size_t>(nranks) * size_of(arguments.type);
}

} // namespace whorl::test
