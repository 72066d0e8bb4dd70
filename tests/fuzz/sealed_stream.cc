// The records of an encrypted connection, as an attacker on the path may change them. The first
// byte gives the size of pieces and whether a reader reads ahead, the second one how much it asks
// for; the rest is what comes.
#include "net/sealed_stream.h"

#include <array>

#include "fed_system.h"
#include "input.h"
#include "target.h"

namespace whorl::fuzz {
namespace {

constexpr int kFd = 3;

StreamKey key() {
  StreamKey key;
  key.fill(std::byte{5});
  return key;
}

/// Returns what the peer has sent.
const std::string& genuine() {
  static const auto* const text = [] {
    auto* const made = new std::string;
    for (int i = 0; i < 300; ++i) *made += static_cast<char>(i * i);
    return made;
  }();
  return *text;
}

/// Bytes that each record of the peer encrypts.
constexpr std::array<std::size_t, 4> kSizes{1, 40, 7, 252};

/// Returns the same as records.
std::string sealed_text() {
  FedSystem system;
  const ScopedSystem scope(&system);
  sealed::Sealer sealer(key());
  std::string rest = genuine();
  for (const std::size_t size : kSizes) {
    const iovec part{rest.data(), size};
    require(sealer.send(kFd, {&part, 1}) == static_cast<ssize_t>(size), "a socket that takes all");
    rest.erase(0, size);
  }
  return text_of(system[kFd].out);
}

/// Returns where the header or the body ends that has the byte at a place of sealed_text().
std::size_t end_of_part(std::size_t at) {
  std::size_t end = 0;
  for (const std::size_t size : kSizes) {
    for (const std::size_t part : {sealed::kHeaderBytes, size + sealed::kTagBytes}) {
      end += part;
      if (at < end) return end;
    }
  }
  return end + sealed::kHeaderBytes; // of one more record, which the peer has not sent
}

} // namespace

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  for (const char pieces : {char{0}, char{1}, char{3}, char{66}}) {
    for (const char asked : {char{0}, char{30}})
      all.push_back(bytes_of(pieces, asked) + sealed_text());
  }
  return all;
}

} // namespace whorl::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace whorl;
  using namespace whorl::fuzz;
  Input input(data, size);
  const std::uint8_t choice = input.byte();
  const std::size_t asked = std::size_t{input.byte()} + 1;
  static const std::string untouched = sealed_text();
  const std::string_view come = input.text();
  const std::size_t length = std::min(come.size(), untouched.size());
  const auto same = static_cast<std::size_t>(
      std::mismatch(come.begin(), come.begin() + static_cast<std::ptrdiff_t>(length),
                    untouched.begin())
          .first -
      come.begin());
  FedSystem system;
  const ScopedSystem scope(&system);
  const std::size_t piece = choice < 2 ? SIZE_MAX : choice / 2U;
  system[kFd] = {.in = input.rest(), .piece = piece, .ends = false};
  sealed::Opener opener(key());
  if (choice % 2 != 0) opener.allow_read_ahead();
  std::string received;
  ssize_t got = 0;
  for (int silent = 0; silent < 3;) { // the system pauses at every other call
    std::vector<std::byte> out(asked);
    const iovec part{out.data(), out.size()};
    got = opener.receive(kFd, {&part, 1});
    silent = got == -EAGAIN && system[kFd].in.empty() ? silent + 1 : 0;
    if (got == -EAGAIN) continue;
    if (got <= 0) break;
    received += text_of(std::span(out).first(static_cast<std::size_t>(got)));
  }
  require(genuine().starts_with(received), "nothing that the peer has not sent");
  require(same < untouched.size() || received == genuine(), "all that the peer has sent");
  const bool changed = come.size() >= end_of_part(same);
  require(got == (changed ? -EBADMSG : -EAGAIN), "a change is found when its part is complete");
  return 0;
}
