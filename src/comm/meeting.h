#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "comm/oob.h"
#include "comm/communicator.h"
#include "transports/transport.h"

namespace whorl {

/// A way for the ranks of a new communicator to exchange what they need to connect, and the
/// identity they have agreed on.
struct Meeting {
  std::unique_ptr<Oob> oob;
  Identity identity;
  int rank = 0;
  int nranks = 1;
};

/// Through the all-gather of an existing communicator. All its ranks call it; those with the same
/// non-negative color form the new one, ordered by key, then by rank. `oob == nullptr` for a rank
/// without a color.
Result<Meeting> meet_by_split(Communicator& parent, int color, int key);

/// Of ranks in this process: one Meeting for each rank, to be used by a thread each.
Result<std::vector<Meeting>> meet_in_process(int nranks, std::uint64_t timeout_ns);

/// Fresh random identity.
Result<Identity> make_identity();

} // namespace whorl
