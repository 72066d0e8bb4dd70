// Tests of the arguments that each kind of call accepts, and of the error for each wrong argument.
#include "api/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "tests/unit/api/world.h"

namespace whorl {
namespace {

using ::testing::HasSubstr;

constexpr int kFloat32 = static_cast<int>(DataType::kFloat32);
constexpr std::size_t kCount = 4, kBlock = kCount * sizeof(float);
constexpr int kRank = 1, kRanks = 3;

class CheckTest : public ::testing::Test {
 protected:
  /// Returns a correct call of a collective; its root, if there is one, is this rank.
  RawCall right(Collective collective) {
    return {.function = "whorlCall",
            .collective = collective,
            .send = send_.data(),
            .recv = recv_.data(),
            .count = collective == Collective::kBarrier ? 0 : kCount,
            .type = kFloat32,
            .peer = kRank};
  }
  Status check(const RawCall& call) { return check_call(call, world_.communicator(), request_); }
  /// Returns the sentence with which a call is refused, without its beginning.
  std::string refusal(const RawCall& call) {
    const Status status = check(call);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << name_of(call.collective);
    const std::string begin = "whorlCall on rank 1 of 3: ";
    EXPECT_EQ(status.message().substr(0, begin.size()), begin);
    return status.ok() ? "accepted" : status.message().substr(begin.size());
  }

  test::World world_;
  Request request_;
  alignas(64) std::array<std::byte, 1024> send_{}, recv_{};
};

/// Arguments of a collective on its root, or on any rank if there is no root.
struct Kind {
  Collective collective;
  bool root = false, peer = false, op = false;
  std::size_t in = 0, out = 0;                      ///< sizes on the root, in blocks
  bool in_elsewhere = false, out_elsewhere = false; ///< true if other ranks use the buffers
};
constexpr Kind kKinds[] = {
    {.collective = Collective::kAllReduce, .op = true, .in = 1, .out = 1},
    {.collective = Collective::kReduce,
     .root = true,
     .op = true,
     .in = 1,
     .out = 1,
     .in_elsewhere = true},
    {.collective = Collective::kBroadcast, .root = true, .in = 1, .out = 1, .out_elsewhere = true},
    {.collective = Collective::kAllGather, .in = 1, .out = kRanks},
    {.collective = Collective::kReduceScatter, .op = true, .in = kRanks, .out = 1},
    {.collective = Collective::kAllToAll, .in = kRanks, .out = kRanks},
    {.collective = Collective::kGather, .root = true, .in = 1, .out = kRanks, .in_elsewhere = true},
    {.collective = Collective::kScatter,
     .root = true,
     .in = kRanks,
     .out = 1,
     .out_elsewhere = true},
    {.collective = Collective::kBarrier},
    {.collective = Collective::kSend, .peer = true, .in = 1},
    {.collective = Collective::kRecv, .peer = true, .out = 1},
};
static_assert(std::size(kKinds) == kNumCollectives);

TEST_F(CheckTest, ARightCallBecomesItsRequest) {
  for (const Kind& kind : kKinds) {
    request_ = {};
    const RawCall call = right(kind.collective);
    const Status status = check(call);
    EXPECT_TRUE(status.ok()) << name_of(kind.collective) << ": " << status.message();
    EXPECT_EQ(request_.collective, kind.collective);
    EXPECT_EQ(request_.type, DataType::kFloat32);
    EXPECT_EQ(request_.count, call.count);
    EXPECT_EQ(request_.peer, kind.root || kind.peer ? kRank : 0);
    EXPECT_EQ(request_.send, call.send);
    EXPECT_EQ(request_.recv, call.recv);
  }
}

TEST_F(CheckTest, Datatypes) {
  for (const Kind& kind : kKinds) {
    for (int type = 0; type < kNumDataTypes; ++type) {
      RawCall call = right(kind.collective);
      call.type = type;
      EXPECT_TRUE(check(call).ok()) << name_of(kind.collective) << " " << type;
    }
    for (const int type : {-1, kNumDataTypes, 1000, INT32_MIN, INT32_MAX}) {
      RawCall call = right(kind.collective);
      call.type = type;
      EXPECT_EQ(refusal(call), "datatype is " + std::to_string(type) +
                                   ", which is none; use whorlInt8 (0) to whorlBool (14)");
    }
  }
}

TEST_F(CheckTest, RootsAndPeers) {
  for (const Kind& kind : kKinds) {
    for (const int peer : {-1, kRanks, INT32_MIN, INT32_MAX}) {
      RawCall call = right(kind.collective);
      call.peer = peer;
      if (!kind.root && !kind.peer) {
        EXPECT_TRUE(check(call).ok()) << name_of(kind.collective) << " has no root";
        continue;
      }
      EXPECT_EQ(refusal(call), std::string(kind.root ? "root" : "peer") + " is " +
                                   std::to_string(peer) + "; it must be a rank from 0 to 2");
    }
    for (int peer = 0; peer < kRanks; ++peer) {
      RawCall call = right(kind.collective);
      call.peer = peer;
      EXPECT_TRUE(check(call).ok());
    }
  }
}

TEST_F(CheckTest, ReceivesFromAnyRank) {
  RawCall call = right(Collective::kRecv);
  call.any_peer = true;
  EXPECT_EQ(refusal(call), "source is NULL; it is where the sender's rank goes");
  int source = -7;
  call.source = &source;
  EXPECT_TRUE(check(call).ok());
  EXPECT_EQ(request_.peer, kAnyRank);
  EXPECT_EQ(request_.source, &source);
  test::ThreadWorld alone(1);
  const Status status = check_call(call, *alone.comm(0)->communicator, request_);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("rank 0 of 1: there is no other rank that could send"));
}

TEST_F(CheckTest, Counts) {
  for (const Kind& kind : kKinds) {
    for (const std::size_t count : {std::size_t{1} << 48U, SIZE_MAX / 4, SIZE_MAX}) {
      RawCall call = right(kind.collective);
      call.count = count;
      EXPECT_EQ(refusal(call), "count is " + std::to_string(count) +
                                   " elements of float32, which overflows the address space with "
                                   "3 ranks; count is in elements, not bytes");
    }
    RawCall none = right(kind.collective);
    none.count = 0;
    none.send = nullptr;
    none.recv = nullptr;
    EXPECT_TRUE(check(none).ok()) << name_of(kind.collective) << " of nothing needs no buffer";
  }
}

TEST_F(CheckTest, Operators) {
  for (const Kind& kind : kKinds) {
    for (const int op : {-1, 5, 7, 11, 64, INT32_MAX}) {
      RawCall call = right(kind.collective);
      call.op = op;
      if (!kind.op) {
        EXPECT_TRUE(check(call).ok()) << name_of(kind.collective) << " has no operator";
        continue;
      }
      EXPECT_THAT(refusal(call), HasSubstr("op is " + std::to_string(op) + ", which is neither"));
    }
  }
}

TEST_F(CheckTest, OperatorsThatDoNotFitTheDatatype) {
  for (int type = 0; type < kNumDataTypes; ++type) {
    for (const ReduceOp op : kReduceOps) {
      RawCall call = right(Collective::kAllReduce);
      call.type = type;
      call.op = static_cast<int>(op);
      const bool bits = op >= ReduceOp::kBand;
      if (bits && is_float(static_cast<DataType>(type))) {
        EXPECT_THAT(refusal(call), HasSubstr("combines bits, but the datatype is " +
                                             std::string(name_of(static_cast<DataType>(type)))));
      } else if (op == ReduceOp::kAvg && static_cast<DataType>(type) == DataType::kBool) {
        EXPECT_THAT(refusal(call), HasSubstr("op is whorlAvg, but truth values have no average"));
      } else {
        EXPECT_TRUE(check(call).ok());
        EXPECT_EQ(request_.op, op);
      }
    }
  }
}

TEST_F(CheckTest, PremultipliedSums) {
  Operators::Scale scale{.type = DataType::kFloat32, .source = nullptr, .value = {}};
  scale.value[0] = std::byte{42};
  RawCall call = right(Collective::kReduce);
  call.op = world_.communicator().operators().add(scale);
  ASSERT_TRUE(check(call).ok());
  EXPECT_TRUE(request_.scaled);
  EXPECT_EQ(request_.op, ReduceOp::kSum);
  EXPECT_EQ(request_.scalar, scale.value);
  call.type = static_cast<int>(DataType::kInt8);
  EXPECT_EQ(refusal(call), "the operator was made for float32, the call has datatype int8");
  call.type = kFloat32;
  EXPECT_TRUE(world_.communicator().operators().remove(call.op));
  EXPECT_THAT(refusal(call), HasSubstr("nor an operator of this communicator that still exists"));
}

TEST_F(CheckTest, BuffersThatAreNull) {
  for (const Kind& kind : kKinds) {
    for (const bool root : {true, false}) {
      if (!root && !kind.root) continue;
      RawCall no_send = right(kind.collective), no_recv = no_send;
      no_send.peer = no_recv.peer = root ? kRank : 0;
      no_send.send = nullptr;
      no_recv.recv = nullptr;
      const std::size_t in = root || kind.in_elsewhere ? kind.in * kBlock : 0;
      const std::size_t out = root || kind.out_elsewhere ? kind.out * kBlock : 0;
      if (in > 0) {
        EXPECT_EQ(refusal(no_send),
                  "sendbuff is NULL, but " + std::to_string(in) + " bytes are read from it");
      } else {
        EXPECT_TRUE(check(no_send).ok()) << name_of(kind.collective);
      }
      if (out > 0) {
        EXPECT_EQ(refusal(no_recv),
                  "recvbuff is NULL, but " + std::to_string(out) + " bytes are written to it");
      } else {
        EXPECT_TRUE(check(no_recv).ok()) << name_of(kind.collective);
      }
    }
  }
}

TEST_F(CheckTest, BuffersAtTheEndOfTheAddressSpace) {
  for (const Kind& kind : kKinds) {
    auto* const last = reinterpret_cast<void*>(UINTPTR_MAX - kBlock / 2);
    RawCall send = right(kind.collective), recv = send;
    send.send = last;
    recv.recv = last;
    const std::string reason =
        "a buffer reaches past the end of the address space; check count and pointers";
    if (kind.in > 0) {
      EXPECT_EQ(refusal(send), reason);
    }
    if (kind.out > 0) {
      EXPECT_EQ(refusal(recv), reason);
    }
  }
}

TEST_F(CheckTest, BuffersThatOverlap) {
  for (const Kind& kind : kKinds) {
    if (kind.in == 0 || kind.out == 0) continue;
    // The smaller buffer may lie at the position of this rank's block in the larger one.
    const std::size_t in_place = kind.in == kind.out ? 0 : kRank * kBlock;
    const bool has_form = kind.collective != Collective::kAllToAll;
    const std::size_t larger = std::max(kind.in, kind.out) * kBlock;
    for (std::size_t at = 0; at <= larger; at += kBlock / 4) {
      RawCall call = right(kind.collective);
      if (kind.in <= kind.out) {
        call.send = recv_.data() + at;
      } else {
        call.recv = send_.data() + at;
      }
      if (at == larger || (has_form && at == in_place)) {
        EXPECT_TRUE(check(call).ok()) << name_of(kind.collective) << " at " << at;
      } else if (has_form) {
        EXPECT_EQ(refusal(call),
                  "sendbuff and recvbuff overlap, but not in place; for that the smaller must "
                  "begin " +
                      std::to_string(in_place) + " bytes into the larger, it begins " +
                      std::to_string(at) + " bytes into it");
      } else {
        EXPECT_EQ(refusal(call),
                  "sendbuff and recvbuff overlap; this operation cannot be done in place");
      }
    }
  }
}

TEST_F(CheckTest, TransfersOfAGroup) {
  const auto transfer = [](Collective half, int peer, std::size_t count = 1,
                           DataType type = DataType::kInt8) {
    Request request;
    request.collective = half;
    request.peer = peer;
    request.count = count;
    request.type = type;
    return request;
  };
  const auto send = [&](int peer, std::size_t count = 1) {
    return transfer(Collective::kSend, peer, count);
  };
  const auto recv = [&](int peer, std::size_t count = 1, DataType type = DataType::kInt8) {
    return transfer(Collective::kRecv, peer, count, type);
  };
  struct Case {
    std::vector<Request> batch;
    std::string error; ///< expected error; empty: accepted
  };
  const Case cases[] = {
      {{}, ""},
      {{transfer(Collective::kAllReduce, kRank)}, ""},
      {{send(0), send(2), recv(0), recv(0)}, ""},
      {{send(1), recv(1)}, ""},
      {{recv(1, 3), send(0), send(1, 3), recv(1, 4), send(1, 4)}, ""},
      {{recv(kAnyRank), recv(kAnyRank), send(0)}, ""},
      {{send(1)}, "sends 1 messages to itself and receives 0 from itself; put both halves"},
      {{recv(1), send(1), recv(1)}, "sends 1 messages to itself and receives 2 from itself"},
      {{recv(kAnyRank), send(1)}, "sends 1 messages to itself and receives 0 from itself"},
      {{send(1, 2), recv(1, 3)}, "with itself: send of 2 int8 to rank 1 meets recv of 3 int8 from"},
      {{send(1), recv(1, 1, DataType::kBool)}, "count and datatype must be equal"},
      {{send(1, 3), send(1, 4), recv(1, 4), recv(1, 3)}, "send of 3 int8 to rank 1 meets"},
      {{recv(kAnyRank), recv(0)}, "has whorlRecvAny and whorlRecv in one group"},
      {{recv(0), recv(kAnyRank)}, "has whorlRecvAny and whorlRecv in one group"},
  };
  for (const Case& one : cases) {
    const Status status = check_transfers(one.batch, world_.communicator());
    EXPECT_EQ(status.code(), one.error.empty() ? Code::kOk : Code::kInvalidUsage) << one.error;
    if (one.error.empty()) continue;
    EXPECT_EQ(status.message().substr(0, 12), "rank 1 of 3 ");
    EXPECT_THAT(status.message(), HasSubstr(one.error));
  }
}

} // namespace
} // namespace whorl
