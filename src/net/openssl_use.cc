#include "net/openssl_use.h"

#include <openssl/crypto.h>
#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <new>

#include "base/thread.h"

namespace whorl {
namespace {

struct OpensslGate {
  std::mutex mutex; ///< guards the following
  int users = 0;
  bool closed = false;
  std::condition_variable empty; ///< signalled when there are no users any longer
};

OpensslGate& openssl_gate() noexcept {
  alignas(OpensslGate) static std::byte memory[sizeof(OpensslGate)];
  static auto* const gate = new (memory) OpensslGate; // never destroyed
  return *gate;
}

/// Waits for threads that use OpenSSL, which takes microseconds, but at most 1 s: the exit goes on
/// in any case.
void close_gate() {
  OpensslGate& gate = openssl_gate();
  std::unique_lock lock(gate.mutex);
  gate.closed = true;
  gate.empty.wait_for(lock, std::chrono::seconds(1), [&] { return gate.users == 0; });
}

// A child of fork() inherits the locks inside of OpenSSL as they are. If another thread held one of
// them, as the root does while it shakes hands, the child would wait for it for ever.
void before_fork() {
  OpensslGate& gate = openssl_gate();
  std::unique_lock lock(gate.mutex);
  gate.empty.wait(lock, [&] { return gate.users == 0; });
  lock.release(); // until after_fork(), so that nobody enters
}
void after_fork() { openssl_gate().mutex.unlock(); }
/// Makes the condition variable anew, which counts threads that wait: the child has none.
void in_child() {
  new (&openssl_gate().empty) std::condition_variable;
  openssl_gate().mutex.unlock();
}

} // namespace

OpensslUse::OpensslUse() noexcept {
  // Handlers run in reverse order: OpenSSL has to register its own first, which it does when it is
  // asked for something.
  static const bool registered = OPENSSL_init_crypto(OPENSSL_INIT_ADD_ALL_DIGESTS, nullptr) == 1 &&
                                 std::atexit(close_gate) == 0 &&
                                 pthread_atfork(before_fork, after_fork, in_child) == 0;
  OpensslGate& gate = openssl_gate();
  const std::lock_guard lock(gate.mutex);
  entered_ = registered && !gate.closed;
  if (entered_) ++gate.users;
}

OpensslUse::~OpensslUse() {
  if (!entered_) return;
  if (in_own_thread()) OPENSSL_thread_stop();
  OpensslGate& gate = openssl_gate();
  const std::lock_guard lock(gate.mutex);
  if (--gate.users == 0) gate.empty.notify_all();
}

} // namespace whorl
