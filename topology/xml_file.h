#pragma once

#include <pugixml.hpp>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace whorl::topology {

/// XML text that somebody else has written, and the sentences about what is wrong with it.
class XmlFile {
 public:
  /// Most elements in each other and most elements that are read.
  static constexpr std::size_t kMaxDepth = 100, kMaxElements = 1U << 20;

  /// Parses `text`; `name` stands for it in sentences. The error names the line.
  static Result<XmlFile> parse(std::string text, std::string name);
  /// Reads and parses a file.
  static Result<XmlFile> read(const std::string& path);

  pugi::xml_node root() const { return document_->document_element(); }
  const std::string& name() const noexcept { return name_; }
  /// Returns an error that names the file, the line of `element` and the element.
  Status error(pugi::xml_node element, std::string_view why) const;
  /// Returns "NAME, line 12".
  std::string place(pugi::xml_node element) const;

  /// Returns an attribute as a number; nothing if the element lacks the attribute or if the
  /// attribute is empty. The error names an attribute that is no number between the bounds.
  Result<std::optional<long>> number(pugi::xml_node element, const char* attribute, long least,
                                     long most) const;

 private:
  XmlFile(std::string text, std::string name);
  std::ptrdiff_t line_at(std::ptrdiff_t offset) const;
  Status check_shape() const;

  std::string name_, text_;
  std::vector<std::ptrdiff_t> line_ends_;
  std::unique_ptr<pugi::xml_document> document_ = std::make_unique<pugi::xml_document>();
};

} // namespace whorl::topology
