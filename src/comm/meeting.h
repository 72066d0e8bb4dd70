#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "comm/bootstrap.h"
#include "comm/communicator.h"
#include "transports/transport.h"

namespace whorl {

/// The ranks of a communicator to be, ready to exchange what they need to connect.
struct Gathering {
  std::unique_ptr<Oob> oob;
  Identity identity;
  int rank = 0;
  int nranks = 1;
};

/// Through the all-gather of an existing communicator. All its ranks call it; those with the same
/// non-negative color form the new one, ordered by key, then by rank. Ranks without
/// a color get a gathering of their own kind.
Result<Gathering> meet_by_split(Communicator& parent, int color, int key);

/// Of ranks in this process: one Gathering for each rank, to be used by a thread each.
Result<std::vector<Gathering>> meet_in_process(int nranks, std::uint64_t timeout_ns);

/// As the launcher of this process says (see launcher.h). Several in a row are fine.
Result<Gathering> meet_by_launcher(std::uint64_t timeout_ns, const Verdict& verdict);

} // namespace whorl
