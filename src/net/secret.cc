#include "net/secret.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <shared_mutex>

#include "base/thread.h"

namespace whorl {
namespace {

/// Guard of a use of OpenSSL, which frees its data when the process exits although threads of ours
/// may be in a handshake. Converts to false once the exit has begun, or if OpenSSL cannot be
/// prepared; then OpenSSL must not be used.
class InUse {
 public:
  InUse() noexcept : lock_(gate().mutex) {
    // Handlers run in reverse order: OpenSSL has to register its own first, which it does when it
    // is asked for something.
    static const bool registered =
        OPENSSL_init_crypto(OPENSSL_INIT_ADD_ALL_DIGESTS, nullptr) == 1 &&
        std::atexit(close_gate) == 0 && pthread_atfork(before_fork, after_fork, in_child) == 0;
    entered_ = registered && !gate().closed;
  }
  /// Frees at once what OpenSSL keeps for a thread of ours: if the thread ended during the exit,
  /// thread and exit would both free it.
  ~InUse() {
    if (entered_ && in_own_thread()) OPENSSL_thread_stop();
  }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;
  explicit operator bool() const noexcept { return entered_; }

 private:
  struct Gate {
    std::shared_timed_mutex mutex;
    std::atomic<bool> closed{false};
  };
  static Gate& gate() noexcept {
    alignas(Gate) static std::byte memory[sizeof(Gate)];
    static auto* const gate = new (memory) Gate; // never destroyed
    return *gate;
  }
  /// Waits for threads that use OpenSSL, which takes microseconds, but at most 1 s: in a child of
  /// fork() such threads do not exist.
  static void close_gate() {
    gate().closed = true;
    const std::unique_lock lock(gate().mutex, std::chrono::seconds(1));
  }

  // A child of fork() inherits the locks inside of OpenSSL as they are. If another thread held one
  // of them, as the root does while it shakes hands, the child would wait for it for ever.
  static void before_fork() { gate().mutex.lock(); }
  static void after_fork() { gate().mutex.unlock(); }
  /// Makes the mutex anew: unlocking it takes the thread that locked it, which has another number
  /// in the child.
  static void in_child() { new (&gate().mutex) std::shared_timed_mutex; }

  std::shared_lock<std::shared_timed_mutex> lock_;
  bool entered_ = false;
};

} // namespace

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
  const InUse openssl;
  if (!openssl) return false;
  unsigned written = 0;
  return HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
              reinterpret_cast<const unsigned char*>(message.data()), size,
              reinterpret_cast<unsigned char*>(out->data()), &written) != nullptr &&
         written == out->size();
}

bool sha256(std::span<const std::byte> bytes, Digest* out) noexcept {
  const InUse openssl;
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
