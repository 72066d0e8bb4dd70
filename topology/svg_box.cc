#include "topology/svg_box.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace whorl::topology {
namespace {

constexpr double kGap = 6; ///< distance between boxes beside each other

bool is_plain(const Box& box) { return *box.paint.stroke == 0; }

} // namespace

Box together(std::vector<Box> boxes, double row_width) {
  Box box;
  box.inside = std::move(boxes);
  box.row_width = row_width;
  return box;
}

void widen(Box& box, double most) {
  for (std::size_t i = 0; i < box.lines.size(); ++i) {
    const double width = Canvas::width_of(box.lines[i], i == 0) + 2 * kPad;
    box.area.width = std::max(box.area.width, std::min(width, most));
  }
}

void lay_out(Box& box) {
  const double pad = is_plain(box) ? 0 : kPad;
  double x = pad, y = pad / 2, bottom = y, right = box.area.width - pad;
  for (std::size_t i = 0; i < box.lines.size(); ++i) bottom += Canvas::kLineHeight;
  if (!box.lines.empty() && !box.inside.empty()) bottom += kGap;
  y = bottom;
  std::vector<Box*> row;
  const auto end_row = [&] {
    for (Box* const it : row) { // boxes beside each other are equally high
      if (!it->inside.empty()) it->area.height = bottom - y;
    }
    row.clear();
    x = pad;
    y = bottom + kGap;
  };
  for (Box& it : box.inside) {
    lay_out(it);
    if (!row.empty() && (box.row_width == 0 || x + it.area.width > box.row_width)) end_row();
    it.area.x = x;
    it.area.y = y;
    x += it.area.width + kGap;
    right = std::max(right, x - kGap);
    bottom = std::max(bottom, y + it.area.height);
    row.push_back(&it);
  }
  end_row();
  box.area.width = right + pad;
  box.area.height = bottom + pad;
}

void draw(Canvas& canvas, const Box& box, double x, double y) {
  const Area area = {x + box.area.x, y + box.area.y, box.area.width, box.area.height};
  if (!is_plain(box)) canvas.box(area, box.paint, fmt::format("{}", fmt::join(box.lines, ", ")));
  double line_y = area.y + kPad / 2;
  for (std::size_t i = 0; i < box.lines.size(); ++i) {
    line_y += Canvas::kLineHeight;
    canvas.text(area.x + kPad, line_y - 3, Canvas::fit(box.lines[i], area.width - 2 * kPad, i == 0),
                i == 0);
  }
  for (const Box& it : box.inside) draw(canvas, it, area.x, area.y);
}

} // namespace whorl::topology
