#include "net/secret.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>

#include "net/openssl_use.h"

namespace whorl {

bool hmac_sha256(std::span<const std::byte> key, std::string_view label,
                 std::initializer_list<std::span<const std::byte>> parts, Digest* out) noexcept {
  std::array<std::byte, 512> message{};
  std::size_t size = 0;
  const auto append = [&](std::span<const std::byte> bytes) {
    if (bytes.size() > message.size() - size) return false;
    std::copy(bytes.begin(), bytes.end(), message.begin() + static_cast<std::ptrdiff_t>(size));
    size += bytes.size();
    return true;
  };
  if (!append(std::as_bytes(std::span(label)))) return false;
  for (const std::span<const std::byte> part : parts) {
    if (!append(part)) return false;
  }
  const OpensslUse openssl;
  if (!openssl) return false;
  unsigned written = 0;
  return HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
              reinterpret_cast<const unsigned char*>(message.data()), size,
              reinterpret_cast<unsigned char*>(out->data()), &written) != nullptr &&
         written == out->size();
}

bool sha256(std::span<const std::byte> bytes, Digest* out) noexcept {
  const OpensslUse openssl;
  if (!openssl) return false;
  unsigned written = 0;
  return EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(out->data()),
                    &written, EVP_sha256(), nullptr) == 1 &&
         written == out->size();
}

bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) noexcept {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

bool derive_identity(std::span<const std::byte> secret, std::span<const std::byte> salt,
                     Identity* out) noexcept {
  Digest job{};
  Digest key{};
  if (!hmac_sha256(secret, "whorl job", {salt}, &job) ||
      !hmac_sha256(secret, "whorl key", {salt}, &key)) {
    return false;
  }
  std::copy_n(job.begin(), out->job.size(), out->job.begin());
  out->secret = key;
  return true;
}

} // namespace whorl
