#include <fmt/core.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "topology/fabric_builder.h"
#include "topology/fabric_formats.h"
#include "topology/hostlist.h"
#include "topology/lines.h"

namespace whorl::topology {
namespace {

constexpr std::size_t kMaxWords = 8;

/// Switch of a column, and what the first line that names it says about what is above it.
struct Place {
  int index = -1, line = 0;
  std::string_view above;
};

} // namespace

Result<Fabric> read_host_map(std::string_view text, const std::string& name) {
  FabricBuilder builder(name);
  std::vector<std::map<std::string_view, Place>> columns; // by name, leaves first
  std::map<std::string_view, int> hosts;                  // line of each
  std::vector<std::string_view> words;
  for (Lines lines(text); lines.next();) {
    const int line = lines.number();
    std::string_view rest = lines.line().substr(0, lines.line().find('#'));
    const auto unknown = [&] {
      return builder.error(
          line,
          fmt::format("this is no file of Slurm or ibnetdiscover, nor a host with the switches "
                      "above it, at most {} and in every line as many",
                      kMaxWords - 1));
    };
    words.clear();
    for (std::string_view word = take_word(rest); !word.empty(); word = take_word(rest)) {
      const Status wrong = check_name(word);
      if (!wrong.ok() && columns.empty()) return unknown();
      if (!wrong.ok()) return builder.error(line, wrong.message());
      words.push_back(word);
      if (words.size() > kMaxWords) break;
    }
    if (words.empty()) continue;
    if (columns.empty()) columns.resize(words.size() - 1);
    if (words.size() < 2 || words.size() > kMaxWords || words.size() != columns.size() + 1) {
      return unknown();
    }
    const auto [known, added] = hosts.emplace(words[0], line);
    if (!added) {
      return builder.error(
          line, fmt::format("the host {} is in line {} already", words[0], known->second));
    }
    if (hosts.size() > FabricBuilder::kMaxNames) {
      return builder.error(line, "there are more hosts than a file may have");
    }
    int below = -1;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const std::string_view above = i + 1 < columns.size() ? words[i + 2] : std::string_view();
      const auto [it, first] = columns[i].emplace(words[i + 1], Place{});
      Place& place = it->second;
      if (first) {
        // Columns have names of their own: rack 1 is not row 1.
        place = {.index = builder.add(words[i + 1], line), .line = line, .above = above};
      } else if (place.above != above) {
        return builder.error(line, fmt::format("{} is below {} here, and below {} in line {}",
                                               words[i + 1], above, place.above, place.line));
      }
      if (i == 0) builder.add_host(place.index, words[0], {});
      if (below >= 0) builder.add_switch(place.index, below);
      below = first ? place.index : -1;
    }
  }
  return builder.finish(FabricFormat::kMap);
}

} // namespace whorl::topology
