#include <algorithm>
#include <string>
#include <string_view>

#include "target.h"
#include "topology/fabric.h"
#include "topology/fabric_text.h"
#include "topology/lines.h"

namespace whorl::fuzz {
namespace {

using topology::Fabric;
using topology::FabricFormat;

/// Returns the lines of a text in the opposite order.
std::string reversed(std::string_view text) {
  std::string other;
  for (topology::Lines lines(text); lines.next();) {
    other = std::string(lines.line()) + "\n" + other;
  }
  return other;
}

/// Requires the same network for the lines in another order, where each line stands for itself.
void check_order(const Fabric& fabric, std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf"; // in the first line only
  const bool lines = fabric.format == FabricFormat::kMap ||
                     (fabric.format == FabricFormat::kSlurmConf && text.find('\\') == text.npos);
  if (!lines || text.find(kByteOrderMark) != text.npos) return;
  const auto other = topology::read_fabric(reversed(text), "other");
  if (!other.ok() || other->format != fabric.format) return; // the first line tells the format
  require(other->switches == fabric.switches && other->hosts == fabric.hosts,
          "the order of lines does not matter");
}

void check_shape(const Fabric& fabric) {
  require(!fabric.hosts.empty() && !fabric.switches.empty(), "hosts below switches");
  for (std::size_t i = 0; i < fabric.switches.size(); ++i) {
    require(fabric.switches[i].parent < static_cast<int>(i), "switches after those above");
  }
  for (const topology::FabricHost& host : fabric.hosts) {
    const std::vector<int> above = fabric.above(host.name);
    require(!above.empty() && above.front() == host.leaf, "a chain that begins with the leaf");
    require(fabric.at(above.back()).parent == -1, "a chain up to a root");
    require(!topology::to_chain(fabric, host.name).empty(), "a chain");
  }
}

} // namespace

std::vector<std::string> seeds() { return {}; } // files

} // namespace whorl::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace whorl;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto fabric = topology::read_fabric(text, "input");
  if (!fabric.ok()) {
    fuzz::require(fabric.status().message().starts_with("input"), fabric.status().message());
    return 0;
  }
  constexpr std::size_t kMany = 10'000; // a few bytes are enough for a million hosts
  if (fabric->hosts.size() > kMany) return 0;
  fuzz::check_shape(*fabric);
  fuzz::check_order(*fabric, text);
  fuzz::require(!topology::to_summary(*fabric).empty(), "a summary");
  fuzz::require(!topology::to_tree(*fabric).empty(), "a tree");
  return 0;
}
