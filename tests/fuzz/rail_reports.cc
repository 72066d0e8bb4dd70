// Reports of failed rails, which a peer of an RDMA connection sends. An input is a sequence of
// reports; rank 0 has sent messages by two rails.
#include "tests/unit/transports/verbs_endpoints.h"

#include "input.h"
#include "target.h"

namespace whorl::fuzz {
namespace {

using verbs::RailReport;

constexpr std::size_t kRails = 2, kBytes = 200;
constexpr int kMessages = 6;

/// Two ranks with connected endpoints.
struct Ranks : verbs_test::VerbsEndpoints {
  Ranks() : VerbsEndpoints({.rails = kRails}) {}
  void TestBody() override {}

  void take(Input input) {
    for (int i = 0; i < kMessages; ++i) require(a.send(kBytes, i), "a message");
    bool sensible = true;
    while (!input.empty() && sensible) {
      const auto report = input.take<RailReport>();
      sensible = report.rail < kRails && report.received <= kMessages;
      a.endpoint->take_report(report);
      a.poll();
      require(a.judge.nonsense.empty() == sensible, "an error for a report that makes no sense");
    }
    // Messages may be sent again where the peer says that they have not arrived.
    for (int i = 0; i < kMessages; ++i) {
      require(b.receive(i) == static_cast<int>(kBytes), "each message once, in order");
    }
    require(b.receive(kMessages) == -1, "no other message");
  }
};

} // namespace

std::vector<std::string> seeds() {
  RailReport some{.channel = 0, .rail = 1, .received = 2}, none{.channel = 0, .rail = 0};
  some.add(4);
  some.add(6);
  return {bytes_of(some), bytes_of(none), bytes_of(some, none), bytes_of(none, none, some)};
}

} // namespace whorl::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace whorl::fuzz;
  Ranks().take(Input(data, size));
  return 0;
}
