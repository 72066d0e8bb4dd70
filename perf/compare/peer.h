#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <string>
#include <variant>
#include <vector>

#include "perf/common/options.h"
#include "perf/common/report.h"
#include "perf/common/verify.h"

// Measures the allreduce (float32, sum, separate buffers of plain memory) of another library as
// all_reduce_perf measures whorl's in its dirty mode: same flags, data, order of steps, averaging,
// verification and JSON; see perf/common/runner.cc.

namespace peer {

/// A page-aligned buffer whose pages have been touched.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes) {
    const std::size_t total = (bytes / 4096 + 1) * 4096;
    data_ = static_cast<float*>(std::aligned_alloc(4096, total));
    if (data_ == nullptr) throw perf::Failure("Cannot allocate the buffers; lower -e.");
    std::memset(data_, 0, total);
  }
  ~Buffer() { std::free(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  [[nodiscard]] float* data() const { return data_; }

 private:
  float* data_;
};

/// `Library` is one rank of a started communicator, used by this thread only:
///   int rank(), nranks();
///   void barrier();                                             returns when all have entered
///   void all_reduce(const float* in, float* out, size_t count); returns when complete
///   double sum(double value);                                   over all ranks, on all ranks
template <class Library>
class Runner {
 public:
  Runner(Library& library, const perf::Options& options, std::size_t max_bytes)
      : library_(library),
        options_(options),
        pattern_(XCCL(Float32), perf::Operator::kSum, library.nranks()),
        send_(max_bytes),
        recv_(max_bytes) {}

  perf::Row measure(std::size_t bytes) {
    count_ = bytes / sizeof(float);
    std::int64_t wrong = 0;
    // rewrite input | barrier | clock, operation, clock | read result, and again.
    Clock::duration total{};
    prepare(0);
    for (int i = -options_.warmup; i < options_.iterations; ++i) {
      const std::size_t shift = static_cast<std::size_t>(i + options_.warmup) * kShift;
      rewrite(shift);
      library_.barrier();
      const auto start = Clock::now();
      library_.all_reduce(send_.data(), recv_.data(), count_);
      const auto stop = Clock::now();
      if (i >= 0) total += stop - start;
      wrong += count_wrong(shift);
    }
    for (int i = 0; i < options_.check_iterations; ++i) {
      const std::size_t shift = static_cast<std::size_t>(i + 1) * kShift;
      prepare(shift);
      library_.all_reduce(send_.data(), recv_.data(), count_);
      wrong += count_wrong(shift);
    }

    perf::Sample sample;
    sample.valid = true;
    sample.time_us = library_.sum(std::chrono::duration<double, std::micro>(total).count()) /
                     library_.nranks() / options_.iterations;
    sample.algbw_gbs = static_cast<double>(bytes) / (sample.time_us * 1000);
    sample.busbw_gbs = sample.algbw_gbs * 2 * (library_.nranks() - 1) / library_.nranks();
    sample.wrong = static_cast<std::int64_t>(library_.sum(static_cast<double>(wrong)));
    return {bytes, count_, XCCL(Float32), perf::Operator::kSum, -1, sample, {}};
  }

 private:
  using Clock = std::chrono::steady_clock;
  /// As in all_reduce_perf: a result left over from the iteration before is wrong.
  static constexpr std::size_t kShift = 97;

  void rewrite(std::size_t shift) {
    perf::fill(send_.data(), count_, pattern_.input(library_.rank()), sizeof(float), shift);
  }
  void prepare(std::size_t shift) {
    std::memset(recv_.data(), 0xff, count_ * sizeof(float));
    rewrite(shift);
  }
  std::int64_t count_wrong(std::size_t shift) {
    const perf::Tile& input = pattern_.input(library_.rank());
    return static_cast<std::int64_t>(
        perf::count_wrong(recv_.data(), count_, pattern_.reduced(), sizeof(float), shift) +
        perf::count_wrong(send_.data(), count_, input, sizeof(float), shift));
  }

  Library& library_;
  const perf::Options& options_;
  perf::Pattern pattern_;
  Buffer send_;
  Buffer recv_;
  std::size_t count_ = 0;
};

template <class Library>
int run(Library& library, const std::string& name, const perf::Options& options) {
  const std::vector<std::size_t> sizes = perf::sweep_sizes(options);
  Runner<Library> runner(library, options, sizes.back());
  std::vector<perf::Row> rows;
  for (std::size_t size : sizes) {
    rows.push_back(runner.measure(size));
    if (library.rank() == 0) std::fputs(perf::format_row(rows.back()).c_str(), stdout);
  }
  const perf::Summary summary = perf::summarize(rows, {}, 0, true);
  if (library.rank() == 0 && !options.json_file.empty()) {
    std::ofstream file(options.json_file);
    file << perf::to_json(name, options, nullptr, {}, perf::this_machine(), rows, {}, summary);
    file.close();
    if (!file) throw perf::Failure("Cannot write -J " + options.json_file + ".");
  }
  return summary.out_of_bounds == 0 ? 0 : 1;
}

/// Parses all_reduce_perf's flags, calls `body(options)` and returns the exit status. Only sizes,
/// iterations, -T and -J have an effect; -T also ends a run in which a rank hangs.
template <class Body>
int main(int argc, const char* const* argv, const char* name, Body&& body) {
  const auto parsed = perf::parse(argc, argv, name, false, 2);
  if (const auto* end = std::get_if<perf::Exit>(&parsed)) {
    std::fputs(end->text.c_str(), end->code == 0 ? stdout : stderr);
    return end->code;
  }
  const auto& options = std::get<perf::Options>(parsed);
  alarm(static_cast<unsigned>(options.timeout_s));
  try {
    return body(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return 1;
  }
}

} // namespace peer
