/// @file groups.hpp
/// Groups of calls, for C++. Included by whorl.hpp.
#ifndef WHORL_GROUPS_HPP_
#define WHORL_GROUPS_HPP_

#include <exception>

#include "whorl/elements.hpp"
#include "whorl/whorl.h"

namespace whorl {
inline namespace api {
namespace detail {

/// Number of objects of Group that are open in this thread.
inline constinit thread_local int open_groups = 0;

/// Whether an exception has left an open Group of this thread: the outermost will issue no call.
inline constinit thread_local bool left_by_exception = false;

/// Fails the open group of this thread: its outermost end issues no call.
inline void fail_group() noexcept {
  (void)whorlSend(nullptr, 0, whorlInt8, 0, nullptr, nullptr); // refused
}

} // namespace detail

/// Group that collects the calls of this thread from construction to end() and issues them
/// together. Groups nest. Communicators are made outside, or by Communicator::join_all(). The
/// destructor of a group that an exception leaves drops the calls, whose buffers may be gone. The
/// groups around it then issue nothing either: end() of the outermost throws. Otherwise the
/// destructor issues the calls, and drops their error: call end().
class Group {
 public:
  Group() {
    detail::check(whorlGroupStart());
    ++detail::open_groups;
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group() {
    if (!open_) return;
    if (std::uncaught_exceptions() > exceptions_) {
      detail::fail_group();
      detail::left_by_exception = true;
    }
    (void)close();
  }
  /// Issues the calls (outermost group) and throws the first error among them.
  void end() {
    if (!open_) return;
    const bool left = detail::left_by_exception;
    const whorlResult_t result = close();
    if (result != whorlSuccess && left) {
      throw Error(whorlInvalidUsage,
                  "An exception has left a group within this one: none of the calls was issued.");
    }
    detail::check(result);
  }

 private:
  whorlResult_t close() noexcept {
    open_ = false;
    if (--detail::open_groups == 0) detail::left_by_exception = false;
    return whorlGroupEnd();
  }

  bool open_ = true;
  int exceptions_ = std::uncaught_exceptions();
};

} // namespace api
} // namespace whorl

#endif // WHORL_GROUPS_HPP_
