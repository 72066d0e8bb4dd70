#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string_view>

#include "base/membership.h"

namespace whorl {

using Digest = std::array<std::byte, 32>;

/// Computes the HMAC-SHA256 of the label and the parts, one after the other. Parts before the last
/// must have a fixed size at every use of a label, so that different inputs are never the same
/// bytes. Returns false if OpenSSL fails (out of memory), and while the process exits. Any thread.
bool hmac_sha256(std::span<const std::byte> key, std::string_view label,
                 std::initializer_list<std::span<const std::byte>> parts, Digest* out) noexcept;

/// Computes the SHA-256 of the bytes. Returns false where hmac_sha256() does. Any thread.
bool sha256(std::span<const std::byte> bytes, Digest* out) noexcept;

/// Compares the bytes in a time that does not depend on their contents.
bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) noexcept;

/// Derives a job and a secret for one communicator from a secret that may serve several and a
/// random salt that need not be secret. Ranks with equal secret and salt get equal identities.
bool derive_identity(std::span<const std::byte> secret, std::span<const std::byte> salt,
                     Identity* out) noexcept;

} // namespace whorl
