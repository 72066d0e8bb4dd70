#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string_view>

#include "base/membership.h"

namespace whorl {

using Digest = std::array<std::byte, 32>;

/// HMAC-SHA256 over the label and the parts, one after the other. Parts before the last have a
/// fixed size at every use of a label, so that different inputs cannot run into each other. False
/// where OpenSSL fails (out of memory), and while the process exits. Any thread.
bool hmac_sha256(std::span<const std::byte> key, std::string_view label,
                 std::initializer_list<std::span<const std::byte>> parts, Digest* out) noexcept;

/// SHA-256 of the bytes. False and threads as above.
bool sha256(std::span<const std::byte> bytes, Digest* out) noexcept;

/// Compares in a time that does not depend on the contents.
bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) noexcept;

/// A job and a secret for one communicator, from a secret that may serve several and a random salt
/// that need not be secret. All who have both come to the same identity.
bool derive_identity(std::span<const std::byte> secret, std::span<const std::byte> salt,
                     Identity* out) noexcept;

} // namespace whorl
