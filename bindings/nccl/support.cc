#include "bindings/nccl/support.h"

#include <algorithm>
#include <cctype>
#include <mutex>
#include <string>
#include <string_view>

#include "base/lasting.h"

namespace whorl_nccl {
namespace {

static_assert(static_cast<int>(ncclNumResults) == whorlNumResults);
static_assert(static_cast<int>(ncclInvalidArgument) == whorlInvalidArgument);
static_assert(static_cast<int>(ncclInProgress) == whorlInProgress);
static_assert(sizeof(ncclUniqueId) == sizeof(whorlUniqueId));
static_assert(sizeof(ncclConfig_t) == 80 && sizeof(ncclSimInfo_t) == 24);

/// Last error of the process. Programs read it from a thread that watches the others.
struct Shared {
  std::mutex mutex;
  std::string text;
};
Shared& shared() {
  static Shared& instance = *new Shared; // never destroyed: threads outlive main()
  return instance;
}

/// Returns the last error of this thread that was found here and not by whorl.
std::string& own_error() { return whorl::lasting_of_thread<std::string, struct OwnError>(); }

/// Text short enough for a string to hold it without allocating.
constexpr std::string_view kOutOfMemory = "out of memory";

void share(std::string_view text) {
  Shared& all = shared();
  const std::lock_guard lock(all.mutex);
  all.text = text;
}

/// Names in sentences of whorl that NCCL has, too.
constexpr std::string_view kNames[] = {
#define WHORL_NCCL(result, name, parameters) #name,
#define WHORL_NCCL_LATER(result, name, parameters) #name,
#include "bindings/nccl/functions.def"
    "ncclSuccess",
    "ncclInProgress",
    "ncclScalarDevice",
    "ncclScalarHostImmediate",
    "ncclSum",
    "ncclProd",
    "ncclMax",
    "ncclMin",
    "ncclAvg",
    "ncclInt8",
    "ncclUint8",
    "ncclInt32",
    "ncclUint32",
    "ncclInt64",
    "ncclUint64",
    "ncclFloat16",
    "ncclFloat32",
    "ncclFloat64",
    "ncclBfloat16",
    "ncclFloat8e4m3",
    "ncclFloat8e5m2",
    "ncclComm_t",
    "ncclUniqueId",
    "ncclConfig_t",
    "NCCL_SPLIT_NOCOLOR",
    "NCCL_SHRINK_DEFAULT",
    "NCCL_SHRINK_ABORT",
    "NCCL_REVOKE_DEFAULT",
    "NCCL_CONFIG_INITIALIZER",
    "NCCL_SIM_INFO_INITIALIZER"};

/// Replaces the names in a sentence of whorl by those that the program knows.
std::string with_names_of_nccl(std::string_view text) {
  constexpr std::size_t kTheirs = 5, kOurs = 4; // characters of "whorl" and of "nccl"
  const auto in_name = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && in_name(text[end])) ++end;
    const std::string_view word = text.substr(at, std::max(end - at, std::size_t{1}));
    at += word.size();
    const bool named = word.starts_with("whorl") || word.starts_with("WHORL");
    const auto* const same = std::ranges::find_if(kNames, [&](std::string_view name) {
      return named && word.substr(kTheirs) == name.substr(kOurs);
    });
    out += same != std::end(kNames) ? *same : word;
  }
  return out;
}

const char* last_error(ncclComm_t comm) {
  auto& text =
      whorl::lasting_of_thread<std::string, struct ReturnedError>(); // keeps what is returned
  text = own_error();
  if (text.empty()) text = with_names_of_nccl(whorlGetLastError(inner(comm)));
  if (text.empty()) {
    Shared& all = shared();
    const std::lock_guard lock(all.mutex);
    text = all.text;
  }
  return text.c_str();
}

} // namespace

ncclResult_t detail::record_error(ncclResult_t code, std::string_view sentence) noexcept {
  try {
    own_error() = sentence;
    share(sentence);
  } catch (...) {
    own_error() = kOutOfMemory;
  }
  return code;
}

ncclResult_t detail::record_in_group(ncclResult_t code, std::string_view sentence) noexcept {
  if (Group& open = group(); open.depth > 0) {
    fail_group();
    if (!open.failed) {
      open.found = code;
      try {
        open.sentence = sentence;
      } catch (...) {
        open.sentence = kOutOfMemory;
      }
    }
    open.failed = true;
  }
  return record_error(code, sentence);
}

ncclResult_t report(whorlResult_t result) noexcept {
  if (result != whorlSuccess && result != whorlInProgress) [[unlikely]] {
    if (Group& open = group(); open.depth > 0) open.failed = true;
    try {
      own_error().clear();
      share(with_names_of_nccl(whorlGetLastError(nullptr)));
    } catch (...) {
      return static_cast<ncclResult_t>(result); // the sentence is lost
    }
  }
  return static_cast<ncclResult_t>(result);
}

ncclResult_t refuse(const char* function, const char* reason) noexcept {
  return fail(ncclInvalidUsage, function, ": ", reason);
}

Group& group() noexcept { return whorl::lasting_of_thread<Group, struct OfThread>(); }

void fail_group() noexcept {
  // whorl issues no call of a group in which one was refused.
  static_cast<void>(whorlSend(nullptr, 0, whorlInt8, 0, nullptr, nullptr));
}

} // namespace whorl_nccl

using namespace whorl_nccl; // NOLINT: joins the names of both libraries

WHORL_NCCL_DEFINE(const char*, ncclGetLastError, (ncclComm_t comm)) {
  try {
    return last_error(comm);
  } catch (...) {
    return "out of memory";
  }
}
