// whorl-explain: says which algorithm a collective uses, and why.
#include <fmt/format.h>

#include "tools/cli/program.h"
#include "tools/explain/explain.h"

using namespace whorl::explain; // NOLINT: the program is this library

namespace {

int run(int argc, char** argv) {
  Exit exit{};
  auto arguments = parse(argc, argv, exit);
  if (!arguments) {
    fmt::print(exit.code == 0 ? stdout : stderr, "{}", exit.text);
    return exit.code;
  }
  const auto fail = [](const whorl::Status& status) {
    fmt::print(stderr, "whorl-explain: {}\n", status.message());
    return 1;
  };
  if (arguments->communicators > 0) {
    const auto scatter =
        measure_scatter(arguments->shape.nranks, arguments->communicators, arguments->fresh);
    if (!scatter.ok()) return fail(scatter.status());
    fmt::print("{}", scatter_text(*arguments, *scatter));
    return 0;
  }
  if (!arguments->measures) {
    std::vector<Row> rows;
    if (arguments->given) {
      rows = predict(*arguments);
    } else if (const auto status = choose_as_here(*arguments, rows); !status.ok()) {
      return fail(status);
    }
    fmt::print("{}", arguments->json ? to_json(*arguments, rows) : to_text(*arguments, rows));
    return 0;
  }
  const auto measured = measure({.collective = arguments->collective,
                                 .nranks = arguments->shape.nranks,
                                 .algorithms = candidates(arguments->collective, arguments->shape),
                                 .sizes = arguments->sizes,
                                 .rounds = arguments->rounds});
  if (!measured.ok()) return fail(measured.status());
  arguments->links = measured->links;
  arguments->probed = measured->probed;
  arguments->digest = measured->digest;
  std::vector<Row> rows = predict(*arguments);
  enter(rows, *measured);
  fmt::print("{}", arguments->json ? to_json(*arguments, rows) : to_text(*arguments, rows));
  return 0;
}

} // namespace

int main(int argc, char** argv) {
  return whorl::cli::run_program("whorl-explain", run, argc, argv);
}
