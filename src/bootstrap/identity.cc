#include "bootstrap/identity.h"

#include <fmt/core.h>

#include "base/system.h"
#include "net/address.h"

namespace whorl {

Status fill_randomly(std::span<std::byte> bytes) {
  const int result = sys().random_bytes(bytes);
  if (result >= 0) return {};
  return Status::error(Code::kSystemError, fmt::format("getrandom failed: {}", errno_text(result)));
}

Result<Identity> make_identity() {
  Identity identity;
  WHORL_TRY(fill_randomly(identity.job));
  WHORL_TRY(fill_randomly(identity.secret));
  return identity;
}

} // namespace whorl
