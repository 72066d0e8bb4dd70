// Tests of calls that repeat the previous one and take a shorter path: which checks must remain.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/thread_world.h"

namespace whorl::test {
namespace {

constexpr int kRanks = 3;
constexpr std::size_t kCount = 1500;

/// Runs an allreduce of `in`, in which every element is `rank` + 1, into `out`.
std::string sum(int rank, whorlComm_t comm, std::vector<float>& in, std::vector<float>& out,
                std::size_t count = kCount) {
  in.assign(in.size(), static_cast<float>(rank + 1));
  if (const std::string f = failure(
          whorlAllReduce(in.data(), out.data(), count, whorlFloat32, whorlSum, comm, nullptr),
          comm);
      !f.empty()) {
    return f;
  }
  constexpr float kExpected = kRanks * (kRanks + 1) / 2;
  for (std::size_t i = 0; i < count; ++i) {
    if (out[i] != kExpected) return "element " + std::to_string(i) + " is wrong";
  }
  return {};
}

/// Makes calls that a rank refuses by itself, and checks a word of each error.
std::string refusals(whorlComm_t comm, float* in, float* out) {
  const auto refused = [&](const void* send, void* recv, std::size_t count, int type, int op,
                           const std::string& word) -> std::string {
    const whorlResult_t result =
        whorlAllReduce(send, recv, count, static_cast<whorlDataType_t>(type),
                       static_cast<whorlRedOp_t>(op), comm, nullptr);
    if (result != whorlInvalidArgument) return "was not refused: " + word;
    const std::string text = whorlGetLastError(comm);
    return text.find(word) != std::string::npos ? std::string() : text;
  };
  const auto high = reinterpret_cast<float*>(UINTPTR_MAX - 3 * sizeof(float));
  std::string f = refused(nullptr, out, kCount, whorlFloat32, whorlSum, "sendbuff is NULL");
  if (f.empty()) f = refused(in, nullptr, kCount, whorlFloat32, whorlSum, "recvbuff is NULL");
  if (f.empty()) f = refused(in, in + 1, kCount, whorlFloat32, whorlSum, "overlap");
  if (f.empty()) f = refused(out + kCount - 1, out, kCount, whorlFloat32, whorlSum, "overlap");
  if (f.empty()) f = refused(in, high, kCount, whorlFloat32, whorlSum, "address space");
  if (f.empty()) f = refused(in, out, SIZE_MAX / 8, whorlFloat32, whorlSum, "count");
  if (f.empty()) f = refused(in, out, kCount, 99, whorlSum, "datatype");
  if (f.empty()) f = refused(in, out, kCount, whorlFloat32, 99, "op");
  return f;
}

void each_with(const char* transport, const char* slot_bytes,
               const std::function<std::string(int, whorlComm_t)>& body) {
  SCOPED_TRACE(std::string(transport) + " " + slot_bytes);
  const ScopedEnv env(
      {{"WHORL_TRANSPORTS", transport}, {"WHORL_SLOT_BYTES", slot_bytes}, {"WHORL_SLOTS", "2"}});
  ThreadWorld world(kRanks);
  world.each(body);
}

void each_world(const std::function<std::string(int, whorlComm_t)>& body) {
  for (const char* const transport : {"inproc", "tcp"}) {
    for (const char* const slot_bytes : {"256", "65536"}) each_with(transport, slot_bytes, body);
  }
}

TEST(Repeat, OnOtherBuffersAndInPlace) {
  each_world([](int rank, whorlComm_t comm) {
    std::vector<float> a(kCount), b(kCount), c(kCount), d(kCount);
    std::string f;
    for (int round = 0; f.empty() && round < 3; ++round) {
      f = sum(rank, comm, a, b);
      if (f.empty()) f = sum(rank, comm, c, d);
      if (f.empty()) f = sum(rank, comm, b, b);
      if (f.empty()) f = sum(rank, comm, b, b);
      if (f.empty()) f = sum(rank, comm, d, a);
    }
    return f;
  });
}

TEST(Repeat, ChecksWhatIsNotTheSame) {
  each_world([](int rank, whorlComm_t comm) {
    std::vector<float> in(kCount), out(kCount);
    std::string f = sum(rank, comm, in, out);
    for (int round = 0; f.empty() && round < 2; ++round) {
      f = refusals(comm, in.data(), out.data());
      if (f.empty()) f = sum(rank, comm, in, out);
    }
    return f;
  });
}

/// Checks small vectors, which go through slots, so that the result is placed at once, and larger
/// ones, which peers read in place, so that the result must wait until all have read.
TEST(Repeat, OneShotInPlaceSentAndRead) {
  const ScopedEnv env({{"WHORL_ALGO", "allreduce:oneshot"}});
  each_world([](int rank, whorlComm_t comm) {
    std::vector<float> a(kCount), b(kCount);
    std::string f;
    for (const std::size_t count : {std::size_t{1}, std::size_t{10}, kCount}) {
      for (int round = 0; f.empty() && round < 20; ++round) f = sum(rank, comm, a, a, count);
      for (int round = 0; f.empty() && round < 3; ++round) {
        f = sum(rank, comm, a, b, count);
        if (f.empty()) f = sum(rank, comm, b, a, count);
        if (f.empty()) f = sum(rank, comm, b, b, count);
      }
    }
    return f;
  });
}

/// Checks two equal calls between which the scratch memory grows, and so moves.
TEST(Repeat, AfterOtherOperations) {
  each_world([](int rank, whorlComm_t comm) {
    std::vector<float> in(kCount), out(kCount), large(64 * kCount), all(kRanks * kCount);
    std::string f;
    for (std::size_t part = 1; f.empty() && part <= 64; part *= 2) {
      f = sum(rank, comm, in, out);
      if (f.empty()) f = sum(rank, comm, large, large, part * kCount);
      const auto also = [&](whorlResult_t result) {
        if (f.empty()) f = failure(result, comm);
      };
      also(whorlReduce(in.data(), all.data(), kCount, whorlFloat32, whorlSum,
                       static_cast<int>(part % kRanks), comm, nullptr));
      also(whorlGather(in.data(), all.data(), kCount, whorlFloat32, 0, comm, nullptr));
      also(whorlAlltoAll(all.data(), large.data(), kCount, whorlFloat32, comm, nullptr));
      if (f.empty()) f = sum(rank, comm, in, out);
      also(whorlGroupStart());
      also(whorlBarrier(comm, nullptr));
      also(whorlAllGather(in.data(), all.data(), kCount, whorlFloat32, comm, nullptr));
      also(whorlGroupEnd());
      for (int block = 0; f.empty() && block < kRanks; ++block) {
        const std::size_t first = static_cast<std::size_t>(block) * kCount;
        if (all[first] != static_cast<float>(block + 1)) f = "a gathered block is wrong";
      }
      if (f.empty()) f = sum(rank, comm, in, out);
    }
    return f;
  });
}

TEST(Repeat, OfPremultipliedSumsReadsTheFactorEachTime) {
  each_world([](int, whorlComm_t comm) -> std::string {
    float factor = 0;
    whorlRedOp_t op;
    if (const std::string f = failure(
            whorlRedOpCreatePreMulSum(&op, &factor, whorlFloat32, whorlScalarDevice, comm), comm);
        !f.empty()) {
      return f;
    }
    std::vector<float> in(kCount, 1.0F), out(kCount);
    for (int round = 1; round <= 4; ++round) {
      factor = static_cast<float>(round);
      for (const whorlRedOp_t with : {op, op, whorlSum, whorlSum}) {
        const std::string f = failure(
            whorlAllReduce(in.data(), out.data(), kCount, whorlFloat32, with, comm, nullptr), comm);
        if (!f.empty()) return f;
        if (out.back() != kRanks * (with == op ? factor : 1.0F)) return "the factor is wrong";
      }
    }
    return {};
  });
}

TEST(Repeat, OfADeadCommunicatorFails) {
  each_world([](int rank, whorlComm_t comm) -> std::string {
    std::vector<float> in(kCount), out(kCount);
    std::string f = sum(rank, comm, in, out);
    if (f.empty()) f = sum(rank, comm, in, out);
    if (!f.empty()) return f;
    // Rank 0 disagrees with the others, in a call that was repeated until now.
    const auto call = [&](whorlRedOp_t op) {
      return whorlAllReduce(in.data(), out.data(), kCount, whorlFloat32, op, comm, nullptr);
    };
    if (call(rank == 0 ? whorlMax : whorlSum) == whorlSuccess && call(whorlSum) == whorlSuccess) {
      return "a disagreement went unnoticed";
    }
    if (call(whorlSum) == whorlSuccess) return "a dead communicator did something";
    return {};
  });
}

} // namespace
} // namespace whorl::test
