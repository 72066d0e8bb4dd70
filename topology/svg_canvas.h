#pragma once

#include <pugixml.hpp>

#include <string>
#include <string_view>

#include "topology/graph.h"

namespace whorl::topology {

/// Rectangle in pixels.
struct Area {
  double x = 0, y = 0, width = 0, height = 0;
};

/// Colours of a shape, and the pattern of its line; empty: none.
struct Paint {
  const char* fill = "";
  const char* stroke = "";
  double width = 1;
  const char* dashes = "";
};

/// Picture to which shapes are added, one above the other.
class Canvas {
 public:
  static constexpr double kFontSize = 12, kLineHeight = 15;

  Canvas();

  /// Adds a box with round corners. A browser shows `hint` at the mouse.
  void box(const Area& area, const Paint& paint, std::string_view hint);
  /// Adds a line of text that begins at a point, or whose middle is there.
  void text(double x, double y, std::string_view words, bool bold, bool centred = false);
  /// Adds a line that is bent by `bend` pixels in its middle.
  void line(double x1, double y1, double x2, double y2, double bend, const Paint& paint,
            std::string_view hint);
  /// Returns the picture.
  std::string finish(double width, double height);

  /// Returns the width of a text in pixels; an estimate that is rather too large.
  static double width_of(std::string_view text, bool bold);
  /// Returns the text, cut off to a width.
  static std::string fit(std::string_view text, double width, bool bold);

 private:
  pugi::xml_document document_;
  pugi::xml_node svg_;
};

/// Adds the links between GPUs as a circle, with its upper left corner at a point. Returns the area
/// that they take; nothing if there are none.
Area draw_links(Canvas& canvas, const Graph& graph, double x, double y);

} // namespace whorl::topology
