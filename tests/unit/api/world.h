#pragma once

#include "api/handle.h"
#include "tests/support/thread_world.h"

namespace whorl::test {

/// Communicators of three ranks, seen from rank 1.
class World {
 public:
  Communicator& communicator() { return *ranks_.comm(1)->communicator; }

 private:
  ThreadWorld ranks_{3};
};

} // namespace whorl::test
