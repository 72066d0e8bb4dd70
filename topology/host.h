#pragma once

#include "base/membership.h"

namespace whorl {

/// Fills in what a card says about this process and its host: process_id, host_key, machine_key,
/// process_key, host_name.
void describe_local_host(RankCard& card);

} // namespace whorl
