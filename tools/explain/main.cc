// whorl-explain: which algorithm a collective uses, and why.
#include <fmt/format.h>

#include "tools/explain/explain.h"

using namespace whorl::explain; // NOLINT: the program is this library

int main(int argc, char** argv) {
  Exit exit{};
  auto arguments = parse(argc, argv, exit);
  if (!arguments) {
    fmt::print(exit.code == 0 ? stdout : stderr, "{}", exit.text);
    return exit.code;
  }
  whorl::Result<Measurement> measured{Measurement{}};
  if (arguments->measures) {
    measured = measure({.collective = arguments->collective,
                        .nranks = arguments->shape.nranks,
                        .algorithms = candidates(arguments->collective, arguments->shape),
                        .sizes = arguments->sizes,
                        .rounds = arguments->rounds});
    if (!measured.ok()) {
      fmt::print(stderr, "whorl-explain: {}\n", measured.status().message());
      return 1;
    }
    arguments->links = measured->links;
  }
  std::vector<Row> rows = predict(*arguments);
  for (std::size_t i = 0; arguments->measures && i < rows.size(); ++i) {
    rows[i].choice = measured->picks[i];
    rows[i].measured_us = measured->us[i];
    rows[i].spread = measured->spread[i];
    rows[i].again_us = measured->again_us[i];
  }
  fmt::print("{}", arguments->json ? to_json(*arguments, rows) : to_text(*arguments, rows));
  return 0;
}
