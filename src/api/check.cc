#include "api/check.h"

#include <fmt/core.h>

#include <cstdint>
#include <limits>

namespace whorl {
namespace {

/// State of the check of one call, from which error sentences are made.
class Checker {
 public:
  Checker(const RawCall& call, const Communicator& communicator, Request& request)
      : call_(call), communicator_(communicator), request_(request) {}

  Status check() {
    if (const Status none =
            communicator_.selector().check(call_.collective, communicator_.nranks());
        !none.ok()) {
      return bad(none.message());
    }
    WHORL_TRY(check_types());
    WHORL_TRY(check_peer());
    WHORL_TRY(check_sizes());
    WHORL_TRY(check_operator());
    request_.send = call_.send;
    request_.recv = call_.recv;
    return check_buffers();
  }

 private:
  Status bad(const std::string& what) const {
    return Status::error(Code::kInvalidArgument,
                         fmt::format("{} on rank {} of {}: {}", call_.function,
                                     communicator_.rank(), communicator_.nranks(), what));
  }

  Status check_types() {
    request_.collective = call_.collective;
    if (call_.type < 0 || call_.type >= kNumDataTypes) {
      return bad(fmt::format("datatype is {}, which is none; use whorlInt8 (0) to whorlBool ({})",
                             call_.type, kNumDataTypes - 1));
    }
    request_.type = static_cast<DataType>(call_.type);
    return {};
  }

  Status check_peer() {
    if (!has_root(call_.collective) && !request_.point_to_point()) return {};
    if (call_.any_peer) {
      if (call_.source == nullptr) return bad("source is NULL; it is where the sender's rank goes");
      if (communicator_.nranks() == 1) {
        return bad("there is no other rank that could send; a rank receives from itself by name");
      }
      request_.peer = kAnyRank;
      request_.source = call_.source;
      return {};
    }
    if (call_.peer < 0 || call_.peer >= communicator_.nranks()) {
      return bad(fmt::format("{} is {}; it must be a rank from 0 to {}",
                             has_root(call_.collective) ? "root" : "peer", call_.peer,
                             communicator_.nranks() - 1));
    }
    request_.peer = call_.peer;
    return {};
  }

  Status check_sizes() {
    request_.count = call_.count;
    constexpr std::size_t kModest = std::size_t{1} << 40; // overflows with no type and no job
    static_assert(kModest * 8 * (std::size_t{1} << 16) <=
                  std::numeric_limits<std::ptrdiff_t>::max());
    if (call_.count <= kModest && communicator_.nranks() <= 1 << 16) return {};
    const auto ranks = static_cast<std::size_t>(communicator_.nranks());
    const std::size_t limit = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) /
                              size_of(request_.type) / ranks;
    if (call_.count > limit || call_.count > Fingerprint::kMaxCount) {
      return bad(
          fmt::format("count is {} elements of {}, which overflows the address space with {} "
                      "ranks; count is in elements, not bytes",
                      call_.count, name_of(request_.type), ranks));
    }
    return {};
  }

  Status check_operator() {
    if (!reduces(call_.collective)) return {};
    if (is_reduce_op(call_.op)) {
      request_.op = static_cast<ReduceOp>(call_.op);
      if (combines(request_.type, request_.op)) return {};
      if (request_.type == DataType::kBool) {
        return bad(
            "op is whorlAvg, but truth values have no average; reduce them as whorlUint8, or use "
            "whorlBor or whorlBand");
      }
      return bad(fmt::format(
          "op is {}, which combines bits, but the datatype is {}; bitwise operators are "
          "for integers and whorlBool",
          name_of(request_.op), name_of(request_.type)));
    }
    const auto scale = communicator_.operators().find(call_.op);
    if (!scale) {
      return bad(
          fmt::format("op is {}, which is neither whorlSum (0) to whorlAvg (4), whorlBand (8), "
                      "whorlBor (9), whorlBxor (10), nor an operator of this communicator that "
                      "still exists",
                      call_.op));
    }
    if (scale->type != request_.type) {
      return bad(fmt::format("the operator was made for {}, the call has datatype {}",
                             name_of(scale->type), name_of(request_.type)));
    }
    request_.op = ReduceOp::kSum;
    request_.scaled = true;
    request_.scalar_source = scale->source;
    request_.scalar = scale->value;
    return {};
  }

  /// Whether [pointer, pointer + bytes) passes the end of the address space.
  static bool wraps(const void* pointer, std::size_t bytes) {
    return reinterpret_cast<std::uintptr_t>(pointer) + bytes <
           reinterpret_cast<std::uintptr_t>(pointer);
  }

  /// Returns the offset of the smaller buffer in the larger one in the collective's in-place form.
  std::optional<std::ptrdiff_t> in_place_offset() const {
    const auto block = static_cast<std::ptrdiff_t>(request_.count * size_of(request_.type));
    switch (request_.collective) {
      case Collective::kAllReduce:
      case Collective::kReduce:
      case Collective::kBroadcast:
        return 0;
      case Collective::kAllGather:
      case Collective::kReduceScatter:
        return communicator_.rank() * block;
      case Collective::kGather:
      case Collective::kScatter:
        return request_.peer * block;
      case Collective::kAllToAll:
      case Collective::kBarrier:
      case Collective::kSend:
      case Collective::kRecv:
        break;
    }
    return std::nullopt;
  }

  Status check_buffers() {
    const int rank = communicator_.rank();
    const std::size_t in = input_bytes(request_, rank, communicator_.nranks());
    const std::size_t out = output_bytes(request_, rank, communicator_.nranks());
    if (in > 0 && call_.send == nullptr) {
      return bad(fmt::format("sendbuff is NULL, but {} bytes are read from it", in));
    }
    if (out > 0 && call_.recv == nullptr) {
      return bad(fmt::format("recvbuff is NULL, but {} bytes are written to it", out));
    }
    if (wraps(call_.send, in) || wraps(call_.recv, out)) {
      return bad("a buffer reaches past the end of the address space; check count and pointers");
    }
    if (in == 0 || out == 0) return {};
    const auto* const send = static_cast<const std::byte*>(call_.send);
    const auto* const recv = static_cast<const std::byte*>(call_.recv);
    const auto send_at = reinterpret_cast<std::uintptr_t>(send);
    const auto recv_at = reinterpret_cast<std::uintptr_t>(recv);
    if (send_at + in <= recv_at || recv_at + out <= send_at) return {};
    if (const auto offset = in_place_offset()) {
      const auto distance =
          static_cast<std::ptrdiff_t>(in <= out ? send_at - recv_at : recv_at - send_at);
      if (distance == *offset) return {};
      return bad(
          fmt::format("sendbuff and recvbuff overlap, but not in place; for that the smaller "
                      "must begin {} bytes into the larger, it begins {} bytes into it",
                      *offset, distance));
    }
    return bad("sendbuff and recvbuff overlap; this operation cannot be done in place");
  }

  const RawCall& call_;
  const Communicator& communicator_;
  Request& request_;
};

} // namespace

Status check_call(const RawCall& call, const Communicator& communicator, Request& request) {
  return Checker(call, communicator, request).check();
}

} // namespace whorl
