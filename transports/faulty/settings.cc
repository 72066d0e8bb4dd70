#include "transports/faulty/settings.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <optional>

#include "base/printable.h"

namespace whorl {
namespace {

/// Reads a whole text as a number in [low, high].
template <class Number>
std::optional<Number> number(std::string_view text, Number low, Number high) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (!(value >= low && value <= high)) return std::nullopt;
  return value;
}

/// Reads a duration of at least 1 µs and at most an hour, such as 250us, 5ms or 2s.
std::optional<std::uint64_t> duration(std::string_view text) {
  struct Unit {
    std::string_view name;
    std::uint64_t ns;
  };
  constexpr std::uint64_t kHourNs = 3'600'000'000'000;
  for (const Unit& unit : {Unit{"us", 1'000}, Unit{"ms", 1'000'000}, Unit{"s", 1'000'000'000}}) {
    if (!text.ends_with(unit.name)) continue;
    const auto count =
        number<std::uint64_t>(text.substr(0, text.size() - unit.name.size()), 1, kHourNs / unit.ns);
    if (count) return *count * unit.ns;
  }
  return std::nullopt;
}

/// Text in front of a sign and behind it; nothing behind it if the sign is not there.
struct Halves {
  std::string_view before;
  std::optional<std::string_view> after;
};

Halves split(std::string_view text, char sign) {
  const std::size_t at = text.find(sign);
  if (at == std::string_view::npos) return {text, std::nullopt};
  return {text.substr(0, at), text.substr(at + 1)};
}

/// Reads a part such as "stall@200:300ms". Returns what was expected where it is wrong, else null.
const char* parse_fault(std::string_view kind, std::string_view text, FaultySettings& settings) {
  const auto [message, detail] = split(text, ':');
  const auto at = number<std::uint64_t>(message, 1, UINT64_MAX);
  if (!at) return "the number of a message, from 1";
  Fault fault{.message = *at};
  if (kind == "stall") {
    fault.kind = Fault::Kind::kStall;
    if (detail) {
      const auto length = duration(*detail);
      if (!length) return "a duration such as 300ms behind the colon";
      fault.duration_ns = *length;
    }
  } else if (kind == "kill") {
    fault.signal = SIGKILL;
    if (detail) {
      const auto signal = number<int>(*detail, 1, SIGRTMAX);
      if (!signal) return "the number of a signal behind the colon";
      fault.signal = *signal;
    }
  } else if (kind == "cut" || kind == "truncate") {
    fault.kind = kind == "cut" ? Fault::Kind::kCut : Fault::Kind::kTruncate;
    if (detail) return "nothing behind the number";
  } else {
    return "stall, cut, truncate or kill in front of @";
  }
  settings.faults.push_back(fault);
  return nullptr;
}

/// Reads a part such as "delay=0.1:5ms". Returns what was expected where it is wrong, else null.
const char* parse_setting(std::string_view name, std::string_view text, FaultySettings& settings) {
  if (name == "seed") {
    const auto seed = number<std::uint64_t>(text, 0, UINT64_MAX);
    if (!seed) return "a whole number";
    settings.seed = *seed;
  } else if (name == "rank") {
    const auto rank = number<int>(text, 0, INT32_MAX);
    if (!rank) return "a rank";
    settings.rank = *rank;
  } else if (name == "reorder") {
    const auto longest = duration(text);
    if (!longest) return "a duration such as 2ms";
    settings.reorder_ns = *longest;
  } else if (name == "delay") {
    const auto [share, rest] = split(text, ':');
    const auto part = number<double>(share, 0, 1);
    const auto longest = duration(rest.value_or(""));
    if (!part || !longest) return "a part from 0 to 1, a colon and a duration, such as 0.1:5ms";
    settings.delay_share = *part;
    settings.delay_ns = *longest;
  } else {
    return "seed, rank, delay or reorder in front of =";
  }
  return nullptr;
}

} // namespace

Result<FaultySettings> FaultySettings::parse(std::string_view text) {
  const std::string_view whole = text;
  FaultySettings settings;
  for (;;) {
    const auto [part, rest] = split(text, ',');
    const auto [kind, message] = split(part, '@');
    const auto [name, value] = split(part, '=');
    const char* const expected = message ? parse_fault(kind, *message, settings)
                                 : value ? parse_setting(name, *value, settings)
                                         : "NAME=VALUE or FAULT@MESSAGE";
    if (expected != nullptr) {
      return Status::error(Code::kInvalidUsage,
                           fmt::format("WHORL_FAULTY=\"{}\": \"{}\" should have {}",
                                       printable(whole), printable(part), expected));
    }
    if (!rest) break;
    text = *rest;
  }
  std::sort(settings.faults.begin(), settings.faults.end(),
            [](const Fault& a, const Fault& b) { return a.message < b.message; });
  return settings;
}

} // namespace whorl
