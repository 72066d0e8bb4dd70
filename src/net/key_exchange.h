#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>

namespace whorl {

using StreamKey = std::array<std::byte, 32>;

/// Keys of one connection: one for each direction, so that what a side has sent is of no use as an
/// answer to it.
struct StreamKeys {
  StreamKey send{}, receive{};

  StreamKeys() = default;
  StreamKeys(const StreamKeys&) = default;
  StreamKeys& operator=(const StreamKeys&) = default;
  ~StreamKeys(); ///< wipes the keys
};

/// One side of an agreement on the keys of a connection. Each side sends a share that it makes for
/// this connection alone (X25519), so that who learns the secret later cannot read what was
/// recorded before.
class KeyExchange {
 public:
  using Share = std::array<std::byte, 32>;

  KeyExchange() = default;
  KeyExchange(const KeyExchange&) = default;
  KeyExchange& operator=(const KeyExchange&) = default;
  ~KeyExchange();

  /// Makes a new share. Returns false if there are no random bytes, or OpenSSL fails.
  bool make_share(Share* out) noexcept;
  /// Derives the keys by HKDF-SHA256 from both shares, the secret and what the two sides have told
  /// each other, which has at most 512 bytes and is the same on both. `connects` says which side
  /// this is. Returns false if the other share is none, or OpenSSL fails.
  bool derive(const Share& theirs, std::span<const std::byte> secret,
              std::initializer_list<std::span<const std::byte>> transcript, bool connects,
              StreamKeys* out) const noexcept;

 private:
  std::array<std::byte, 32> private_key_{};
};

} // namespace whorl
