#pragma once

#include <string>

#include "base/membership.h"
#include "base/status.h"

namespace whorl {

/// Describes where the calling thread may run, and the NIC of its host. Looks at the machine only
/// where the thread is bound to a part of it and the machine has several, or where WHORL_TOPO_FILE
/// describes the machine: a thread that may run anywhere has no place. The error names the variable
/// whose file is wrong.
Result<RankPlace> describe_place();

/// Enters the switches above a host, by the file that WHORL_FABRIC_FILE names; a host that the file
/// lacks has none. The error names the variable.
Status enter_switches(const std::string& host, RankPlace& place);

/// Returns the number of processing units in `place.cpus`; 0: unknown.
int cpus_of(const RankPlace& place) noexcept;

/// Returns the names of the RDMA devices that are nearest to the processors of this process, and
/// have a link. Detects the devices of the machine once, which takes milliseconds. Empty: unknown.
std::vector<std::string> nearest_rdma_devices();

} // namespace whorl
