#pragma once

#include <cstddef>

#include "base/membership.h"

namespace whorl::test {

/// Returns an identity whose numbers consist of equal bytes.
inline Identity identity_of(int job, int secret) {
  Identity identity;
  identity.job.fill(static_cast<std::byte>(job));
  identity.secret.fill(static_cast<std::byte>(secret));
  return identity;
}

} // namespace whorl::test
