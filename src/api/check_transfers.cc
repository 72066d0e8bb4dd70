#include <fmt/core.h>

#include <vector>

#include "api/check.h"

namespace whorl {
namespace {

Status bad(const Communicator& communicator, const std::string& what) {
  return Status::error(Code::kInvalidUsage, fmt::format("rank {} of {} {}", communicator.rank(),
                                                        communicator.nranks(), what));
}

} // namespace

Status check_transfers(std::span<const Request> batch, const Communicator& communicator) {
  const int self = communicator.rank();
  bool any = false, named = false;
  std::vector<const Request*> sends, receives; // messages from this rank to itself
  for (const Request& request : batch) {
    if (!request.point_to_point()) continue;
    const bool is_send = request.collective == Collective::kSend;
    if (!is_send) (request.peer == kAnyRank ? any : named) = true;
    if (request.peer == self) (is_send ? sends : receives).push_back(&request);
  }
  if (any && named) {
    return bad(communicator,
               "has whorlRecvAny and whorlRecv in one group, and it would be open which of them a "
               "send meets; put them into different groups");
  }
  if (sends.size() != receives.size()) {
    return bad(communicator,
               fmt::format("sends {} messages to itself and receives {} from itself; put both "
                           "halves of each into one group",
                           sends.size(), receives.size()));
  }
  for (std::size_t i = 0; i < sends.size(); ++i) {
    const Request &from = *sends[i], &to = *receives[i];
    if (from.count == to.count && from.type == to.type) continue;
    return bad(communicator,
               fmt::format("with itself: {} meets {}; count and datatype must be equal",
                           describe(from), describe(to)));
  }
  return {};
}

} // namespace whorl
