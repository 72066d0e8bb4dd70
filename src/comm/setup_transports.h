#pragma once

#include <cstddef>
#include <functional>

#include "base/status.h"
#include "comm/setup.h"

// The part of a set-up that chooses a transport for each peer, and connects.
namespace whorl {

/// Makes the transports that the options allow, each in one with faults if there is to be any.
Status make_transports(Setup& setup, int rank);

/// Chooses for every peer the first transport that reaches it.
Status choose_transports(Setup& setup);

/// Returns the largest slot size among the transports that this rank uses. Rank 0's result serves
/// all ranks: where two ranks are on different hosts, one of them is on another host than rank 0.
std::size_t suitable_slot_bytes(const Setup& setup);

/// Returns a function that gives the memory which one channel's endpoints to all peers occupy on
/// the rank where that is most.
std::function<std::size_t(int, std::size_t)> endpoint_bytes(const Setup& setup);

/// Connects to all peers, and closes the transports that reach none.
Status connect_all(Setup& setup);

/// Removes the transports that have been closed, and moves the rest up.
void drop_closed_transports(Setup& setup);

} // namespace whorl
