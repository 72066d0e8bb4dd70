#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "bootstrap/identity.h"
#include "bootstrap/root_client.h"

namespace whorl {
namespace {

/// Oob over the caller's own all-gather.
class CallbackOob final : public Oob {
 public:
  CallbackOob(const Allgather& function, const Attendant& self)
      : function_(function), self_(self) {}

  Status allgather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    if (mine.empty()) return {};
    const int result = function_.allgather(function_.context, mine.data(), all.data(), mine.size());
    if (result != 0) {
      return Status::error(
          Code::kRemoteError,
          fmt::format("rank {} of {}: the caller's all-gather function returned {}", self_.rank,
                      self_.nranks, result));
    }
    const auto own = all.subspan(static_cast<std::size_t>(self_.rank) * mine.size(), mine.size());
    if (!std::equal(mine.begin(), mine.end(), own.begin())) {
      return Status::error(
          Code::kInvalidUsage,
          fmt::format("rank {} of {}: the caller's all-gather function did not put "
                      "this rank's contribution at position {}: its ranks are not "
                      "in the communicator's order",
                      self_.rank, self_.nranks, self_.rank));
    }
    return {};
  }

  /// Makes the identity in rank 0 and gathers it; the others contribute zeros.
  Result<Identity> agree() {
    std::array<std::byte, sizeof(Identity)> mine{};
    if (self_.rank == 0) WHORL_TRY(fill_randomly(mine));
    std::vector<std::byte> all(mine.size() * static_cast<std::size_t>(self_.nranks));
    WHORL_TRY(allgather(mine, all));
    Identity identity;
    std::memcpy(&identity, all.data(), sizeof identity);
    return identity;
  }

 private:
  Allgather function_;
  Attendant self_;
};

} // namespace

Result<Rendezvous> meet_by_allgather(const Allgather& function, const Attendant& self) {
  WHORL_TRY(check_attendant(self));
  // The function may not be left in the middle of its rounds, so that it cannot tell an error.
  if (self.excused()) return self.comm_error->status();
  if (function.allgather == nullptr) {
    return Status::error(Code::kInvalidArgument, "the all-gather function is NULL");
  }
  auto oob = std::make_unique<CallbackOob>(function, self);
  const Result<Identity> identity = oob->agree();
  if (!identity.ok()) return identity.status();
  return Rendezvous{std::move(oob), *identity};
}

} // namespace whorl
