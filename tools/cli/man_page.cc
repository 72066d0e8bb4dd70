#include <fmt/format.h>

#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include "tools/cli/app.h"
#include "tools/cli/pages.h"
#include "tools/cli/values.h"

namespace whorl::cli {
namespace {

/// Returns text as roff shows it literally. Hyphens stay hyphens of the keyboard, so that options
/// can be copied.
std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool begins = out.empty() || out.back() == '\n';
    if (begins && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

/// Returns the end of the first sentence of a text.
std::size_t sentence_end(const std::string& text) {
  for (std::size_t at = text.find('.'); at != std::string::npos; at = text.find('.', at + 1)) {
    if (at + 1 == text.size() || text[at + 1] == ' ') return at;
  }
  return text.size();
}

/// Returns the first sentence of a description in the form of a NAME section: no capital, no full
/// stop.
std::string summary(const std::string& description) {
  std::string text = description.substr(0, sentence_end(description));
  if (!text.empty()) text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

/// Adds each option of the list as a paragraph with a tag.
void add_options(std::string& out, const CLI::App& app,
                 const std::vector<const CLI::Option*>& options) {
  const auto* const formatter = dynamic_cast<const CLI::Formatter*>(app.get_formatter().get());
  for (const CLI::Option* const option : options) {
    const bool positional = option->get_positional();
    std::string takes = formatter != nullptr ? formatter->make_option_opts(option) : "";
    std::string text = option->get_description();
    if (const std::string values = values_of(*option, ", "); !values.empty()) {
      takes.clear();
      text += ", one of " + values;
    }
    out += fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", escape(option->get_name(positional, !positional)),
                       escape(takes), escape(text));
  }
}

/// Adds the options of an app or of a subcommand, group by group as --help shows them.
void add_all_options(std::string& out, const CLI::App& app) {
  for (const bool positional : {true, false}) {
    for (const std::string& group : app.get_groups()) {
      const auto options = app.get_options([&](const CLI::Option* option) {
        return !group.empty() && option->get_group() == group &&
               option->get_positional() == positional;
      });
      if (options.empty()) continue;
      if (!positional && group != "Options") out += fmt::format(".SS {}\n", escape(group));
      add_options(out, app, options);
    }
  }
}

} // namespace

std::string to_man_page(const CLI::App& app) {
  std::string title = app.get_name();
  for (char& c : title) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  const auto subcommands = app.get_subcommands([](const CLI::App*) { return true; });
  std::string usage = subcommands.empty() ? "" : " COMMAND";
  for (const CLI::Option* const option :
       app.get_options([](const CLI::Option* one) { return one->get_positional(); })) {
    const std::string name = option->get_name(true);
    usage += option->get_required() ? " " + name : " [" + name + "]";
  }
  usage += " [OPTION]...";
  std::string out = fmt::format(
      ".TH {} 1 \"\" \"whorl {}\" \"whorl\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n.B {}\n{}\n"
      ".SH DESCRIPTION\n{}\n",
      escape(title), release(), escape(app.get_name()), escape(summary(app.get_description())),
      escape(app.get_name()), escape(usage.substr(1)), escape(app.get_description()));
  out += ".SH OPTIONS\n";
  add_all_options(out, app);
  if (!subcommands.empty()) out += ".SH COMMANDS\n";
  for (const CLI::App* const subcommand : subcommands) {
    out += fmt::format(".SS {}\n{}\n", escape(subcommand->get_name()),
                       escape(subcommand->get_description()));
    add_all_options(out, *subcommand);
  }
  if (!app.get_footer().empty()) out += fmt::format(".SH NOTES\n{}\n", escape(app.get_footer()));
  return out;
}

} // namespace whorl::cli
