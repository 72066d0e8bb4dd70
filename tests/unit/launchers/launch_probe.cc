// Program of a rank under a real launcher: detects it, then takes part in several exchanges, as
// several communicators of one process would. Prints one line; exits with 1 on any error.
//   launch_probe            three exchanges
//   launch_probe absent     the last rank stays away: the others must get an error, not hang
#include <fmt/core.h>

#include <cstring>
#include <string>

#include "base/system.h"
#include "launchers/launcher.h"

namespace {

using namespace whorl; // NOLINT: a test program

int fail(const Launch& launch, const std::string& what) {
  fmt::print(stderr, "rank {} of {} by {}: {}\n", launch.rank, launch.nranks, launch.source, what);
  return 1;
}

int exchange(const Launch& launch) {
  constexpr std::int64_t kTimeoutMs = 30'000;
  for (const std::size_t size : {128u, 0u, 1024u, 257u}) {
    std::vector<std::byte> value(size);
    for (std::size_t i = 0; i < size; ++i) value[i] = static_cast<std::byte>(i * 7 + size);
    const std::span<const std::byte> mine =
        launch.rank == 0 ? std::span<const std::byte>(value) : std::span<const std::byte>();
    const Result<std::vector<std::byte>> shared = share(launch, mine, kTimeoutMs);
    if (!shared.ok()) return fail(launch, shared.status().message());
    if (*shared != value) return fail(launch, fmt::format("{} bytes arrived wrong", size));
  }
  fmt::print("{} rank {} of {}, local {} of {}\n", launch.source, launch.rank, launch.nranks,
             launch.local_rank, launch.local_nranks);
  return 0;
}

int one_is_absent(const Launch& launch) {
  constexpr std::int64_t kTimeoutMs = 500;
  if (launch.rank == launch.nranks - 1) {
    sys().sleep_ns(2'000'000'000);
    return 0;
  }
  const Result<std::vector<std::byte>> shared = share(launch, {}, kTimeoutMs);
  if (shared.ok()) return fail(launch, "an exchange without the last rank succeeded");
  fmt::print("as expected: {}\n", shared.status().message());
  return 0;
}

} // namespace

int main(int argc, char** argv) {
  const Result<Launch> launch = detect_launch();
  if (!launch.ok()) {
    fmt::print(stderr, "{}\n", launch.status().message());
    return 1;
  }
  return argc > 1 && std::strcmp(argv[1], "absent") == 0 ? one_is_absent(*launch)
                                                         : exchange(*launch);
}
