#include "perf/common/nccl_tests.h"

namespace perf {
namespace {

constexpr const char* kDefaultGroup = "Flags of nccl-tests about devices";

} // namespace

void add_nccl_tests_flags(CLI::App& app, NcclTestsFlags& flags) {
  const auto add = [&](const char* names, int& value, const char* text, int least, int most) {
    app.add_option(names, value, text)->check(CLI::Range(least, most))->group(kDefaultGroup);
  };
  constexpr int kMost = 1 << 30;
  add("-R,--local_register", flags.registration,
      "1: --alloc registered, 2: --alloc whorl, which all ranks share as symmetric windows are", 0,
      2);
  add("-y,--stream_null", flags.null_stream,
      "1: calls on the null stream, which return when complete (the default without --stream)", 0,
      1);
  add("-p,--parallel_init", flags.parallel_init,
      "No effect: threads always create their communicators in parallel", 0, 1);
  add("-G,--cudagraph", flags.graph_launches,
      "No effect beyond a note: perf/gpu/gpu_bench measures replays of graphs", 0, kMost);
  add("-x,--cta_policy", flags.cta_policy, "No effect beyond a note: whorl has no policies of CTAs",
      0, kMost);
  add("-D,--device_implementation", flags.device_implementation,
      "No effect beyond a note: whorl has no device API", 0, kMost);
  add("-V,--device_cta_count", flags.device_ctas,
      "No effect beyond a note: whorl has no device API", 0, kMost);
}

std::string apply(const NcclTestsFlags& flags, bool alloc_given, Options* options) {
  if (flags.registration > 0 && alloc_given) {
    return "-R chooses the buffers, and so does --alloc; give one of them.";
  }
  if (flags.registration == 1) options->alloc = Alloc::kRegistered;
  if (flags.registration == 2) options->alloc = Alloc::kWhorl;
  if (flags.null_stream == 1 && options->stream) {
    return "-y 1 asks for the null stream, and --stream or --alloc device for one of its own; give "
           "one of them.";
  }
  const auto note = [&](int value, const char* flag, const char* why) {
    if (value > 0) options->notes.push_back(std::string(flag) + " has no effect: " + why);
  };
  note(flags.graph_launches, "-G",
       "operations are not captured here; perf/gpu/gpu_bench measures replays of graphs");
  note(flags.cta_policy, "-x", "whorl has no policies of CTAs");
  note(flags.device_implementation, "-D",
       "whorl has no device API; its own algorithms are measured");
  note(flags.device_ctas, "-V", "whorl has no device API");
  return {};
}

} // namespace perf
