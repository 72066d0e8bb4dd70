#pragma once

#include "base/system.h"

namespace whorl::test {

/// System whose clock runs faster, so that deadlines come early; sleeps take as long as ever.
class FastClock final : public System {
 public:
  explicit FastClock(std::uint64_t factor) noexcept : factor_(factor) {}
  std::uint64_t now_ns() noexcept override {
    return start_ns_ + factor_ * (System::now_ns() - start_ns_);
  }

 private:
  const std::uint64_t factor_;
  const std::uint64_t start_ns_ = System::now_ns();
};

} // namespace whorl::test
