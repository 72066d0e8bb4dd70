#include "perf/common/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "perf/common/workload.h"

namespace perf {
namespace {

constexpr int kMaxRanks = 1024;
constexpr std::size_t kMaxRows = 100000;

template <class T>
Exit refuse(const T& sentence) {
  return Exit{2, std::string(sentence) + "\n"};
}

std::string operator_names() {
  std::string names;
  for (Operator op : all_operators()) names += std::string(name_of(op)) + ", ";
  return names + "all";
}

std::string type_names() {
  std::string names;
  for (const TypeInfo& type : all_types()) names += std::string(type.name) + ", ";
  return names + "all";
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
  std::string min_text = "8", max_text, step_text, op_text = "sum", type_text = "float";
  std::string mode_text = "dirty", alloc_text = "plain", root_text = "0", side_text = "both";
  std::vector<std::string> size_texts;
  int average = 1, blocking = 0, cpu_time = 0, parallel_init = 0;
  double factor = 0;

  CLI::App app(
      "Measures and verifies one collective of whorl. Without a launcher (mpirun, torchrun, srun) "
      "the program starts its ranks itself.",
      name);
  app.option_defaults()->take_last(); // so that a script may append its own flags
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.add_option("-b,--minbytes", min_text, "Smallest size; suffixes K, M, G (default 8)");
  app.add_option("-e,--maxbytes", max_text, "Largest size (default 64M, or -b if that is larger)");
  app.add_option("-i,--stepbytes", step_text, "Add this from size to size");
  app.add_option("-f,--stepfactor", factor, "Multiply by this from size to size (default 2)");
  app.add_option("--sizes", size_texts, "These sizes instead of a range: 8,64K,1M")->delimiter(',');
  app.add_option("-n,--iters", options.iterations, "Timed operations per size")
      ->capture_default_str();
  app.add_option(
      "--budget", options.budget_ms,
      "Per size only as many timed operations as take about this many milliseconds, with "
      "what happens between them: at least 3, at most -n");
  app.add_option("-w,--warmup_iters", options.warmup, "Untimed operations before them")
      ->capture_default_str();
  app.add_option("-c,--check", options.check_iterations,
                 "Verified operations per size besides the timed ones; 0: verify nothing")
      ->capture_default_str();
  app.add_option("-m,--agg_iters", options.aggregate, "Operations issued together in one group")
      ->capture_default_str();
  app.add_option("-o,--op", op_text, "Operator: " + operator_names())->capture_default_str();
  app.add_option("-d,--datatype", type_text, "Datatype: " + type_names())->capture_default_str();
  app.add_option("-r,--root", root_text, "Root rank; all or -1: every rank in turn")
      ->capture_default_str();
  auto* ranks = app.add_option("-N,--ranks", options.ranks,
                               "Ranks in all, without a launcher (default: one per core, at "
                               "least 2)");
  app.add_option("-t,--nthreads", options.threads, "Threads per process; each drives -g ranks")
      ->capture_default_str();
  app.add_option(
         "-g,--ngpus", options.ranks_per_thread,
         "Ranks that one thread drives by group calls. With --alloc device rank r has device "
         "r modulo the number of devices: -g 4 on one device is four ranks there")
      ->capture_default_str();
  app.add_option("-p,--parallel_init", parallel_init,
                 "Accepted and ignored: threads always create their communicators in parallel");
  app.add_option("-z,--blocking", blocking, "1: wait for each operation before the next");
  app.add_option("-C,--report_cputime", cpu_time,
                 "1: time until the calls returned instead of completion (with --stream)");
  app.add_option("-a,--average", average, "Ranks' times as: 0 rank 0, 1 mean, 2 min, 3 max")
      ->capture_default_str();
  app.add_option("-T,--timeout", options.timeout_s, "End the run after this many seconds");
  app.add_option("-J,--json", options.json_file, "Also write configuration and rows to this file");
  app.add_option("--mode", mode_text,
                 "dirty: ranks rewrite input and read result between operations; moving: so, too, "
                 "on buffers that are allocated and freed for each operation, within its time; "
                 "warm: back to back; cold: rotating buffers larger than the caches")
      ->capture_default_str();
  app.add_option("--side", side_text, "Measure separate buffers (out), in place (in), or both")
      ->capture_default_str();
  app.add_option("--alloc", alloc_text,
                 "Buffers: plain, whorl (whorlMemAlloc), registered, device (CUDA; implies "
                 "--stream, on a stream of the device)")
      ->capture_default_str();
  app.add_flag("--stream", options.stream, "Asynchronous operations on a host stream");
  app.add_option("--compute", options.compute_us,
                 "Compute for this many microseconds after each call, within its time: with "
                 "--stream before the wait for the operation");
  app.add_flag("--percentiles", options.percentiles,
               "Also print p50, p99, p99.9 and the longest of each row's operations, in the modes "
               "that time them one by one: dirty and moving");
  app.add_flag("--unbound", options.unbound,
               "Do not bind forked processes to a core each, as is done where there are enough");
  if (uneven) {
    app.add_option(
           "--skew", options.skew,
           "Blocks of even ranks are larger by this many percent, those of odd ranks smaller")
        ->capture_default_str();
  }
  if (has_workloads) {
    app.add_option(
        "--workload", options.workload,
        "Replay the gradient buckets of a model instead of a sweep: " + workload_names());
  }

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return Exit{0, app.help()};
  } catch (const CLI::ParseError& error) {
    return refuse(std::string(error.what()) + " (" + name + " -h lists the flags.)");
  }

  if (!parse_size(min_text, &options.min_bytes)) {
    return refuse("-b " + min_text + " is not a size such as 8, 64K, 1M or 2G.");
  }
  if (max_text.empty()) {
    options.max_bytes = std::max(options.max_bytes, options.min_bytes);
  } else if (!parse_size(max_text, &options.max_bytes)) {
    return refuse("-e " + max_text + " is not a size such as 8, 64K, 1M or 2G.");
  }
  if (options.max_bytes < options.min_bytes) {
    return refuse("-e " + max_text + " is smaller than -b " + min_text + "; swap them.");
  }
  if (!step_text.empty()) {
    if (!parse_size(step_text, &options.step_bytes) || options.step_bytes == 0) {
      return refuse("-i " + step_text + " is not a step such as 64K or 1M.");
    }
    if (factor != 0) return refuse("-i and -f exclude each other; give one of them.");
    if ((options.max_bytes - options.min_bytes) / options.step_bytes >= kMaxRows) {
      return refuse("-i " + step_text + " makes more than 100000 rows; take a larger step.");
    }
  }
  if (factor != 0) {
    if (!(factor > 1) || !std::isfinite(factor)) return refuse("-f needs a factor above 1.");
    options.step_factor = factor;
  }
  for (const std::string& text : size_texts) {
    std::size_t size = 0;
    if (!parse_size(text, &size)) {
      return refuse("--sizes " + text + " is not a size such as 8, 64K, 1M or 2G.");
    }
    options.sizes.push_back(size);
  }
  std::sort(options.sizes.begin(), options.sizes.end());
  options.sizes.erase(std::unique(options.sizes.begin(), options.sizes.end()), options.sizes.end());
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

  if (op_text == "all") {
    options.operators = all_operators();
  } else if (!find_operator(op_text, &options.operators[0])) {
    return refuse("-o " + op_text + " is not an operator; take one of " + operator_names() + ".");
  }
  if (type_text == "all") {
    options.types.clear();
    for (const TypeInfo& type : all_types()) options.types.push_back(type.type);
  } else if (const TypeInfo* type = find_type(type_text)) {
    options.types = {type->type};
  } else {
    return refuse("-d " + type_text + " is not a datatype; take one of " + type_names() + ".");
  }
  if (op_text != "all" && type_text != "all" &&
      !combines(info_of(options.types[0]), options.operators[0])) {
    return refuse("-o " + op_text + " cannot combine elements of -d " + type_text +
                  "; band, bor and bxor are for integers and bool, which has no averages and "
                  "multiples.");
  }
  if (root_text == "all") {
    options.root = -1;
  } else {
    char* end = nullptr;
    const long root = std::strtol(root_text.c_str(), &end, 10);
    if (end == root_text.c_str() || *end != '\0' || root < -1 || root > kMaxRanks) {
      return refuse("-r " + root_text + " is not a rank; take a rank, or all.");
    }
    options.root = static_cast<int>(root);
  }
  if (mode_text == "dirty") {
    options.mode = Mode::kDirty;
  } else if (mode_text == "moving") {
    options.mode = Mode::kMoving;
  } else if (mode_text == "warm") {
    options.mode = Mode::kWarm;
  } else if (mode_text == "cold") {
    options.mode = Mode::kCold;
  } else {
    return refuse("--mode " + mode_text + " is not a mode; take dirty, moving, warm or cold.");
  }
  if (side_text == "out") {
    options.side = Side::kOutOfPlace;
  } else if (side_text == "in") {
    options.side = Side::kInPlace;
  } else if (side_text != "both") {
    return refuse("--side " + side_text + " is unknown; take out, in or both.");
  }
  if (alloc_text == "plain") {
    options.alloc = Alloc::kPlain;
  } else if (alloc_text == "whorl") {
    options.alloc = Alloc::kWhorl;
  } else if (alloc_text == "registered") {
    options.alloc = Alloc::kRegistered;
  } else if (alloc_text == "device") {
    options.alloc = Alloc::kDevice;
    options.stream = true;
    if (!options.workload.empty()) {
      return refuse("--workload has its buffers on the host; leave out --alloc device.");
    }
  } else {
    return refuse("--alloc " + alloc_text +
                  " is unknown; take plain, whorl, registered or device.");
  }
  if (options.percentiles &&
      (!options.workload.empty() || options.mode == Mode::kWarm || options.mode == Mode::kCold)) {
    return refuse(
        "--percentiles needs operations that are timed one by one: --mode dirty or moving.");
  }
  if (average < 0 || average > 3) return refuse("-a takes 0, 1, 2 or 3.");
  options.average = static_cast<Average>(average);
  options.blocking = blocking != 0;
  options.cpu_time = cpu_time != 0;
  if (!options.workload.empty() && options.mode == Mode::kMoving) {
    return refuse("--workload keeps its buffers; leave out --mode moving.");
  }
  if (!options.workload.empty() && !known_workload(options.workload)) {
    return refuse("--workload " + options.workload + " is unknown; take one of " +
                  workload_names() + ".");
  }

  const long per_process = static_cast<long>(options.threads) * options.ranks_per_thread;
  options.ranks_given = ranks->count() > 0;
  if (!options.ranks_given) {
    // Round up to whole processes, so that -t or -g alone also makes a run.
    const long wanted = std::max(cores, 2);
    options.ranks = static_cast<int>(
        std::min<long>((wanted + per_process - 1) / per_process * per_process, kMaxRanks));
  }
  if (options.ranks < 1 || options.ranks > kMaxRanks) {
    return refuse("-N needs 1 to " + std::to_string(kMaxRanks) + " ranks.");
  }
  if (per_process > kMaxRanks || options.ranks % per_process != 0) {
    return refuse("-N " + std::to_string(options.ranks) +
                  " ranks do not divide into processes of -t times -g = " +
                  std::to_string(per_process) + " ranks.");
  }
  if (options.root >= options.ranks && options.ranks_given) {
    return refuse("-r " + std::to_string(options.root) + " is not one of " +
                  std::to_string(options.ranks) + " ranks.");
  }
  return options;
}

} // namespace perf
