#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transports/transport.h"

namespace whorl {

/// Place of a rank, by which it chooses among several ports.
struct VerbsPlace {
  /// Number by which ranks of a host are spread over ports that are equally near.
  std::uint32_t number = 0;
  /// Function that returns the names of the RDMA devices which are nearest to the rank; called only
  /// where there are several. May be empty: all are equally near.
  std::function<std::vector<std::string>()> nearest;
  /// Reason why the devices must not be used; empty: they may be.
  std::string unwanted = {};
};

/// Makes the transport over RDMA devices (InfiniBand, RoCE v2). Where there is none, or whorl was
/// built without it, listen() gives no address, and Transport::absence() says why.
std::unique_ptr<Transport> make_verbs_transport(VerbsPlace place);

} // namespace whorl
