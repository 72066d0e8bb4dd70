#include "base/thread.h"

#include <fmt/core.h>
#include <pthread.h>
#include <signal.h>

#include <system_error>

namespace whorl {

Result<std::thread> start_thread(const char* name, std::function<void()> body) {
  // A new thread inherits the mask: block everything while it is made.
  sigset_t all, previous;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &previous);
  try {
    std::thread thread(std::move(body));
    pthread_sigmask(SIG_SETMASK, &previous, nullptr);
    pthread_setname_np(thread.native_handle(), name);
    return thread;
  } catch (const std::system_error& error) {
    pthread_sigmask(SIG_SETMASK, &previous, nullptr);
    return Status::error(Code::kSystemError,
                         fmt::format("cannot start the thread {}: {}; raise the limit on threads "
                                     "(ulimit -u) or use fewer communicators",
                                     name, error.what()));
  }
}

} // namespace whorl
