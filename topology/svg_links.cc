#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numbers>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "topology/paths.h"
#include "topology/svg_canvas.h"
#include "topology/text.h"

namespace whorl::topology {
namespace {

// Colours that readers with any kind of sight can tell apart (Okabe and Ito); with the dashes, 28
// kinds of lines.
constexpr std::array<const char*, 7> kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                 "#e69f00", "#56b4e9", "#444444"};
constexpr std::array<const char*, 4> kDashes = {"", "9 4", "3 3", "12 3 3 3"};
constexpr double kLeastEndWidth = 92, kMostEndWidth = 140, kEndHeight = 26, kLegendWidth = 560;

/// Line between two ends, or from an end to the switches.
struct Line {
  int a = -1, b = -1; ///< nodes; b is −1 for the switches
  Path links;
  int beside = 0; ///< number of lines between the same ends before this one
};

/// Lines of one bandwidth: kind, bandwidth, its origin, number of links, whether they lead to
/// switches.
using Class = std::tuple<LinkKind, double, Origin, int, bool>;

Class class_of(const Line& line) {
  const Path& it = line.links;
  return {it.kind, -it.bandwidth.gb_per_s, it.bandwidth.origin, -it.links, line.b < 0};
}

/// Returns a line for each link, and one from each node to the switches.
std::vector<Line> find_lines(const Graph& graph) {
  std::vector<Line> lines;
  std::set<int> at_switches;
  for (const Link& link : graph.links) {
    const bool a = graph.at(link.a).kind == NodeKind::kNvSwitch;
    const bool b = graph.at(link.b).kind == NodeKind::kNvSwitch;
    if (a != b) at_switches.insert(a ? link.b : link.a);
    if (a || b) continue;
    Path path{.path_class = PathClass::kLink, .kind = link.kind, .links = link.count};
    path.bandwidth = link.bandwidth;
    const bool again = !lines.empty() && lines.back().a == link.a && lines.back().b == link.b;
    lines.push_back({link.a, link.b, path, again ? lines.back().beside + 1 : 0});
  }
  for (const int node : at_switches) lines.push_back({node, -1, switch_links(graph, node), 0});
  return lines;
}

/// Drawing of the links of a machine.
class Circle {
 public:
  Circle(Canvas& canvas, const Graph& graph, double x, double y)
      : canvas_(canvas), graph_(graph), lines_(find_lines(graph)) {
    for (Line& line : lines_) {
      if (line.b >= 0 && precedes(line.b, line.a)) std::swap(line.a, line.b);
      ends_.push_back(line.a);
      if (line.b >= 0) ends_.push_back(line.b);
      classes_[class_of(line)].push_back(&line);
    }
    gpus_only_ = std::all_of(ends_.begin(), ends_.end(), [this](int it) { return is_gpu(it); });
    std::sort(ends_.begin(), ends_.end(), [this](int a, int b) { return precedes(a, b); });
    ends_.erase(std::unique(ends_.begin(), ends_.end()), ends_.end());
    for (const int end : ends_) {
      end_width_ = std::max(end_width_, Canvas::width_of(label(graph, end), true) + 10);
    }
    end_width_ = std::min(end_width_, kMostEndWidth);
    const auto count = static_cast<double>(ends_.size());
    radius_x_ = std::max(110.0, count * (end_width_ + 10) / (2 * std::numbers::pi));
    radius_y_ = ends_.size() > 2 ? std::max(100.0, 0.65 * radius_x_) : kEndHeight;
    area_ = {x, y, 2 * radius_x_ + end_width_ + 40 + kLegendWidth, 2 * radius_y_ + kEndHeight + 10};
    centre_x_ = x + end_width_ / 2 + radius_x_;
    centre_y_ = y + kEndHeight / 2 + radius_y_ + 5;
  }

  Area draw() {
    std::size_t number = 0;
    double legend_y = area_.y + 20;
    for (const auto& [key, lines] : classes_) {
      const Paint paint = paint_of(number++, *lines.front());
      for (const Line* const line : lines) draw_line(*line, paint);
      legend_y = draw_legend(lines, paint, legend_y);
    }
    const auto switches = graph_.all(NodeKind::kNvSwitch).size();
    if (std::any_of(lines_.begin(), lines_.end(), [](const Line& line) { return line.b < 0; })) {
      draw_end(centre_x_, centre_y_,
               switches == 1 ? "NVSwitch" : fmt::format("{} NVSwitches", switches),
               {.fill = "#fff2cc", .stroke = "#b8860b"}, 1.4 * kLeastEndWidth);
    }
    for (const int end : ends_) {
      const auto [x, y] = place(end);
      draw_end(x, y, label(graph_, end),
               is_gpu(end) ? Paint{.fill = "#c6e6c3", .stroke = "#2e7d32"}
                           : Paint{.fill = "#dce6f2", .stroke = "#5b7aa0"},
               end_width_);
    }
    area_.height = std::max(area_.height, legend_y - area_.y);
    return area_;
  }

 private:
  bool is_gpu(int node) const { return graph_.at(node).kind == NodeKind::kGpu; }

  /// Orders GPUs by their numbers, and others by the tree.
  bool precedes(int a, int b) const {
    return is_gpu(a) && is_gpu(b) && gpus_only_ ? graph_.at(a).index < graph_.at(b).index : a < b;
  }

  std::pair<double, double> place(int node) const {
    if (node < 0) return {centre_x_, centre_y_};
    const auto at = std::find(ends_.begin(), ends_.end(), node) - ends_.begin();
    const auto count = static_cast<double>(ends_.size());
    // The first ones are at the left, from top to bottom only where there are more than two.
    const double turn = (static_cast<double>(at) + (count > 2 ? 0.5 : 0)) / count;
    const double angle = std::numbers::pi * (1 + 2 * turn);
    return {centre_x_ + radius_x_ * std::cos(angle), centre_y_ + radius_y_ * std::sin(angle)};
  }

  /// Returns the colour of a class, and a width that grows with the bandwidth.
  Paint paint_of(std::size_t number, const Line& line) const {
    double most = 0;
    for (const Line& other : lines_) most = std::max(most, size_of(other));
    return {.fill = "",
            .stroke = kColours.at(number % kColours.size()),
            .width = most > 0 ? 1.5 + (lines_.size() > 16 ? 2.5 : 4) * size_of(line) / most : 2,
            .dashes = kDashes.at(number / kColours.size() % kDashes.size())};
  }
  static double size_of(const Line& line) {
    return line.links.bandwidth.known() ? line.links.bandwidth.gb_per_s
                                        : static_cast<double>(line.links.links);
  }

  void draw_line(const Line& line, const Paint& paint) {
    const auto [x1, y1] = place(line.a);
    const auto [x2, y2] = place(line.b);
    canvas_.line(
        x1, y1, x2, y2, line.beside * 24, paint,
        fmt::format("{} - {}: {}", label(graph_, line.a),
                    line.b < 0 ? "NVSwitches" : label(graph_, line.b), links_text(line.links)));
  }

  void draw_end(double x, double y, const std::string& words, const Paint& paint, double width) {
    canvas_.box({x - width / 2, y - kEndHeight / 2, width, kEndHeight}, paint, words);
    canvas_.text(x, y + 4, Canvas::fit(words, width - 6, true), true, true);
  }

  /// Returns the lower end of what the legend says of a class.
  double draw_legend(const std::vector<const Line*>& lines, const Paint& paint, double y) {
    const double x = area_.x + area_.width - kLegendWidth;
    canvas_.line(x, y - 4, x + 40, y - 4, 0, paint, "");
    const Line& first = *lines.front();
    canvas_.text(x + 50, y,
                 links_text(first.links) + (first.b < 0 ? " to the switches, of" : " between"),
                 true);
    std::string row;
    constexpr std::size_t kMostNames = 40;
    for (std::size_t i = 0; i <= lines.size(); ++i) {
      std::string next;
      if (i == kMostNames && i < lines.size()) {
        next = fmt::format("and {} more", lines.size() - i);
      } else if (i < lines.size()) {
        next = label(graph_, lines[i]->a);
        if (lines[i]->b >= 0) next += "–" + label(graph_, lines[i]->b);
        if (i + 1 < lines.size()) next += ", ";
      }
      if (next.empty() || Canvas::width_of(row + next, false) > kLegendWidth - 50) {
        canvas_.text(x + 50, y += Canvas::kLineHeight, row, false);
        row.clear();
      }
      row += next;
      if (i == kMostNames && i < lines.size()) {
        canvas_.text(x + 50, y += Canvas::kLineHeight, row, false);
        break;
      }
    }
    return y + 28;
  }

  Canvas& canvas_;
  const Graph& graph_;
  std::vector<Line> lines_;
  std::vector<int> ends_; ///< nodes that lines connect
  bool gpus_only_ = true; ///< whether all of these are GPUs
  double end_width_ = kLeastEndWidth;
  std::map<Class, std::vector<const Line*>> classes_;
  double radius_x_ = 0, radius_y_ = 0, centre_x_ = 0, centre_y_ = 0;
  Area area_;
};

} // namespace

Area draw_links(Canvas& canvas, const Graph& graph, double x, double y) {
  if (graph.links.empty()) return {x, y, 0, 0};
  return Circle(canvas, graph, x, y).draw();
}

} // namespace whorl::topology
