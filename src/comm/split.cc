#include "comm/split.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace whorl {
namespace {

/// All-gather of a subset of an existing communicator's ranks. Every rank of the parent takes part
/// in each round, also those that have no place in the new communicator.
class SplitOob final : public Oob {
 public:
  SplitOob(Communicator& parent, std::vector<int> members)
      : parent_(parent), members_(std::move(members)) {}

  Status allgather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    std::vector<std::byte> everyone(mine.size() * static_cast<std::size_t>(parent_.nranks()));
    const Request request{.collective = Collective::kAllGather,
                          .type = DataType::kUint8,
                          .count = mine.size(),
                          .send = mine.data(),
                          .recv = everyone.data()};
    // A rank may use up a timeout of its own before it reports what went wrong.
    WHORL_TRY(parent_.run({&request, 1}, 2));
    for (std::size_t i = 0; i < members_.size(); ++i) {
      std::memcpy(all.data() + i * mine.size(),
                  everyone.data() + static_cast<std::size_t>(members_[i]) * mine.size(),
                  mine.size());
    }
    return {};
  }

  /// Tells the others, who may wait for this rank to connect. The reason is in its next report.
  Status give_up(const Status&) override {
    if (check().ok()) parent_.tell_failed_split();
    return {};
  }

  Status check() override {
    WHORL_TRY(parent_.state());
    const auto failed = std::find_if(members_.begin(), members_.end(), [this](int member) {
      return member != parent_.rank() && parent_.has_failed_split(member);
    });
    if (failed == members_.end()) return {};
    return Status::error(Code::kRemoteError, fmt::format("{} has failed in the split",
                                                         parent_.membership().describe(*failed)));
  }

 private:
  Communicator& parent_;
  std::vector<int> members_;
};

} // namespace

Result<Gathering> meet_by_split(Communicator& parent, int color, int key) {
  struct Choice {
    std::int32_t color, key, rank;
  };
  const Choice mine{color, key, parent.rank()};
  std::vector<Choice> all(static_cast<std::size_t>(parent.nranks()));
  const Request request{.collective = Collective::kAllGather,
                        .type = DataType::kUint8,
                        .count = sizeof(Choice),
                        .send = &mine,
                        .recv = all.data()};
  WHORL_TRY(parent.run({&request, 1}));
  for (const Choice& choice : all) {
    if (choice.color >= 0 || choice.color == kNoColor) continue;
    return Status::error(Code::kInvalidArgument,
                         fmt::format("color is {} on rank {}; it must not be negative, or be "
                                     "WHORL_SPLIT_NOCOLOR ({})",
                                     choice.color, choice.rank, kNoColor));
  }

  std::erase_if(all, [&](const Choice& choice) { return choice.color != color; });
  std::stable_sort(all.begin(), all.end(),
                   [](const Choice& a, const Choice& b) { return a.key < b.key; });
  Gathering meeting;
  std::vector<int> members;
  for (const Choice& choice : all) {
    if (choice.rank == parent.rank()) meeting.rank = static_cast<int>(members.size());
    members.push_back(choice.rank);
  }
  meeting.nranks = static_cast<int>(members.size());
  meeting.oob = std::make_unique<SplitOob>(parent, std::move(members));
  return meeting;
}

} // namespace whorl
