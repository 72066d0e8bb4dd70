#include "net/key_exchange.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>

#include <algorithm>
#include <memory>
#include <string_view>

#include "base/system.h"
#include "net/openssl_use.h"

namespace whorl {
namespace {

struct FreeKey {
  void operator()(EVP_PKEY* key) const noexcept { EVP_PKEY_free(key); }
  void operator()(EVP_PKEY_CTX* context) const noexcept { EVP_PKEY_CTX_free(context); }
};
using Pkey = std::unique_ptr<EVP_PKEY, FreeKey>;
using PkeyContext = std::unique_ptr<EVP_PKEY_CTX, FreeKey>;

const unsigned char* bytes_in(std::span<const std::byte> bytes) noexcept {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}
unsigned char* bytes_out(std::span<std::byte> bytes) noexcept {
  return reinterpret_cast<unsigned char*>(bytes.data());
}

Pkey private_x25519(std::span<const std::byte> bytes) noexcept {
  return Pkey(
      EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, nullptr, bytes_in(bytes), bytes.size()));
}

/// Computes what both sides know after they have exchanged shares.
bool agree_x25519(std::span<const std::byte> mine, std::span<const std::byte> theirs,
                  std::span<std::byte, 32> out) noexcept {
  const Pkey own = private_x25519(mine);
  const Pkey other(
      EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, nullptr, bytes_in(theirs), theirs.size()));
  if (own == nullptr || other == nullptr) return false;
  const PkeyContext context(EVP_PKEY_CTX_new(own.get(), nullptr));
  std::size_t size = out.size();
  return context != nullptr && EVP_PKEY_derive_init(context.get()) == 1 &&
         EVP_PKEY_derive_set_peer(context.get(), other.get()) == 1 &&
         EVP_PKEY_derive(context.get(), bytes_out(out), &size) == 1 && size == out.size();
}

bool hkdf_sha256(std::span<const std::byte> salt, std::span<const std::byte> key,
                 std::string_view info, std::span<std::byte> out) noexcept {
  const PkeyContext context(EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, nullptr));
  std::size_t size = out.size();
  return context != nullptr && EVP_PKEY_derive_init(context.get()) == 1 &&
         EVP_PKEY_CTX_set_hkdf_md(context.get(), EVP_sha256()) == 1 &&
         EVP_PKEY_CTX_set1_hkdf_salt(context.get(), bytes_in(salt),
                                     static_cast<int>(salt.size())) == 1 &&
         EVP_PKEY_CTX_set1_hkdf_key(context.get(), bytes_in(key), static_cast<int>(key.size())) ==
             1 &&
         EVP_PKEY_CTX_add1_hkdf_info(context.get(), bytes_in(std::as_bytes(std::span(info))),
                                     static_cast<int>(info.size())) == 1 &&
         EVP_PKEY_derive(context.get(), bytes_out(out), &size) == 1 && size == out.size();
}

} // namespace

StreamKeys::~StreamKeys() {
  OPENSSL_cleanse(send.data(), send.size());
  OPENSSL_cleanse(receive.data(), receive.size());
}

KeyExchange::~KeyExchange() { OPENSSL_cleanse(private_key_.data(), private_key_.size()); }

bool KeyExchange::make_share(Share* out) noexcept {
  if (sys().random_bytes(private_key_) < 0) return false;
  const OpensslUse openssl;
  if (!openssl) return false;
  const Pkey key = private_x25519(private_key_);
  std::size_t size = out->size();
  return key != nullptr && EVP_PKEY_get_raw_public_key(key.get(), bytes_out(*out), &size) == 1 &&
         size == out->size();
}

bool KeyExchange::derive(const Share& theirs, std::span<const std::byte> secret,
                         std::initializer_list<std::span<const std::byte>> transcript,
                         bool connects, StreamKeys* out) const noexcept {
  std::array<std::byte, 512> salt{};
  std::size_t salt_bytes = 0;
  for (const std::span<const std::byte> part : transcript) {
    if (part.size() > salt.size() - salt_bytes) return false;
    std::copy(part.begin(), part.end(), salt.begin() + static_cast<std::ptrdiff_t>(salt_bytes));
    salt_bytes += part.size();
  }
  std::array<std::byte, 64> material{}; // what the shares give, then the secret
  if (secret.size() != 32) return false;
  std::copy(secret.begin(), secret.end(), material.begin() + 32);
  std::array<std::byte, 64> keys{}; // of the connecting side, then of the accepting one
  const OpensslUse openssl;
  const bool derived =
      openssl && agree_x25519(private_key_, theirs, std::span(material).first<32>()) &&
      hkdf_sha256(std::span(salt).first(salt_bytes), material, "whorl stream keys", keys);
  if (derived) {
    std::copy_n(keys.begin(), 32, connects ? out->send.begin() : out->receive.begin());
    std::copy_n(keys.begin() + 32, 32, connects ? out->receive.begin() : out->send.begin());
  }
  OPENSSL_cleanse(material.data(), material.size());
  OPENSSL_cleanse(keys.data(), keys.size());
  return derived;
}

} // namespace whorl
