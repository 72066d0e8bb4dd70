// One rank of a job in which something goes wrong, for perf/scoreboard/scoreboard.py. A launcher,
// or variables of one, say which rank this process is. It joins, makes one good call when all have
// joined (the driver's file `warm`), waits for the file `go`, does its part of the fault, and
// writes into its journal what its calls returned. It behaves as a program does that handles
// errors: after one it aborts its communicator.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "perf/common/api.h"
#include "perf/scoreboard/calls.h"
#include "perf/scoreboard/journal.h"

namespace perf {
namespace {

constexpr std::int64_t kMs = 1'000'000;
constexpr std::int64_t kAfterDeath = 20 * kMs;  ///< time from a death to the calls of the others
constexpr std::int64_t kBeforeExit = 100 * kMs; ///< time that the others have waited at an exit
constexpr float kEnough = 1 << 20; ///< addend that makes all ranks leave a loop of allreduces

struct Options {
  std::string fault, folder;
  int culprit = 1, timeout_ms = 0;
  std::size_t count = 1024;
};

/// One rank during its run.
class FaultyRank {
 public:
  explicit FaultyRank(const Options& options) : options_(options), journal_(options.folder) {}

  /// Returns the exit code of the process.
  int run() {
    if (!join()) return 1;
    buffers_ = std::make_unique<Buffers>(rank_, nranks_, options_.count);
    const Call good{.count = options_.count};
    static_cast<void>(journal_.wait_for("warm"));
    bool ok = call("warm up", good);
    journal_.write("ready", {{"rank", rank_}, {"ok", ok}});
    start_ns_ = journal_.wait_for("go");
    sleep_until_ns(start_ns_);
    ok = ok && do_part();
    leave(ok);
    return 0;
  }

 private:
  bool is_culprit() const { return rank_ == options_.culprit; }
  bool is(const char* fault) const { return options_.fault == fault; }

  bool join() {
    Config config = WHORL_CONFIG_INITIALIZER;
    if (options_.timeout_ms > 0) config.timeoutMs = options_.timeout_ms;
    const std::int64_t began = now_ns();
    const Result result = XCCL(CommInitEnv)(&comm_, &config);
    if (result != XCCL(Success)) {
      std::fprintf(stderr, "cannot join: %s\n", XCCL(GetLastError)(nullptr));
      return false;
    }
    const std::int64_t ended = now_ns();
    XCCL(CommUserRank)(comm_, &rank_);
    XCCL(CommCount)(comm_, &nranks_);
    journal_.open(rank_);
    journal_.write("joined", {{"began_ns", began}, {"ended_ns", ended}});
    return true;
  }

  /// Makes a call, and records its outcome. Returns whether it succeeded.
  bool call(const char* part, const Call& what) {
    const std::int64_t began = now_ns();
    const Result result = buffers_->make(what, comm_);
    record(part, what, result, began, name_of(buffers_->output(what)));
    return result == XCCL(Success);
  }

  void record(const char* part, const Call& what, Result result, std::int64_t began,
              const std::string& output) {
    const std::int64_t ended = now_ns();
    const bool ok = result == XCCL(Success);
    journal_.write("call", {{"part", part},
                            {"collective", what.broadcast ? "broadcast" : "allreduce"},
                            {"began_ns", began},
                            {"ended_ns", ended},
                            {"ok", ok},
                            {"text", ok ? "" : XCCL(GetLastError)(comm_)},
                            {"output", output}});
  }

  /// Returns the calls of this rank in a fault of arguments or order.
  std::vector<Call> disagreeing() const {
    Call own{.count = options_.count};
    own.broadcast = is("root");
    if (is("order")) {
      Call other = own;
      other.broadcast = true;
      return is_culprit() ? std::vector{other, own} : std::vector{own, other};
    }
    if (!is_culprit()) return {own};
    if (is("count")) own.count /= 2;
    if (is("datatype")) own.type = XCCL(Int32);
    if (is("operator")) own.op = XCCL(Max);
    if (is("root")) own.root = rank_;
    return {own};
  }

  /// Does what the fault is for this rank. Returns false after an error.
  bool do_part() {
    const Call good{.count = options_.count};
    if (is("none")) return call("faulty", good);
    if (is("kill-during") || is("stop") || is("freeze")) return loop(good);
    if (is("absent") && is_culprit()) {
      static_cast<void>(journal_.wait_for("end"));
      journal_.write("absent");
      std::_Exit(0);
    }
    if (is("kill-before")) {
      if (is_culprit()) ::raise(SIGKILL);
      sleep_until_ns(start_ns_ + kAfterDeath);
    }
    if ((is("exit") || is("quit")) && is_culprit()) {
      sleep_until_ns(start_ns_ + kBeforeExit);
      if (is("exit")) std::exit(0); // as programs written for NCCL do, which never destroy
      std::_Exit(0);
    }
    for (const Call& one : disagreeing()) {
      if (!call("faulty", one)) return false;
    }
    return call("next", good);
  }

  /// Makes allreduces until all ranks know that the driver has made the file `enough`. Records the
  /// last one.
  bool loop(const Call& what) {
    bool right = true;
    for (;;) {
      const std::int64_t began = now_ns();
      const Result result = buffers_->make(what, comm_, journal_.has("enough") ? kEnough : 0.0F);
      const bool last = result != XCCL(Success) || buffers_->first() >= kEnough;
      if (result == XCCL(Success)) right = buffers_->rest_is_right(what) && right;
      if (!last) continue;
      record("faulty", what, result, began, right ? "right" : "wrong");
      return result == XCCL(Success);
    }
  }

  void leave(bool ok) {
    const std::int64_t began = now_ns();
    const Result result = ok ? XCCL(CommDestroy)(comm_) : XCCL(CommAbort)(comm_);
    journal_.write("left",
                   {{"began_ns", began}, {"ended_ns", now_ns()}, {"ok", result == XCCL(Success)}});
  }

  const Options& options_;
  Journal journal_;
  Comm comm_ = nullptr;
  int rank_ = -1, nranks_ = 0;
  std::unique_ptr<Buffers> buffers_;
  std::int64_t start_ns_ = 0;
};

} // namespace
} // namespace perf

int main(int argc, char** argv) {
  perf::Options options;
  CLI::App app("one rank of a job in which something goes wrong");
  app.add_option("--fault", options.fault)
      ->required()
      ->check(CLI::IsMember({"none", "count", "datatype", "operator", "root", "order", "absent",
                             "kill-before", "kill-during", "stop", "freeze", "exit", "quit"}));
  app.add_option("--culprit", options.culprit, "rank that is at fault");
  app.add_option("--count", options.count, "elements")->check(CLI::Range(2, 1 << 28));
  app.add_option("--timeout", options.timeout_ms, "ms; default: the library's");
  app.add_option("--journal", options.folder, "folder shared with the driver")->required();
  CLI11_PARSE(app, argc, argv);
  return perf::FaultyRank(options).run();
}
