#include "perf/scoreboard/calls.h"

#include <algorithm>
#include <bit>

namespace perf {
namespace {

constexpr std::uint32_t kFill = 0xc0dec0de; ///< no element of any result
constexpr std::size_t kPeriod = 7;          ///< inputs repeat after so many elements

std::uint32_t bits(DataType type, std::size_t value) {
  return type == XCCL(Float32) ? std::bit_cast<std::uint32_t>(static_cast<float>(value))
                               : static_cast<std::uint32_t>(value);
}

} // namespace

std::string name_of(Output output) {
  switch (output) {
    case Output::kRight:
      return "right";
    case Output::kUntouched:
      return "untouched";
    case Output::kWrong:
      return "wrong";
    case Output::kOverrun:
      break;
  }
  return "overrun";
}

Buffers::Buffers(int rank, int nranks, std::size_t count)
    : rank_(rank), nranks_(nranks), in_(count), out_(count) {}

Result Buffers::issue(const Call& call, Comm comm) {
  if (call.broadcast) {
    return XCCL(Broadcast)(in_.data(), out_.data(), call.count, call.type, call.root, comm,
                           nullptr);
  }
  return XCCL(AllReduce)(in_.data(), out_.data(), call.count, call.type, call.op, comm, nullptr);
}

Result Buffers::make(const Call& call, Comm comm) {
  const auto own = static_cast<std::size_t>(rank_) + 1;
  for (std::size_t i = 0; i < in_.size(); ++i) in_[i] = bits(call.type, own + i % kPeriod);
  std::fill(out_.begin(), out_.end(), kFill);
  return issue(call, comm);
}

Result Buffers::make(const Call& call, Comm comm, float extra) {
  in_[0] = std::bit_cast<std::uint32_t>(static_cast<float>(rank_ + 1) + extra);
  return issue(call, comm);
}

std::uint32_t Buffers::expected(const Call& call, std::size_t i) const {
  const auto n = static_cast<std::size_t>(nranks_);
  if (call.broadcast) return bits(call.type, static_cast<std::size_t>(call.root) + 1 + i % kPeriod);
  if (call.op == XCCL(Max)) return bits(call.type, n + i % kPeriod);
  return bits(call.type, n * (n + 1) / 2 + n * (i % kPeriod));
}

Output Buffers::output(const Call& call) const {
  bool right = true, untouched = true;
  for (std::size_t i = 0; i < call.count; ++i) {
    right = right && out_[i] == expected(call, i);
    untouched = untouched && out_[i] == kFill;
  }
  for (std::size_t i = call.count; i < out_.size(); ++i) {
    if (out_[i] != kFill) return Output::kOverrun;
  }
  return right ? Output::kRight : untouched ? Output::kUntouched : Output::kWrong;
}

float Buffers::first() const { return std::bit_cast<float>(out_[0]); }

bool Buffers::rest_is_right(const Call& call) const {
  for (std::size_t i = 1; i < call.count; ++i) {
    if (out_[i] != expected(call, i)) return false;
  }
  return true;
}

} // namespace perf
