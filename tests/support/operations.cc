#include "tests/support/operations.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "tests/support/oracle.h"

namespace whorl::test {
namespace {

Blocks even(const Arguments& a, int nranks) {
  return Blocks(static_cast<std::size_t>(nranks), a.count);
}

Blocks uneven(const Arguments& a, int nranks) {
  Blocks blocks = even(a, nranks);
  if (a.cycle == 0) {
    ++blocks.back();
  } else {
    for (std::size_t rank = 0; rank < blocks.size(); ++rank) blocks[rank] += rank % a.cycle;
  }
  return blocks;
}

std::size_t own(const Blocks& blocks, const Caller& c) {
  return blocks[static_cast<std::size_t>(c.rank)];
}

whorlResult_t all_reduce(const Arguments& a, const Caller& c) {
  return whorlAllReduce(c.send, c.recv, a.count, a.type, a.op, c.comm, nullptr);
}

whorlResult_t reduce(const Arguments& a, const Caller& c) {
  return whorlReduce(c.send, c.recv, a.count, a.type, a.op, a.root, c.comm, nullptr);
}

whorlResult_t broadcast_to_all(const Arguments& a, const Caller& c) {
  return whorlBroadcast(c.send, c.recv, a.count, a.type, a.root, c.comm, nullptr);
}

whorlResult_t all_gather(const Arguments& a, const Caller& c) {
  return whorlAllGather(c.send, c.recv, a.count, a.type, c.comm, nullptr);
}

whorlResult_t reduce_scatter(const Arguments& a, const Caller& c) {
  return whorlReduceScatter(c.send, c.recv, a.count, a.type, a.op, c.comm, nullptr);
}

whorlResult_t all_to_all(const Arguments& a, const Caller& c) {
  return whorlAlltoAll(c.send, c.recv, a.count, a.type, c.comm, nullptr);
}

whorlResult_t gather(const Arguments& a, const Caller& c) {
  return whorlGather(c.send, c.recv, a.count, a.type, a.root, c.comm, nullptr);
}

whorlResult_t scatter(const Arguments& a, const Caller& c) {
  return whorlScatter(c.send, c.recv, a.count, a.type, a.root, c.comm, nullptr);
}

whorlResult_t barrier(const Arguments&, const Caller& c) { return whorlBarrier(c.comm, nullptr); }

whorlResult_t all_gatherv(const Arguments& a, const Caller& c) {
  const Blocks blocks = uneven(a, c.nranks);
  return whorlAllGatherv(c.send, own(blocks, c), c.recv, blocks.data(), nullptr, a.type, c.comm,
                         nullptr);
}

whorlResult_t reduce_scatterv(const Arguments& a, const Caller& c) {
  return whorlReduceScatterv(c.send, c.recv, uneven(a, c.nranks).data(), a.type, a.op, c.comm,
                             nullptr);
}

whorlResult_t all_to_allv(const Arguments& a, const Caller& c) {
  const Blocks blocks = uneven(a, c.nranks);
  const Blocks sent(blocks.size(), own(blocks, c));
  return whorlAlltoAllv(c.send, sent.data(), nullptr, c.recv, blocks.data(), nullptr, a.type,
                        c.comm, nullptr);
}

whorlResult_t gatherv(const Arguments& a, const Caller& c) {
  const Blocks blocks = uneven(a, c.nranks);
  return whorlGatherv(c.send, own(blocks, c), c.recv, blocks.data(), nullptr, a.type, a.root,
                      c.comm, nullptr);
}

whorlResult_t scatterv(const Arguments& a, const Caller& c) {
  const Blocks blocks = uneven(a, c.nranks);
  return whorlScatterv(c.send, blocks.data(), nullptr, c.recv, own(blocks, c), a.type, a.root,
                       c.comm, nullptr);
}

/// Sends to the rank at the distance and receives from the one at that distance before.
whorlResult_t pass_on(const Arguments& a, const Caller& c) {
  const int to = (c.rank + a.distance) % c.nranks;
  const int from = (c.rank + c.nranks - a.distance) % c.nranks;
  whorlGroupStart();
  whorlSend(c.send, a.count, a.type, to, c.comm, nullptr);
  whorlRecv(c.recv, a.count, a.type, from, c.comm, nullptr);
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

using Result = std::vector<std::int32_t>;

/// Appends elements that one rank sends.
void append(Result& result, int rank, std::size_t first, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) result.push_back(element(rank, first + i));
}

/// Returns elements that one rank sends.
Result sent_by(int rank, std::size_t first, std::size_t count) {
  Result result;
  append(result, rank, first, count);
  return result;
}

/// Returns the sums of elements that all ranks send.
Result sums(const Caller& c, std::size_t first, std::size_t count) {
  Result result;
  for (std::size_t i = first; i < first + count; ++i) {
    std::int32_t sum = 0;
    for (int rank = 0; rank < c.nranks; ++rank) sum += element(rank, i);
    result.push_back(sum);
  }
  return result;
}

/// Returns where the block of the caller's rank begins.
std::size_t offset(const Blocks& blocks, const Caller& c) {
  return std::accumulate(blocks.begin(), blocks.begin() + c.rank, std::size_t{0});
}

Result reduced(const Blocks&, const Arguments& a, const Caller& c) { return sums(c, 0, a.count); }

Result reduced_on_root(const Blocks& blocks, const Arguments& a, const Caller& c) {
  return c.rank == a.root ? reduced(blocks, a, c) : Result();
}

Result reduced_block(const Blocks& blocks, const Arguments&, const Caller& c) {
  return sums(c, offset(blocks, c), own(blocks, c));
}

Result broadcast(const Blocks&, const Arguments& a, const Caller&) {
  return sent_by(a.root, 0, a.count);
}

Result scattered(const Blocks& blocks, const Arguments& a, const Caller& c) {
  return sent_by(a.root, offset(blocks, c), own(blocks, c));
}

Result gathered(const Blocks& blocks, const Arguments&, const Caller&) {
  Result result;
  for (std::size_t rank = 0; rank < blocks.size(); ++rank) {
    append(result, static_cast<int>(rank), 0, blocks[rank]);
  }
  return result;
}

Result gathered_on_root(const Blocks& blocks, const Arguments& a, const Caller& c) {
  return c.rank == a.root ? gathered(blocks, a, c) : Result();
}

/// Returns blocks of all ranks, each of which sends blocks of one size to all.
Result exchanged(const Blocks& blocks, const Arguments&, const Caller& c) {
  Result result;
  for (std::size_t rank = 0; rank < blocks.size(); ++rank) {
    append(result, static_cast<int>(rank), static_cast<std::size_t>(c.rank) * blocks[rank],
           blocks[rank]);
  }
  return result;
}

Result passed_on(const Blocks&, const Arguments& a, const Caller& c) {
  return sent_by((c.rank + c.nranks - a.distance) % c.nranks, 0, a.count);
}

const std::array kOperations{
    Operation{.name = "allreduce",
              .called = "allreduce",
              .reduces = true,
              .call = all_reduce,
              .result = reduced},
    Operation{.name = "reduce",
              .called = "reduce",
              .reduces = true,
              .rooted = true,
              .call = reduce,
              .result = reduced_on_root},
    Operation{.name = "broadcast",
              .called = "broadcast",
              .rooted = true,
              .call = broadcast_to_all,
              .result = broadcast},
    Operation{.name = "allgather", .called = "allgather", .call = all_gather, .result = gathered},
    Operation{.name = "reducescatter",
              .called = "reducescatter",
              .reduces = true,
              .call = reduce_scatter,
              .result = reduced_block},
    Operation{.name = "alltoall", .called = "alltoall", .call = all_to_all, .result = exchanged},
    Operation{.name = "gather",
              .called = "gather",
              .rooted = true,
              .call = gather,
              .result = gathered_on_root},
    Operation{.name = "scatter",
              .called = "scatter",
              .rooted = true,
              .call = scatter,
              .result = scattered},
    Operation{.name = "barrier", .called = "barrier", .counts = false, .call = barrier},
    Operation{.name = "allgatherv",
              .called = "allgatherv",
              .uneven = true,
              .call = all_gatherv,
              .result = gathered},
    Operation{.name = "reducescatterv",
              .called = "reducescatterv",
              .uneven = true,
              .reduces = true,
              .call = reduce_scatterv,
              .result = reduced_block},
    Operation{.name = "alltoallv",
              .called = "alltoallv",
              .uneven = true,
              .call = all_to_allv,
              .result = exchanged},
    Operation{.name = "gatherv",
              .called = "gatherv",
              .uneven = true,
              .rooted = true,
              .call = gatherv,
              .result = gathered_on_root},
    Operation{.name = "scatterv",
              .called = "scatterv",
              .uneven = true,
              .rooted = true,
              .call = scatterv,
              .result = scattered},
    Operation{.name = "sendrecv", .called = "(send|recv)", .call = pass_on, .result = passed_on},
    Operation{.name = "recvany", .called = "(send|recv|barrier)", .rooted = true, .call = collect},
};

} // namespace

std::span<const Operation> operations() { return kOperations; }

const Operation& operation(std::string_view name) {
  return *std::find_if(kOperations.begin(), kOperations.end(),
                       [name](const Operation& one) { return one.name == name; });
}

Blocks blocks_of(const Operation& operation, const Arguments& arguments, int nranks) {
  return operation.uneven ? uneven(arguments, nranks) : even(arguments, nranks);
}

std::size_t buffer_bytes(const Arguments& arguments, int nranks) {
  return (arguments.count + 2) * static_cast<std::size_t>(nranks) * size_of(arguments.type);
}

} // namespace whorl::test
