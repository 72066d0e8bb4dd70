#pragma once

#include <string>
#include <vector>

#include "bootstrap/oob.h"
#include "net/address.h"

namespace whorl {

/// Where a root is and what proves that it is the right one.
struct RootPlace {
  Identity identity; ///< what root and ranks know
  std::vector<SocketAddress> addresses;
  bool same_user = false; ///< see MeshPlan
  std::string where;      ///< for errors: "in rank 0"
  std::string gone;       ///< see MeshPlan
};

/// A rank's connection to a root, once all ranks are there.
Result<Rendezvous> join_root(const Attendant& self, RootPlace root);

/// An error unless the rank is one of the ranks.
Status check_attendant(const Attendant& self);

} // namespace whorl
