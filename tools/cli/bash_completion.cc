#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "tools/cli/pages.h"
#include "tools/cli/values.h"

namespace whorl::cli {
namespace {

/// Returns the words that may stand on the command line of an app: names of options, and values of
/// operands.
std::string words_of(const CLI::App& app) {
  std::string words;
  for (const CLI::Option* const option : app.get_options()) {
    if (option->get_positional()) {
      words += values_of(*option, " ") + " ";
    } else if (!option->get_group().empty()) {
      for (const std::string& name : option->get_lnames()) words += "--" + name + " ";
      for (const std::string& name : option->get_snames()) words += "-" + name + " ";
    }
  }
  return words;
}

/// Returns cases of a bash `case` for options of which the values are known.
std::string value_cases(const CLI::App& app) {
  std::string cases;
  for (const CLI::Option* const option : app.get_options()) {
    const std::string values = values_of(*option, " ");
    if (values.empty() || option->get_positional()) continue;
    std::string names;
    for (const std::string& name : option->get_lnames()) names += "|--" + name;
    for (const std::string& name : option->get_snames()) names += "|-" + name;
    cases += fmt::format("    {}) words='{}' ;;\n", names.substr(1), values);
  }
  return cases;
}

} // namespace

std::string to_bash_completion(const CLI::App& app) {
  const std::string& name = app.get_name();
  std::string function = "_" + name;
  std::replace(function.begin(), function.end(), '-', '_');
  std::string commands, subcommand_cases, cases = value_cases(app);
  for (const CLI::App* const sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    commands += sub->get_name() + " ";
    subcommand_cases += fmt::format("    {}) words='{}' ;;\n", sub->get_name(), words_of(*sub));
    cases += value_cases(*sub);
  }
  return fmt::format(
      "# bash completion of {name}\n"
      "{function}() {{\n"
      "  local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} "
      "words='{words}{commands}'\n"
      "  case ${{COMP_WORDS[1]-}} in\n{subcommand_cases}    *) ;;\n  esac\n"
      "  case $before in\n{cases}    *) ;;\n  esac\n"
      "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
      "}}\n"
      "complete -o default -F {function} {name}\n",
      fmt::arg("name", name), fmt::arg("function", function), fmt::arg("words", words_of(app)),
      fmt::arg("commands", commands), fmt::arg("subcommand_cases", subcommand_cases),
      fmt::arg("cases", cases));
}

std::optional<std::string> page_for(const CLI::App& app, int argc, const char* const* argv) {
  if (argc != 3 || std::string_view(argv[1]) != "--generate") return std::nullopt;
  if (std::string_view(argv[2]) == "man") return to_man_page(app);
  if (std::string_view(argv[2]) == "bash") return to_bash_completion(app);
  return std::nullopt;
}

} // namespace whorl::cli
