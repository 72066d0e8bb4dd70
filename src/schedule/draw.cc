#include "schedule/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace whorl {
namespace {

constexpr std::string_view kColours[] = {"#1f5fa8", "#c2410c", "#15803d", "#7e22ce",
                                         "#a16207", "#0e7490", "#be185d", "#4b5563"};
constexpr double kMargin = 70, kTop = 92, kFont = 13;

/// Returns whether labels of this collective need the rank that a chunk comes from.
bool has_many_sources(const CollectiveSpec& spec) {
  return spec.collective == Collective::kAllGather || spec.collective == Collective::kGather ||
         spec.collective == Collective::kAllToAll;
}

bool is_partial(const SimulatedMessage& message, const CollectiveSpec& spec, int nranks) {
  return (reduces(spec.collective) || spec.collective == Collective::kBarrier) &&
         message.contributions < nranks;
}

/// Returns "2", "2–3", "1:2" (chunk 2 of rank 1), "2 (3)" (chunk 2, of three ranks so far).
std::string label(const SimulatedMessage& message, const CollectiveSpec& spec, int nranks,
                  std::string_view dash) {
  std::string text = std::to_string(message.chunk);
  if (message.count > 1) {
    text += fmt::format("{}{}", dash, message.chunk + static_cast<unsigned>(message.count) - 1);
  }
  if (has_many_sources(spec)) return fmt::format("{}:{}", message.source, text);
  if (is_partial(message, spec, nranks)) text += fmt::format(" ({})", message.contributions);
  return text;
}

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

/// Finder of room for labels on their arrows, away from the labels placed before.
class LabelPlaces {
 public:
  /// Returns the middle of a label `2·half` wide on the arrow from (x1, y1) to (x2, y2).
  std::pair<double, double> find(double x1, double y1, double x2, double y2, double half) {
    constexpr double kAlong[] = {0.33, 0.5, 0.2, 0.66, 0.42, 0.26, 0.58, 0.14, 0.75, 0.83, 0.09};
    Label best{};
    double least = std::numeric_limits<double>::max();
    for (const double along : kAlong) {
      const Label here{x1 + along * (x2 - x1), y1 + along * (y2 - y1), half};
      const double covered = overlap(here);
      if (covered >= least) continue;
      best = here;
      least = covered;
      if (covered == 0) break;
    }
    placed_.push_back(best);
    return {best.x, best.y};
  }

 private:
  static constexpr double kHeight = 17;
  static constexpr std::size_t kNearby = 300; // number of labels compared: bounds the time
  struct Label {
    double x, y, half;
  };
  double overlap(const Label& label) const {
    double sum = 0;
    const std::size_t first = placed_.size() > kNearby ? placed_.size() - kNearby : 0;
    for (std::size_t i = first; i < placed_.size(); ++i) {
      const Label& other = placed_[i];
      const double width = label.half + other.half - std::abs(label.x - other.x);
      const double height = kHeight - std::abs(label.y - other.y);
      if (width > 0 && height > 0) sum += width * height;
    }
    return sum;
  }
  std::vector<Label> placed_;
};

/// Returns the height of one unit of time: more where many messages share it.
double row_height(const Simulation& simulation) {
  std::map<double, int> arrivals;
  for (const SimulatedMessage& message : simulation.messages) ++arrivals[message.received];
  int most = 0;
  for (const auto& [time, count] : arrivals) most = std::max(most, count);
  return 78 + 4.0 * std::clamp(most - 12, 0, 100);
}

} // namespace

std::string to_svg(const Simulation& simulation, int nranks, const CollectiveSpec& spec,
                   const std::string& title) {
  const double column = nranks <= 4 ? 170 : 130;
  const auto x_of = [&](int rank) { return kMargin + 30 + column * rank; };
  const double row = row_height(simulation);
  const auto y_of = [&](double time) { return kTop + row * time; };
  const double bottom = y_of(simulation.end), width = x_of(nranks - 1) + kMargin;

  std::map<int, std::size_t> colour_of; // colour of each channel
  std::set<double> times{0, simulation.end};
  bool partial = false, several = false;
  for (const SimulatedMessage& message : simulation.messages) {
    colour_of.emplace(message.channel, 0);
    times.insert(message.received);
    partial |= is_partial(message, spec, nranks);
    several |= message.count > 1;
  }
  std::size_t next = 0;
  for (auto& [channel, colour] : colour_of) colour = next++ % std::size(kColours);

  std::vector<std::string> notes;
  if (has_many_sources(spec)) {
    notes.emplace_back("Labels: rank whose data it is, and the chunk of its input.");
  } else {
    notes.emplace_back("Labels: the chunk.");
  }
  if (partial) notes.back() += " Dashed: a partial result, in brackets of how many ranks.";
  if (several) notes.back() += " a–b: chunks a to b in one message.";
  const double height = bottom + 62 + 20.0 * (colour_of.size() > 1 ? 2 : 1);

  // A narrow picture still has room for its notes.
  const double full_width = std::max(width, 6.6 * static_cast<double>(notes[0].size()) + 40);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"DejaVu Sans, Helvetica, sans-serif\" "
      "font-size=\"{2}\">\n<title>{3}</title>\n<rect width=\"100%\" height=\"100%\" "
      "fill=\"white\"/>\n<defs>\n",
      full_width, height, kFont, escape(title));
  for (std::size_t c = 0; c < std::min(std::size(kColours), std::max<std::size_t>(next, 1)); ++c) {
    svg += fmt::format(
        "<marker id=\"head{}\" viewBox=\"0 0 10 10\" refX=\"10\" refY=\"5\" markerWidth=\"9\" "
        "markerHeight=\"9\" markerUnits=\"userSpaceOnUse\" orient=\"auto\">"
        "<path d=\"M0 1 L10 5 L0 9 z\" fill=\"{}\"/></marker>\n",
        c, kColours[c]);
  }
  svg += fmt::format(
      "</defs>\n<text x=\"20\" y=\"30\" font-size=\"17\" font-weight=\"bold\">{}"
      "</text>\n",
      escape(title));

  for (const double time : times) {
    svg += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" "
        "stroke=\"#e5e7eb\"/>\n<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"#6b7280\" "
        "text-anchor=\"end\">{:g}</text>\n",
        x_of(0) - 24, y_of(time), x_of(nranks - 1) + 24, y_of(time), x_of(0) - 32, y_of(time) + 4,
        time);
  }
  for (int rank = 0; rank < nranks; ++rank) {
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" "
        "stroke=\"#374151\" stroke-width=\"1.5\"/>\n<text x=\"{0:.1f}\" "
        "y=\"{3:.1f}\" text-anchor=\"middle\" font-weight=\"bold\">rank {4}</text>\n",
        x_of(rank), y_of(0) - 14, bottom + 14, y_of(0) - 22, rank);
  }

  std::string labels; // over all lines
  LabelPlaces places;
  for (const SimulatedMessage& message : simulation.messages) {
    const std::size_t colour = colour_of[message.channel];
    const double shift = 5.0 * static_cast<double>(colour); // channels side by side
    const double x1 = x_of(message.from), y1 = y_of(message.sent) + shift;
    const double x2 = x_of(message.to), y2 = y_of(message.received) - 6 + shift;
    svg += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" "
        "stroke=\"{}\" stroke-width=\"1.6\" marker-end=\"url(#head{})\"{}/>\n",
        x1, y1, x2, y2, kColours[colour], colour,
        is_partial(message, spec, nranks) ? " stroke-dasharray=\"5 3\"" : "");
    const std::string text = label(message, spec, nranks, "–");
    // An en dash is three bytes and one letter wide.
    const double letters = static_cast<double>(text.size()) - (message.count > 1 ? 2 : 0);
    const double half = 4.2 * letters + 3;
    const auto [x, y] = places.find(x1, y1, x2, y2, half);
    labels += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"16\" rx=\"3\" "
        "fill=\"white\" fill-opacity=\"0.9\"/>\n<text x=\"{:.1f}\" y=\"{:.1f}\" "
        "text-anchor=\"middle\" fill=\"{}\">{}</text>\n",
        x - half, y - 8, 2 * half, x, y + 4.5, kColours[colour], text);
  }
  svg += labels;

  double y = bottom + 48;
  svg += fmt::format("<text x=\"20\" y=\"{:.1f}\" font-size=\"12\" fill=\"#374151\">{}</text>\n", y,
                     notes[0]);
  if (colour_of.size() > 1) {
    y += 20;
    double x = 20;
    for (const auto& [channel, colour] : colour_of) {
      svg += fmt::format(
          "<line x1=\"{0:.1f}\" y1=\"{2:.1f}\" x2=\"{1:.1f}\" y2=\"{2:.1f}\" "
          "stroke=\"{3}\" stroke-width=\"3\"/>\n<text x=\"{4:.1f}\" y=\"{5:.1f}\" "
          "font-size=\"12\" fill=\"#374151\">channel {6}</text>\n",
          x, x + 20, y - 4, kColours[colour], x + 26, y, channel);
      x += 110;
    }
  }
  return svg + "</svg>\n";
}

std::string to_table(const Simulation& simulation, int nranks, const CollectiveSpec& spec) {
  std::map<double, std::vector<std::string>> rows; // by time of arrival: a cell for each rank
  for (const SimulatedMessage& message : simulation.messages) {
    auto& cells = rows[message.received];
    cells.resize(static_cast<std::size_t>(nranks));
    std::string& cell = cells[static_cast<std::size_t>(message.to)];
    if (!cell.empty()) cell += ", ";
    cell += fmt::format("{} from {}", label(message, spec, nranks, "-"), message.from);
  }
  std::vector<std::size_t> widths;
  for (int rank = 0; rank < nranks; ++rank) {
    std::size_t width = fmt::formatted_size("rank {}", rank);
    for (const auto& [time, cells] : rows) {
      width = std::max(width, cells[static_cast<std::size_t>(rank)].size());
    }
    widths.push_back(width);
  }
  const auto line = [&](const std::string& first, const auto& cell) {
    std::string text = fmt::format("{:>6}", first);
    for (int rank = 0; rank < nranks; ++rank) {
      text += fmt::format("  {:<{}}", cell(rank), widths[static_cast<std::size_t>(rank)]);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    return text + '\n';
  };
  std::string text = line("time", [](int rank) { return fmt::format("rank {}", rank); });
  for (const auto& row : rows) {
    text += line(fmt::format("{:g}", row.first),
                 [&](int rank) { return row.second[static_cast<std::size_t>(rank)]; });
  }
  return text;
}

} // namespace whorl
