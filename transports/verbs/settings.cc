#include "transports/verbs/settings.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "base/params.h"
#include "base/printable.h"

namespace whorl {

Result<PortFilter> PortFilter::parse(std::string_view text) {
  const std::string_view whole = text;
  PortFilter filter;
  const auto take = [&text](char sign) {
    const bool there = text.starts_with(sign);
    if (there) text.remove_prefix(1);
    return there;
  };
  filter.excluding_ = take('^');
  filter.exact_ = take('=');
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(','), text.size());
    const std::string_view item = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (item.empty()) continue;
    const std::size_t colon = std::min(item.find(':'), item.size());
    Entry entry{.device = std::string(item.substr(0, colon))};
    if (colon < item.size()) {
      const char* const last = item.data() + item.size();
      const auto [rest, error] = std::from_chars(item.data() + colon + 1, last, entry.port);
      if (error != std::errc() || rest != last || entry.port < 1 || entry.port > 255) {
        return Status::error(Code::kInvalidUsage,
                             fmt::format("WHORL_IB_HCA=\"{}\": the port of \"{}\" is not a number "
                                         "from 1 to 255",
                                         printable(whole), printable(item)));
      }
    }
    filter.entries_.push_back(std::move(entry));
  }
  return filter;
}

bool PortFilter::admits(std::string_view device, int port) const noexcept {
  if (entries_.empty()) return true;
  const bool listed = std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return (exact_ ? device == entry.device : device.starts_with(entry.device)) &&
           (entry.port == 0 || entry.port == port);
  });
  return listed != excluding_;
}

Result<VerbsSettings> VerbsSettings::from_environment() {
  VerbsSettings settings;
  WHORL_TRY(read_param(Param::kIbDisable, settings.disabled));
  Result<PortFilter> filter = PortFilter::parse(param_text(Param::kIbHca));
  if (!filter.ok()) return filter.status();
  settings.filter = *std::move(filter);
  WHORL_TRY(read_param(Param::kIbGidIndex, -1, 65535, settings.gid_index));
  WHORL_TRY(read_param(Param::kIbTrafficClass, 0, 255, settings.traffic_class));
  WHORL_TRY(read_param(Param::kIbServiceLevel, 0, 15, settings.service_level));
  WHORL_TRY(read_param(Param::kIbTimeout, 1, 31, settings.timeout));
  WHORL_TRY(read_param(Param::kIbRetryCount, 0, 7, settings.retry_count));
  WHORL_TRY(read_param(Param::kIbPkey, 0, 65535, settings.pkey_index));
  WHORL_TRY(read_param(Param::kIbRails, 1, 4, settings.rails));
  // To a device 7 means for ever: the end of a peer would never be reported.
  settings.retry_count = std::min<std::uint8_t>(settings.retry_count, 6);
  return settings;
}

} // namespace whorl
