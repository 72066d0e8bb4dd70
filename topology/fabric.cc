#include "topology/fabric.h"

#include <fmt/core.h>

#include <algorithm>

#include "topology/fabric_formats.h"
#include "topology/lines.h"
#include "topology/text_file.h"

namespace whorl::topology {
namespace {

/// Returns the place of the first byte that is no UTF-8 text, or the size.
std::size_t first_no_text(std::string_view text) {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  for (std::size_t i = 0; i < text.size();) {
    const unsigned first = byte(i);
    const std::size_t length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    const bool control = first < ' ' && first != '\n' && first != '\t' && first != '\r' &&
                         first != '\f' && first != '\v';
    if (control || (first >= 0x80 && first < 0xc2) || first > 0xf4) return i;
    if (length > text.size() - i) return i;
    for (std::size_t j = 1; j < length; ++j) {
      if ((byte(i + j) & 0xc0U) != 0x80) return i;
    }
    const unsigned second = length > 2 ? byte(i + 1) : 0x80;
    if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second >= 0xa0) ||
        (first == 0xf0 && second < 0x90) || (first == 0xf4 && second >= 0x90)) {
      return i;
    }
    i += length;
  }
  return text.size();
}

/// Returns the format: by a line that only ibnetdiscover writes, perhaps below complaints of the
/// program, or by the first line that is neither blank nor a comment.
FabricFormat recognise(std::string_view text) {
  for (Lines lines(text); lines.next();) {
    const std::string_view line = skip_blanks(lines.line());
    for (const std::string_view begin : {"vendid=", "switchguid=", "caguid=", "rtguid="}) {
      if (line.starts_with(begin)) return FabricFormat::kIbnetdiscover;
    }
  }
  for (Lines lines(text); lines.next();) {
    std::string_view rest = lines.line();
    const std::string_view word = take_word(rest);
    if (word.empty() || word.front() == '#') continue;
    if (word == "Switch" || word == "Ca" || word == "Rt") return FabricFormat::kIbnetdiscover;
    if (word.find('=') != std::string_view::npos || skip_blanks(rest).starts_with('=')) {
      return FabricFormat::kSlurmConf;
    }
    if (std::string_view("-[{%&*!|>'\"").find(word.front()) != std::string_view::npos ||
        word.back() == ':') {
      return FabricFormat::kSlurmYaml;
    }
    break;
  }
  return FabricFormat::kMap;
}

} // namespace

std::string_view name_of(FabricFormat format) {
  switch (format) {
    case FabricFormat::kSlurmConf:
      return "topology.conf";
    case FabricFormat::kSlurmYaml:
      return "topology.yaml";
    case FabricFormat::kIbnetdiscover:
      return "ibnetdiscover";
    case FabricFormat::kMap:
      return "map of hosts";
  }
  return "";
}

int Fabric::find(std::string_view host) const {
  const auto from = [this](std::string_view name) {
    return std::lower_bound(
        hosts.begin(), hosts.end(), name,
        [](const FabricHost& it, std::string_view other) { return it.name < other; });
  };
  const std::string_view alone = host.substr(0, host.find('.'));
  for (const std::string_view name : {host, alone}) {
    const auto found = from(name);
    if (found != hosts.end() && found->name == name) return static_cast<int>(found - hosts.begin());
  }
  if (alone != host || alone.empty()) return -1;
  const std::string dotted = std::string(alone) + '.';
  const auto first = from(dotted);
  if (first == hosts.end() || !first->name.starts_with(dotted)) return -1;
  if (first + 1 != hosts.end() && (first + 1)->name.starts_with(dotted)) return -1;
  return static_cast<int>(first - hosts.begin());
}

std::vector<int> Fabric::above(std::string_view host) const {
  std::vector<int> chain;
  const int index = find(host);
  if (index < 0) return chain;
  for (int it = hosts[static_cast<std::size_t>(index)].leaf; it >= 0; it = at(it).parent) {
    chain.push_back(it);
  }
  return chain;
}

Result<Fabric> read_fabric_file(const std::string& path) {
  const auto text = read_text_file(path);
  if (!text.ok()) return text.status();
  return read_fabric(*text, path);
}

Result<Fabric> read_fabric(std::string_view text, const std::string& name) {
  WHORL_TRY(check_size(name, text.size()));
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  const std::size_t wrong = first_no_text(text);
  if (wrong < text.size()) {
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<long>(wrong), '\n');
    return Status::error(Code::kInvalidArgument,
                         fmt::format("{}, line {}: the byte 0x{:02x} is no text in UTF-8", name,
                                     line, static_cast<unsigned char>(text[wrong])));
  }
  switch (recognise(text)) {
    case FabricFormat::kSlurmConf:
      return read_slurm_conf(text, name);
    case FabricFormat::kSlurmYaml:
      return read_slurm_yaml(text, name);
    case FabricFormat::kIbnetdiscover:
      return read_ibnetdiscover(text, name);
    case FabricFormat::kMap:
      break;
  }
  return read_host_map(text, name);
}

} // namespace whorl::topology
