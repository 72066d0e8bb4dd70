#include "topology/xml_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "topology/text_file.h"

namespace whorl::topology {

XmlFile::XmlFile(std::string text, std::string name)
    : name_(std::move(name)), text_(std::move(text)) {
  for (std::size_t at = text_.find('\n'); at != std::string::npos; at = text_.find('\n', at + 1)) {
    line_ends_.push_back(static_cast<std::ptrdiff_t>(at));
  }
}

Result<XmlFile> XmlFile::parse(std::string text, std::string name) {
  XmlFile file(std::move(text), std::move(name));
  WHORL_TRY(check_size(file.name_, file.text_.size()));
  const pugi::xml_parse_result parsed =
      file.document_->load_buffer(file.text_.data(), file.text_.size());
  if (!parsed) {
    return Status::error(Code::kInvalidArgument,
                         fmt::format("{}, line {}: not well-formed XML: {}", file.name_,
                                     file.line_at(parsed.offset), parsed.description()));
  }
  WHORL_TRY(file.check_shape());
  return file;
}

Result<XmlFile> XmlFile::read(const std::string& path) {
  auto text = read_text_file(path);
  if (!text.ok()) return text.status();
  return parse(*std::move(text), path);
}

Status XmlFile::error(pugi::xml_node element, std::string_view why) const {
  return Status::error(Code::kInvalidArgument,
                       fmt::format("{}: <{}> {}", place(element), element.name(), why));
}

std::string XmlFile::place(pugi::xml_node element) const {
  return fmt::format("{}, line {}", name_, line_at(element.offset_debug()));
}

Result<std::optional<long>> XmlFile::number(pugi::xml_node element, const char* attribute,
                                            long least, long most) const {
  const std::string_view text = element.attribute(attribute).value();
  if (text.empty()) return std::optional<long>();
  long value = 0;
  const bool hex = text.starts_with("0x");
  const char* const end = text.data() + text.size();
  const auto [rest, wrong] =
      std::from_chars(text.data() + (hex ? 2 : 0), end, value, hex ? 16 : 10);
  if (wrong != std::errc() || rest != end || value < least || value > most) {
    return error(element, fmt::format("has {}=\"{}\", which is no whole number from {} to {}",
                                      attribute, text.substr(0, 40), least, most));
  }
  return std::optional<long>(value);
}

std::ptrdiff_t XmlFile::line_at(std::ptrdiff_t offset) const {
  return 1 + (std::lower_bound(line_ends_.begin(), line_ends_.end(), offset) - line_ends_.begin());
}

Status XmlFile::check_shape() const {
  std::size_t elements = 0, depth = 0;
  pugi::xml_node at = root();
  if (!at) {
    return Status::error(Code::kInvalidArgument, fmt::format("{}: there is no element", name_));
  }
  while (at) {
    if (++elements > kMaxElements) {
      return error(at, fmt::format("is element {}; no topology has as many", elements));
    }
    if (at.first_child()) {
      if (++depth > kMaxDepth) {
        return error(at, fmt::format("lies in {} other elements; no topology has as many", depth));
      }
      at = at.first_child();
      continue;
    }
    while (at && !at.next_sibling()) {
      at = at.parent();
      if (at.type() == pugi::node_document || at == root()) return {};
      --depth;
    }
    at = at.next_sibling();
  }
  return {};
}

} // namespace whorl::topology
