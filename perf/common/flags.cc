#include "perf/common/flags.h"

#include "perf/common/workload.h"

namespace perf {

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

void add_flags(CLI::App& app, Options& options, Flags& texts, Offered offered) {
  const CLI::Range is_switch(0, 1);
  app.option_defaults()->take_last(); // so that a script may append its own flags
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.add_option("-b,--minbytes", texts.min_bytes, "Smallest size; suffixes K, M, G (default 8)");
  app.add_option("-e,--maxbytes", texts.max_bytes,
                 "Largest size (default 64M, or -b if that is larger)");
  app.add_option("-i,--stepbytes", texts.step_bytes, "Add this from size to size");
  app.add_option("-f,--stepfactor", texts.factor, "Multiply by this from size to size (default 2)");
  app.add_option("--sizes", texts.sizes, "These sizes instead of a range: 8,64K,1M")
      ->delimiter(',');
  app.add_option("-n,--iters", options.iterations, "Timed operations per size")
      ->capture_default_str();
  app.add_option(
      "--budget", options.budget_ms,
      "Per size only as many timed operations as take about this many milliseconds, with "
      "what happens between them: at least 3, at most -n");
  app.add_option("-N,--run_cycles", options.cycles,
                 "Measure all sizes this many times over; 0: until -T or Ctrl-C ends the run")
      ->capture_default_str();
  app.add_option("-w,--warmup_iters", options.warmup, "Untimed operations before them")
      ->capture_default_str();
  app.add_option("-c,--check", options.check_iterations,
                 "Verified operations per size besides the timed ones; 0: verify nothing")
      ->capture_default_str();
  app.add_option("-m,--agg_iters", options.aggregate, "Operations issued together in one group")
      ->capture_default_str();
  app.add_option("-o,--op", texts.op, "Operator: " + operator_names())->capture_default_str();
  app.add_option("-d,--datatype", texts.type, "Datatype: " + type_names())->capture_default_str();
  app.add_option("-r,--root", texts.root, "Root rank; all or -1: every rank in turn")
      ->capture_default_str();
  app.add_option("--ranks", options.ranks,
                 "Ranks in all, without a launcher (default: one per core, at "
                 "least 2)");
  app.add_option("-t,--nthreads", options.threads, "Threads per process; each drives -g ranks")
      ->capture_default_str();
  app.add_option(
         "-g,--ngpus", options.ranks_per_thread,
         "Ranks that one thread drives by group calls. With --alloc device rank r has device "
         "r modulo the number of devices: -g 4 on one device is four ranks there")
      ->capture_default_str();
  app.add_option("-z,--blocking", texts.blocking, "1: wait for each operation before the next")
      ->check(is_switch);
  app.add_option("-C,--report_cputime", texts.cpu_time,
                 "1: time until the calls returned instead of completion (with --stream)")
      ->check(is_switch);
  app.add_option("-a,--average", texts.average, "Ranks' times as: 0 rank 0, 1 mean, 2 min, 3 max")
      ->capture_default_str();
  app.add_option("-T,--timeout", options.timeout_s, "End the run after this many seconds");
  app.add_option("-J,--json,--output_file", options.json_file,
                 "Also write command, environment, machine and rows to this file");
  app.add_option(
      "--plot", options.plot_file,
      "Also draw time and bus bandwidth over the size to this file: .png, .svg or .pdf (needs "
      "python3 with matplotlib)");
  app.add_option("-S,--report_timestamps", texts.timestamps,
                 "1: end each row with the date and time at which it was complete")
      ->check(is_switch);
  app.add_option("-M,--memory_report", texts.memory_report,
                 "1: print below the table how much memory the communicators and buffers take")
      ->check(is_switch);
  app.add_option(
         "-u,--unalign", options.first_element,
         "Number of elements that the buffers begin behind a page; vectors are not aligned then")
      ->check(CLI::Range(0, 4096));
  app.add_option("--mode", texts.mode,
                 "dirty: ranks rewrite input and read result between operations; moving: so, too, "
                 "on buffers that are allocated and freed for each operation, within its time; "
                 "warm: back to back; cold: rotating buffers larger than the caches")
      ->capture_default_str();
  app.add_option("--side", texts.side, "Measure separate buffers (out), in place (in), or both")
      ->capture_default_str();
  app.add_option("--alloc", texts.alloc,
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
  app.add_flag(
      "--together", options.together,
      "Begin each operation on all ranks of this host at the same moment, in the modes that "
      "time them one by one; without it, when each leaves a barrier");
  app.add_flag("--unbound", options.unbound,
               "Do not bind forked processes to a core each, as is done where there are enough");
  if (offered.uneven) {
    app.add_option(
           "--skew", options.skew,
           "Blocks of even ranks are larger by this many percent, those of odd ranks smaller")
        ->capture_default_str();
  }
  if (offered.workloads) {
    app.add_option(
        "--workload", options.workload,
        "Replay the gradient buckets of a model instead of a sweep: " + workload_names());
  }
  add_nccl_tests_flags(app, texts.nccl_tests);
}

} // namespace perf
