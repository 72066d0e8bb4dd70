#pragma once

#include <cstdint>
#include <vector>

#include "comm/setup.h"

namespace whorl {

/// Of what ranks tell each other before they are connected, and of their messages.
inline constexpr std::uint32_t kWireVersion = 4;

/// This rank's card; opens what the transports of `setup` listen on.
Result<RankCard> make_card(Setup& setup, const Identity& identity, int rank);
/// Checks the cards and makes the membership of `setup` of them. Its slot_bytes is 0 if no rank
/// asks for a size.
Status make_membership(Setup& setup, std::vector<RankCard> cards, const Identity& identity,
                       int rank);

} // namespace whorl
