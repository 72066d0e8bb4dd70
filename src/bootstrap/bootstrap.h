#pragma once

#include <string_view>

#include "base/status.h"
#include "bootstrap/oob.h"
#include "bootstrap/unique_id.h"

namespace whorl {

/// Meets at the root that a unique id names. An id serves one communicator.
Result<Rendezvous> meet_by_id(const UniqueId& id, const Attendant& self);

/// Meets at "host:port": rank 0 listens there and serves the others. `WHORL_SECRET_FILE` holds the
/// secret. Without a secret only processes of one user and one host meet, at a loopback address,
/// unless `WHORL_INSECURE=1` lets any process join. Loopback is a unix socket named after the port
/// ("whorl.4000" in the abstract namespace), whose two ends know each other's user; rank 0 listens
/// at other addresses only with a secret or `WHORL_INSECURE=1`.
Result<Rendezvous> meet_by_address(std::string_view host_port, const Attendant& self);

/// Meets through a key-value store: rank 0 puts a unique id into the store, the others wait for the
/// id, and all meet at its root; if rank 0 has none, the store tells the reason. The store carries
/// 128 bytes once, instead of O(n log n) keys, because a store may be slow or a single thread, and
/// its errors name no ranks, while the root's do. Any process that can read the store can join the
/// job.
Result<Rendezvous> meet_by_store(const Store& store, const Attendant& self);

/// Meets through the caller's own all-gather, which transfers the secret and must be trusted.
Result<Rendezvous> meet_by_allgather(const Allgather& function, const Attendant& self);

} // namespace whorl
