#pragma once

#include "base/membership.h"

namespace whorl {

/// Sets the fields of a PeerInfo about this process and its host: process_id, host_key,
/// machine_key, process_key, host_name.
void describe_local_host(PeerInfo& info);

} // namespace whorl
