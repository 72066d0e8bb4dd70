#pragma once

#include <string>
#include <vector>

#include "topology/svg_canvas.h"

namespace whorl::topology {

/// Distance between the edge of a box and what is inside.
inline constexpr double kPad = 8;

/// Rectangle with lines of text above the boxes inside. Without a stroke, a box only holds others
/// together.
struct Box {
  Paint paint;
  std::vector<std::string> lines; ///< text; the first line is bold
  std::vector<Box> inside;
  double row_width = 0; ///< width at which what is inside begins a new row; 0: a column
  Area area;            ///< place, relative to the box around
};

/// Returns one row or column of boxes, in as many rows as they need.
Box together(std::vector<Box> boxes, double row_width);

/// Makes a box wide enough for its lines, up to a limit.
void widen(Box& box, double most);

/// Sets sizes of a box and places of what is inside; a width that is set already is the least.
void lay_out(Box& box);

/// Draws a box that is laid out, in a box whose corner is at a point.
void draw(Canvas& canvas, const Box& box, double x, double y);

} // namespace whorl::topology
