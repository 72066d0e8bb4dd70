// Measures the speed of the reduction kernels: for every type the sum, maximum and average of two,
// four and eight sources into one destination, at sizes from the first-level cache to main memory.
// bytes_per_second counts bytes read and written, against the processor time of this thread. A full
// run takes minutes; choose with --benchmark_filter='avx512/bfloat16/sum/' and the like.

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
  // All buffers are aligned and in one allocation. The destination comes first, each source a
  // little further on within its page: a load whose address agrees with that of an earlier store in
  // the lower twelve bits waits for the store, and without the skew the allocator would decide
  // where that happens.
  constexpr std::size_t kPage = 4096, kSkew = 320;
  const std::size_t stride = (bytes + kPage - 1) / kPage * kPage + kSkew;
  std::vector<std::uint8_t> memory(stride * (fan + 1) + kPage);
  // Fill with bytes that encode moderate numbers in every type.
  for (std::size_t i = 0; i < memory.size(); ++i)
    memory[i] = static_cast<std::uint8_t>(0x38 + i % 7);
  std::uint8_t* const first =
      memory.data() + kPage - reinterpret_cast<std::uintptr_t>(memory.data()) % kPage;
  void* const destination = first;
  std::vector<const void*> sources;
  for (std::size_t k = 1; k <= fan; ++k) sources.push_back(first + k * stride);
  const whorl::ReduceKernel kernel = reduce_kernel(type, op, simd);
  const std::size_t count = bytes / size_of(type);
  for (auto _ : state) {
    kernel(sources, destination, count, divisor);
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
      ->Arg(4 << 20);
}

} // namespace

int main(int argc, char** argv) {
  for (const Simd simd : {Simd::kScalar, Simd::kAvx2, Simd::kAvx512, Simd::kNeon}) {
    if (!supported(simd)) continue;
    for (int t = 0; t < whorl::kNumDataTypes; ++t) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kAvg}) {
        if (!whorl::combines(static_cast<DataType>(t), op)) continue;
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
