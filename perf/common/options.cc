#include "perf/common/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "perf/common/flags.h"
#include "perf/common/workload.h"
#include "tools/cli/app.h"

namespace perf {
namespace {

constexpr int kMaxRanks = 1024;
constexpr std::size_t kMaxRows = 100000;

template <class T>
Exit refuse(const T& sentence) {
  return Exit{BadCommand::kStatus, std::string(sentence) + "\n"};
}

} // namespace

const char* name_of(Mode mode) {
  switch (mode) {
    case Mode::kDirty:
      return "dirty";
    case Mode::kMoving:
      return "moving";
    case Mode::kWarm:
      return "warm";
    case Mode::kCold:
      return "cold";
  }
  return "";
}

const char* name_of(Alloc alloc) {
  switch (alloc) {
    case Alloc::kPlain:
      return "plain";
    case Alloc::kWhorl:
      return "whorl";
    case Alloc::kDevice:
      return "on the device";
    case Alloc::kRegistered:
      return "registered";
  }
  return "";
}

bool parse_size(const std::string& text, std::size_t* bytes) {
  if (text.empty() || !(std::isdigit(static_cast<unsigned char>(text[0])))) return false;
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  double unit = 1;
  switch (*end) {
    case 'k':
    case 'K':
      unit = 1024.0;
      ++end;
      break;
    case 'm':
    case 'M':
      unit = 1024.0 * 1024;
      ++end;
      break;
    case 'g':
    case 'G':
      unit = 1024.0 * 1024 * 1024;
      ++end;
      break;
    default:
      break;
  }
  if (*end == 'b' || *end == 'B') ++end;
  const double value = number * unit;
  if (*end != '\0' || !std::isfinite(value) || value > 0x1p62) return false;
  *bytes = static_cast<std::size_t>(value);
  return true;
}

std::vector<std::size_t> sweep_sizes(const Options& options) {
  if (!options.sizes.empty()) return options.sizes;
  std::vector<std::size_t> sizes;
  std::size_t size = options.min_bytes;
  while (size <= options.max_bytes && sizes.size() < kMaxRows) {
    sizes.push_back(size);
    std::size_t next = size + options.step_bytes;
    if (options.step_bytes == 0) {
      next = static_cast<std::size_t>(static_cast<double>(size) * options.step_factor);
      if (next <= size) next = size + 1; // if the size is 0, or a factor near 1 on a small size
    }
    size = next;
  }
  return sizes;
}

std::variant<Options, Exit> parse(int argc, const char* const* argv, const std::string& name,
                                  bool has_workloads, int cores, bool uneven) {
  Options options;
  options.cores = cores;
  options.command.assign(argv, argv + argc);
  Flags texts;
  whorl::cli::App app(kDescription, name);
  add_flags(app, options, texts, {has_workloads, uneven});

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help_or_version) {
    std::ostringstream text;
    app.exit(help_or_version, text);
    return Exit{0, text.str()};
  } catch (const CLI::ParseError& error) {
    return refuse(app.refusal(error));
  }

  if (!parse_size(texts.min_bytes, &options.min_bytes)) {
    return refuse("-b " + texts.min_bytes + " is not a size such as 8, 64K, 1M or 2G.");
  }
  if (texts.max_bytes.empty()) {
    options.max_bytes = std::max(options.max_bytes, options.min_bytes);
  } else if (!parse_size(texts.max_bytes, &options.max_bytes)) {
    return refuse("-e " + texts.max_bytes + " is not a size such as 8, 64K, 1M or 2G.");
  }
  if (options.max_bytes < options.min_bytes) {
    return refuse("-e " + texts.max_bytes + " is smaller than -b " + texts.min_bytes +
                  "; swap them.");
  }
  if (!texts.step_bytes.empty()) {
    if (!parse_size(texts.step_bytes, &options.step_bytes) || options.step_bytes == 0) {
      return refuse("-i " + texts.step_bytes + " is not a step such as 64K or 1M.");
    }
    if (texts.factor) return refuse("-i and -f exclude each other; give one of them.");
    if ((options.max_bytes - options.min_bytes) / options.step_bytes >= kMaxRows) {
      return refuse("-i " + texts.step_bytes + " makes more than 100000 rows; take a larger step.");
    }
  }
  if (texts.factor) {
    if (!(*texts.factor > 1) || !std::isfinite(*texts.factor))
      return refuse("-f needs a factor above 1.");
    options.step_factor = *texts.factor;
  }
  for (const std::string& text : texts.sizes) {
    std::size_t size = 0;
    if (!parse_size(text, &size)) {
      return refuse("--sizes " + text + " is not a size such as 8, 64K, 1M or 2G.");
    }
    options.sizes.push_back(size);
  }
  std::sort(options.sizes.begin(), options.sizes.end());
  options.sizes.erase(std::unique(options.sizes.begin(), options.sizes.end()), options.sizes.end());
  if (!options.sizes.empty()) {
    options.min_bytes = options.sizes.front();
    options.max_bytes = options.sizes.back();
  }
  if (options.cycles < 0) return refuse("-N cannot be negative; it is the number of cycles.");
  if (options.budget_ms < 0) return refuse("--budget cannot be negative.");
  if (options.iterations < 1) return refuse("-n needs at least 1 timed operation.");
  if (options.warmup < 0) return refuse("-w cannot be negative.");
  if (options.check_iterations < 0) return refuse("-c cannot be negative.");
  if (options.aggregate < 1) return refuse("-m needs at least 1 operation per group.");
  if (options.threads < 1) return refuse("-t needs at least 1 thread per process.");
  if (options.ranks_per_thread < 1) return refuse("-g needs at least 1 rank per thread.");
  if (options.skew < 0 || options.skew > 100) return refuse("--skew takes 0 to 100 percent.");
  if (options.timeout_s < 0) return refuse("-T cannot be negative.");
  if (!(options.compute_us >= 0 && options.compute_us <= 1e6)) {
    return refuse("--compute takes 0 to 1000000 microseconds.");
  }
  if (options.compute_us > 0 && !options.workload.empty()) {
    return refuse("--workload exchanges gradients only; leave out --compute.");
  }

  if (texts.op == "all") {
    options.operators = all_operators();
  } else if (!find_operator(texts.op, &options.operators[0])) {
    return refuse("-o " + texts.op + " is not an operator; take one of " + operator_names() + ".");
  }
  if (texts.type == "all") {
    options.types.clear();
    for (const TypeInfo& type : all_types()) options.types.push_back(type.type);
  } else if (const TypeInfo* type = find_type(texts.type)) {
    options.types = {type->type};
  } else {
    return refuse("-d " + texts.type + " is not a datatype; take one of " + type_names() + ".");
  }
  if (texts.op != "all" && texts.type != "all" &&
      !combines(info_of(options.types[0]), options.operators[0])) {
    return refuse("-o " + texts.op + " cannot combine elements of -d " + texts.type +
                  "; band, bor and bxor are for integers and bool, which has no averages and "
                  "multiples.");
  }
  if (texts.root == "all") {
    options.root = -1;
  } else {
    char* end = nullptr;
    const long root = std::strtol(texts.root.c_str(), &end, 10);
    if (end == texts.root.c_str() || *end != '\0' || root < -1 || root > kMaxRanks) {
      return refuse("-r " + texts.root + " is not a rank; take a rank, or all.");
    }
    options.root = static_cast<int>(root);
  }
  if (texts.mode == "dirty") {
    options.mode = Mode::kDirty;
  } else if (texts.mode == "moving") {
    options.mode = Mode::kMoving;
  } else if (texts.mode == "warm") {
    options.mode = Mode::kWarm;
  } else if (texts.mode == "cold") {
    options.mode = Mode::kCold;
  } else {
    return refuse("--mode " + texts.mode + " is not a mode; take dirty, moving, warm or cold.");
  }
  if (texts.side == "out") {
    options.side = Side::kOutOfPlace;
  } else if (texts.side == "in") {
    options.side = Side::kInPlace;
  } else if (texts.side != "both") {
    return refuse("--side " + texts.side + " is unknown; take out, in or both.");
  }
  if (texts.alloc == "plain") {
    options.alloc = Alloc::kPlain;
  } else if (texts.alloc == "whorl") {
    options.alloc = Alloc::kWhorl;
  } else if (texts.alloc == "registered") {
    options.alloc = Alloc::kRegistered;
  } else if (texts.alloc == "device") {
    options.alloc = Alloc::kDevice;
    options.stream = true;
    if (!options.workload.empty()) {
      return refuse("--workload has its buffers on the host; leave out --alloc device.");
    }
  } else {
    return refuse("--alloc " + texts.alloc +
                  " is unknown; take plain, whorl, registered or device.");
  }
  if ((options.percentiles || options.together) &&
      (!options.workload.empty() || options.mode == Mode::kWarm || options.mode == Mode::kCold)) {
    return refuse(std::string(options.percentiles ? "--percentiles" : "--together") +
                  " needs operations that are timed one by one: --mode dirty or moving.");
  }
  const std::string refusal = apply(texts.nccl_tests, app.count("--alloc") > 0, &options);
  if (!refusal.empty()) return refuse(refusal);
  if (options.cycles != 1 && !options.workload.empty()) {
    return refuse("--workload replays one step -n times; leave out -N.");
  }
  if (options.cycles == 0 && (!options.json_file.empty() || !options.plot_file.empty())) {
    return refuse(
        "-N 0 has no end at which -J or --plot could write a file; give a number of cycles.");
  }
  if (texts.average < 0 || texts.average > 3) return refuse("-a takes 0, 1, 2 or 3.");
  options.average = static_cast<Average>(texts.average);
  options.blocking = texts.blocking != 0;
  options.timestamps = texts.timestamps != 0;
  options.memory_report = texts.memory_report != 0;
  options.cpu_time = texts.cpu_time != 0;
  if (!options.workload.empty() && options.mode == Mode::kMoving) {
    return refuse("--workload keeps its buffers; leave out --mode moving.");
  }
  if (!options.workload.empty() && !known_workload(options.workload)) {
    return refuse("--workload " + options.workload + " is unknown; take one of " +
                  workload_names() + ".");
  }

  const long per_process = static_cast<long>(options.threads) * options.ranks_per_thread;
  options.ranks_given = app.count("--ranks") > 0;
  if (!options.ranks_given) {
    // Round up to whole processes, so that -t or -g alone also makes a run.
    const long wanted = std::max(cores, 2);
    options.ranks = static_cast<int>(
        std::min<long>((wanted + per_process - 1) / per_process * per_process, kMaxRanks));
  }
  if (options.ranks < 1 || options.ranks > kMaxRanks) {
    return refuse("--ranks needs 1 to " + std::to_string(kMaxRanks) + " ranks.");
  }
  if (per_process > kMaxRanks || options.ranks % per_process != 0) {
    return refuse("--ranks " + std::to_string(options.ranks) +
                  " ranks do not divide into processes of -t times -g = " +
                  std::to_string(per_process) + " ranks.");
  }
  return options;
}

} // namespace perf
