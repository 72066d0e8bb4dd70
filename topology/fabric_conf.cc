#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

#include "topology/fabric_builder.h"
#include "topology/fabric_formats.h"
#include "topology/hostlist.h"
#include "topology/lines.h"

namespace whorl::topology {
namespace {

bool same_key(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

bool is_escaped(std::string_view line, std::size_t at) {
  std::size_t before = at;
  while (before > 0 && line[before - 1] == '\\') --before;
  return (at - before) % 2 == 1;
}

/// Appends a line without its comment and escapes. Returns whether the next line continues it.
bool append_line(std::string& text, std::string_view line) {
  for (std::size_t at = line.find('#'); at != std::string_view::npos; at = line.find('#', at + 1)) {
    if (!is_escaped(line, at)) line = line.substr(0, at);
  }
  line = line.substr(0, line.find_last_not_of(kBlanks) + 1);
  const bool continued = !line.empty() && line.back() == '\\' && !is_escaped(line, line.size() - 1);
  if (continued) line.remove_suffix(1);
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\\' && i + 1 < line.size()) ++i;
    text += line[i];
  }
  return continued;
}

/// Key and value of "Key=value" or "Key = \"a value\"".
struct Pair {
  std::string_view key, value;
};

/// Reader of one file, line by line.
class ConfReader {
 public:
  ConfReader(std::string_view text, const std::string& name) : lines_(text), builder_(name) {}

  Result<Fabric> read() {
    std::string line;
    int first = 0;
    while (lines_.next()) {
      if (line.empty()) first = lines_.number();
      if (append_line(line, lines_.line())) continue;
      WHORL_TRY(read_line(line, first));
      line.clear();
    }
    WHORL_TRY(read_line(line, first));
    return builder_.finish(FabricFormat::kSlurmConf);
  }

 private:
  Result<Pair> take_pair(std::string_view& rest, int line) const {
    const std::string_view whole = skip_blanks(rest);
    const auto wrong = [&] {
      return builder_.error(line, fmt::format("\"{}\" is no \"Key=value\"", whole.substr(0, 40)));
    };
    Pair pair;
    const std::size_t equals = rest.find('=');
    if (equals == std::string_view::npos) return wrong();
    std::string_view before = rest.substr(0, equals);
    pair.key = take_word(before);
    if (pair.key.empty() || !skip_blanks(before).empty()) return wrong();
    rest = skip_blanks(rest.substr(equals + 1));
    if (!rest.starts_with('"')) {
      pair.value = take_word(rest);
      return pair;
    }
    const std::size_t end = rest.find('"', 1);
    if (end == std::string_view::npos) return wrong();
    pair.value = rest.substr(1, end - 1);
    rest.remove_prefix(end + 1);
    return pair;
  }

  Status read_line(std::string_view rest, int line) {
    rest = skip_blanks(rest);
    if (rest.empty()) return {};
    if (std::string_view words = rest; same_key(take_word(words), "Include")) {
      return builder_.error(line, "Include is not followed; put the files into one");
    }
    auto pair = take_pair(rest, line);
    if (!pair.ok()) return pair.status();
    const bool block = same_key(pair->key, "BlockName");
    if (!block && !same_key(pair->key, "SwitchName")) {
      // Blocks of blocks are those that follow each other, for Slurm to choose from.
      if (!same_key(pair->key, "BlockSizes")) {
        builder_.note(line, fmt::format("{} is unknown, and left out", pair->key.substr(0, 40)));
      }
      return {};
    }
    if (const Status name = check_name(pair->value); !name.ok()) {
      return builder_.error(line, name.message());
    }
    const auto index = builder_.define(pair->value, line);
    if (!index.ok()) return index.status();
    return read_children(rest, line, *index, block);
  }

  Status read_children(std::string_view rest, int line, int index, bool block) {
    bool nodes = false, switches = false;
    while (!skip_blanks(rest).empty()) {
      const auto pair = take_pair(rest, line);
      if (!pair.ok()) return pair.status();
      const bool hosts = same_key(pair->key, "Nodes");
      if (hosts || (!block && same_key(pair->key, "Switches"))) {
        bool& seen = hosts ? nodes : switches;
        if (seen) return builder_.error(line, fmt::format("{} comes twice", pair->key));
        seen = true;
        WHORL_TRY(hosts ? builder_.add_hosts(index, pair->value, line)
                        : builder_.add_switches(index, pair->value, line));
      } else if (!same_key(pair->key, "LinkSpeed")) { // in a unit that nobody knows
        builder_.note(line, fmt::format("{} is unknown, and left out", pair->key.substr(0, 40)));
      }
    }
    return {};
  }

  Lines lines_;
  FabricBuilder builder_;
};

} // namespace

Result<Fabric> read_slurm_conf(std::string_view text, const std::string& name) {
  return ConfReader(text, name).read();
}

} // namespace whorl::topology
