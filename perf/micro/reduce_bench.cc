// Speed of the reduction kernels: every type, operator kSum (and kMax for one of each width), two
// and four sources into one destination, at sizes from the first-level cache to main memory.
// bytes_per_second counts what is read and written. Filter with --benchmark_filter, for example
// --benchmark_filter='avx512/bfloat16/sum/.*'.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/reduce.h"

namespace {

using whorl::DataType;
using whorl::ReduceOp;
using whorl::Simd;

void reduce(benchmark::State& state, Simd simd, DataType type, ReduceOp op, std::size_t fan,
            int divisor) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  std::vector<std::vector<std::uint8_t>> buffers(fan + 1);
  for (auto& buffer : buffers) {
    buffer.resize(bytes);
    // Codes that are moderate numbers in every type.
    for (std::size_t i = 0; i < bytes; ++i) buffer[i] = static_cast<std::uint8_t>(0x38 + i % 7);
  }
  std::vector<const void*> sources;
  for (std::size_t k = 0; k < fan; ++k) sources.push_back(buffers[k].data());
  void* const destination = buffers[fan].data();
  const whorl::ReduceKernel kernel = reduce_kernel(type, op, simd);
  const std::size_t count = bytes / size_of(type);
  for (auto _ : state) {
    kernel(sources, {&destination, 1}, count, divisor);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes * (fan + 1)));
}

void add(Simd simd, DataType type, ReduceOp op, std::size_t fan) {
  const std::string name = std::string(name_of(simd)) + "/" + std::string(name_of(type)) + "/" +
                           std::string(name_of(op)) + "/" + std::to_string(fan);
  const int divisor = op == ReduceOp::kAvg ? static_cast<int>(fan) : 1;
  benchmark::RegisterBenchmark(name.c_str(), reduce, simd, type, op, fan, divisor)
      ->Arg(4 << 10)
      ->Arg(32 << 10)
      ->Arg(256 << 10)
      ->Arg(4 << 20)
      ->MinTime(0.05);
}

} // namespace

int main(int argc, char** argv) {
  for (const Simd simd : {Simd::kScalar, Simd::kAvx2, Simd::kAvx512, Simd::kNeon}) {
    if (!supported(simd)) continue;
    for (int t = 0; t < whorl::kNumDataTypes; ++t) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kAvg}) {
        for (const std::size_t fan : {2u, 4u, 8u}) add(simd, static_cast<DataType>(t), op, fan);
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
