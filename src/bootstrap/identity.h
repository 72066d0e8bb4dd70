#pragma once

#include <cstddef>
#include <span>

#include "base/membership.h"
#include "base/status.h"

namespace whorl {

/// Writes random bytes.
Status fill_randomly(std::span<std::byte> bytes);

/// Makes an identity of random bytes, which no other communicator has.
Result<Identity> make_identity();

} // namespace whorl
