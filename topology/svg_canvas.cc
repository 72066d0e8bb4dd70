#include "topology/svg_canvas.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

namespace whorl::topology {
namespace {

/// Returns the text without what XML cannot contain: bytes that are no UTF-8, control characters.
std::string clean(std::string_view text) {
  using Json = nlohmann::json;
  // JSON of the text, and back.
  const std::string quoted = Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  auto result = Json::parse(quoted).get<std::string>();
  std::replace_if(
      result.begin(), result.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  for (const char* const no_character : {"\xef\xbf\xbe", "\xef\xbf\xbf"}) { // U+FFFE, U+FFFF
    for (std::size_t at = 0; (at = result.find(no_character)) != std::string::npos;) {
      result.replace(at, 3, "?");
    }
  }
  return result;
}

bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; }

double width_of_character(bool bold) { return Canvas::kFontSize * (bold ? 0.68 : 0.6); }

std::string number(double value) { return fmt::format("{:g}", std::round(value * 10) / 10); }

void set(pugi::xml_node shape, const char* name, double value) {
  shape.append_attribute(name) = number(value).c_str();
}

void add_paint(pugi::xml_node shape, const Paint& paint, std::string_view hint) {
  shape.append_attribute("fill") = *paint.fill == 0 ? "none" : paint.fill;
  if (*paint.stroke != 0) {
    shape.append_attribute("stroke") = paint.stroke;
    set(shape, "stroke-width", paint.width);
  }
  if (*paint.dashes != 0) shape.append_attribute("stroke-dasharray") = paint.dashes;
  if (!hint.empty()) shape.append_child("title").text() = clean(hint).c_str();
}

} // namespace

Canvas::Canvas() : svg_(document_.append_child("svg")) {
  svg_.append_attribute("xmlns") = "http://www.w3.org/2000/svg";
}

void Canvas::box(const Area& area, const Paint& paint, std::string_view hint) {
  pugi::xml_node shape = svg_.append_child("rect");
  set(shape, "x", area.x);
  set(shape, "y", area.y);
  set(shape, "width", area.width);
  set(shape, "height", area.height);
  shape.append_attribute("rx") = 4;
  add_paint(shape, paint, hint);
}

void Canvas::text(double x, double y, std::string_view words, bool bold, bool centred) {
  pugi::xml_node shape = svg_.append_child("text");
  set(shape, "x", x);
  set(shape, "y", y);
  if (bold) shape.append_attribute("font-weight") = "bold";
  if (centred) shape.append_attribute("text-anchor") = "middle";
  shape.text() = clean(words).c_str();
}

void Canvas::line(double x1, double y1, double x2, double y2, double bend, const Paint& paint,
                  std::string_view hint) {
  const double length = std::max(std::hypot(x2 - x1, y2 - y1), 1.0);
  const double middle_x = (x1 + x2) / 2 - (y2 - y1) / length * bend;
  const double middle_y = (y1 + y2) / 2 + (x2 - x1) / length * bend;
  pugi::xml_node shape = svg_.append_child("path");
  shape.append_attribute("d") =
      fmt::format("M{},{} Q{},{} {},{}", number(x1), number(y1), number(middle_x), number(middle_y),
                  number(x2), number(y2))
          .c_str();
  add_paint(shape, paint, hint);
}

std::string Canvas::finish(double width, double height) {
  set(svg_, "width", width);
  set(svg_, "height", height);
  svg_.append_attribute("viewBox") =
      fmt::format("0 0 {} {}", number(width), number(height)).c_str();
  svg_.append_attribute("font-family") = "Arial, Liberation Sans, Helvetica, sans-serif";
  set(svg_, "font-size", kFontSize);
  pugi::xml_node paper = svg_.prepend_child("rect");
  set(paper, "width", width);
  set(paper, "height", height);
  paper.append_attribute("fill") = "white";
  std::ostringstream text;
  document_.save(text, " ", pugi::format_default, pugi::encoding_utf8);
  return text.str();
}

double Canvas::width_of(std::string_view text, bool bold) {
  return static_cast<double>(std::count_if(text.begin(), text.end(), begins_character)) *
         width_of_character(bold);
}

std::string Canvas::fit(std::string_view text, double width, bool bold) {
  if (width_of(text, bold) <= width) return std::string(text);
  auto left = static_cast<long>(width / width_of_character(bold)) - 1;
  std::size_t end = 0;
  while (end < text.size() && (left > 0 || !begins_character(text[end]))) {
    if (begins_character(text[end])) --left;
    ++end;
  }
  while (end < text.size() && !begins_character(text[end])) ++end;
  return std::string(text.substr(0, end)) + "…";
}

} // namespace whorl::topology
