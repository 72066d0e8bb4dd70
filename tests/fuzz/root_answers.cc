// Answers of the root of a rendezvous to a rank, which takes part in all-gathers of 0, 4 and 16
// bytes and gives up after them. The first byte is the size of pieces and whether the root hangs
// up; the rest is what the root sends.
#include "bootstrap/messages.h"
#include "bootstrap/root_client.h"
#include "fed_system.h"
#include "input.h"
#include "target.h"

namespace whorl::fuzz {
namespace {

using bootstrap::Answer;

constexpr int kRanks = 2;
constexpr std::array<std::size_t, 3> kSizes{0, 4, 16};

std::string answer(std::uint32_t round, const std::string& body, std::uint32_t code = 0) {
  Answer header;
  header.round = round;
  header.code = code;
  header.bytes = body.size();
  return bytes_of(header) + body;
}

/// Requires of an all-gather that has succeeded that the root has sent its result.
void check_result(Input& input, std::uint32_t round, std::span<const std::byte> all) {
  const auto header = input.take<Answer>();
  require(header.magic == Answer::kMagic && header.code == 0 && header.round == round &&
              header.bytes == all.size(),
          "the answer of this round");
  require(text_of(input.take(all.size())) == text_of(all), "the bytes that were sent");
}

} // namespace

std::vector<std::string> seeds() {
  const std::string begin = answer(0, "") + answer(1, "abcdABCD");
  std::vector<std::string> all;
  for (const char choice : {char{0}, char{1}, char{7}}) {
    all.push_back(choice + (begin + answer(2, std::string(32, 'x'))));
    all.push_back(choice + (begin + answer(2, "rank 1 died \x1b[31m", 2)));
    all.push_back(choice + answer(0, "no rank 1", 1));
  }
  return all;
}

} // namespace whorl::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace whorl;
  using namespace whorl::fuzz;
  constexpr int kFd = 3;
  Input input(data, size);
  const std::uint8_t choice = input.byte();
  FedSystem system;
  const ScopedSystem scope(&system);
  system[kFd] = {
      .in = input.rest(), .piece = choice < 2 ? SIZE_MAX : choice / 2U, .ends = choice % 2 != 0};
  const Attendant self{.rank = 1, .nranks = kRanks, .timeout_ns = 1'000'000};
  const auto oob = make_root_oob(self, StreamSocket(Fd(kFd)));
  Status last;
  for (std::uint32_t round = 0; round < kSizes.size() && last.ok(); ++round) {
    const std::vector<std::byte> mine(kSizes[round]);
    std::vector<std::byte> all(kRanks * mine.size());
    last = oob->allgather(mine, all);
    if (last.ok()) check_result(input, round, all);
  }
  if (last.ok()) last = oob->give_up(Status::error(Code::kRemoteError, "another rank died"));
  require_error(last);
  require(oob->allgather({}, {}).message() == last.message(), "an error stays");
  return 0;
}
