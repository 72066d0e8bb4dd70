#include "comm/handle.h"

void whorlComm::set_error(const whorl::Status& status) {
  const std::lock_guard lock(mutex_);
  error_ = status;
}

whorl::Status whorlComm::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}
