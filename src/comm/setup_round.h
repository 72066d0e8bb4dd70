#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/printable.h"
#include "base/status.h"
#include "bootstrap/oob.h"

namespace whorl {

/// Message that every rank sends to all others in one round of the set-up. Of fixed size; sent byte
/// for byte.
template <class Content>
struct SetupReport {
  std::uint32_t code = 0; ///< Code; anything but kOk: `text` says why this rank has given up
  std::array<char, 508> text{};
  Content content{};

  void set(const Status& status) {
    code = static_cast<std::uint32_t>(status.code());
    const std::size_t size = std::min(status.message().size(), text.size() - 1);
    std::memcpy(text.data(), status.message().data(), size);
    text[size] = '\0';
  }
};

/// Exchanges one report with every rank. The first failure among them, by rank, becomes the result;
/// one that is no more than what a rank made of the failure of another comes behind all others.
template <class Content>
Result<std::vector<Content>> exchange(Oob& oob, int nranks, const SetupReport<Content>& mine) {
  std::vector<SetupReport<Content>> all(static_cast<std::size_t>(nranks));
  std::vector<Content> contents;
  contents.reserve(all.size()); // the last round ends well on all ranks or on none
  WHORL_TRY(
      oob.allgather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all))));
  Status failed;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    all[rank].text.back() = '\0';
    contents.push_back(all[rank].content);
    if (all[rank].code == 0) continue;
    const auto code =
        static_cast<Code>(std::clamp<std::uint32_t>(all[rank].code, 1, kLastErrorCode));
    const bool is_reason = failed.code() == Code::kRemoteError && code != Code::kRemoteError;
    if (!failed.ok() && !is_reason) continue;
    failed = Status::error(
        code, fmt::format("rank {} could not join: {}", rank, printable(all[rank].text.data())));
  }
  if (!failed.ok()) return failed;
  return contents;
}

/// Content of a round in which ranks report only success or failure.
struct Nothing {};

/// Takes part in a round with `why`, and ignores the reports that it receives.
template <class Content>
Status attend(Oob& oob, int nranks, const Status& why) {
  SetupReport<Content> nothing;
  nothing.set(why);
  std::vector<SetupReport<Content>> all(static_cast<std::size_t>(nranks));
  return oob.allgather(std::as_bytes(std::span(&nothing, 1)),
                       std::as_writable_bytes(std::span(all)));
}

} // namespace whorl
