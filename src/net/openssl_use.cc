#include "net/openssl_use.h"

#include <openssl/crypto.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <new>

#include "base/thread.h"

namespace whorl {
namespace {

struct OpensslGate {
  std::shared_timed_mutex mutex;
  std::atomic<bool> closed{false};
};

OpensslGate& openssl_gate() noexcept {
  alignas(OpensslGate) static std::byte memory[sizeof(OpensslGate)];
  static auto* const gate = new (memory) OpensslGate; // never destroyed
  return *gate;
}

/// Waits for threads that use OpenSSL, which takes microseconds, but at most 1 s: in a child of
/// fork() such threads do not exist.
void close_gate() {
  openssl_gate().closed = true;
  const std::unique_lock lock(openssl_gate().mutex, std::chrono::seconds(1));
}

// A child of fork() inherits the locks inside of OpenSSL as they are. If another thread held one of
// them, as the root does while it shakes hands, the child would wait for it for ever.
void before_fork() { openssl_gate().mutex.lock(); }
void after_fork() { openssl_gate().mutex.unlock(); }
/// Makes the mutex anew: unlocking it takes the thread that locked it, which has another number in
/// the child.
void in_child() { new (&openssl_gate().mutex) std::shared_timed_mutex; }

} // namespace

OpensslUse::OpensslUse() noexcept : lock_(openssl_gate().mutex) {
  // Handlers run in reverse order: OpenSSL has to register its own first, which it does when it is
  // asked for something.
  static const bool registered = OPENSSL_init_crypto(OPENSSL_INIT_ADD_ALL_DIGESTS, nullptr) == 1 &&
                                 std::atexit(close_gate) == 0 &&
                                 pthread_atfork(before_fork, after_fork, in_child) == 0;
  entered_ = registered && !openssl_gate().closed;
}

OpensslUse::~OpensslUse() {
  if (entered_ && in_own_thread()) OPENSSL_thread_stop();
}

} // namespace whorl
