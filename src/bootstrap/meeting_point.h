#pragma once

#include <string_view>

#include "base/status.h"
#include "bootstrap/root.h"
#include "bootstrap/unique_id.h"

namespace whorl {

/// Makes a meeting point: the id of a host of this process that serves any number of rendezvous,
/// one for each name, each with a secret of its own. All points of a process and scope share
/// sockets and a thread, which last as long as the process. The point is for derive_id() only.
Result<UniqueId> make_meeting_point(RootScope scope);

/// Derives the id of the rendezvous `name` from a meeting point. Equal points and names give equal
/// ids.
Result<UniqueId> derive_id(const UniqueId& point, std::string_view name);

} // namespace whorl
