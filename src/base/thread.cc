#include "base/thread.h"

#include <fmt/core.h>
#include <pthread.h>
#include <signal.h>

#include <exception>

namespace whorl {
namespace {

thread_local bool own_thread = false;

} // namespace

bool in_own_thread() noexcept { return own_thread; }

Result<std::thread> start_thread(const char* name, std::function<void()> body) {
  // A new thread inherits the mask: block everything while it is made.
  class Blocked {
   public:
    Blocked() {
      sigset_t all;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, &previous_);
    }
    ~Blocked() { pthread_sigmask(SIG_SETMASK, &previous_, nullptr); }

   private:
    sigset_t previous_;
  };
  const Blocked blocked;
  try {
    std::thread thread([body = std::move(body)] {
      own_thread = true;
      body();
    });
    pthread_setname_np(thread.native_handle(), name);
    return thread;
  } catch (const std::exception& error) {
    return Status::error(Code::kSystemError,
                         fmt::format("cannot start the thread {}: {}; raise the limit on threads "
                                     "(ulimit -u) or use fewer communicators",
                                     name, error.what()));
  }
}

Status start_detached_thread(const char* name, std::function<void()> body) {
  Result<std::thread> thread = start_thread(name, std::move(body));
  if (!thread.ok()) return thread.status();
  thread->detach();
  return {};
}

void Threads::join() {
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

} // namespace whorl
