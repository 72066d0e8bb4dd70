#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpu/program.h"
#include "tests/support/aligned_memory.h"

namespace whorl::test {

/// FIFOs of ranks on one device, for one or several successive launches.
class FifoWorld {
 public:
  FifoWorld(int nranks, std::uint32_t channels, std::uint32_t slots, std::uint32_t slot_bytes)
      : layout_{static_cast<std::uint32_t>(nranks), channels, slots, slot_bytes},
        reports_(static_cast<std::size_t>(nranks)) {
    for (int rank = 0; rank < nranks; ++rank) regions_.emplace_back(layout_.region_bytes());
  }
  /// Sets what is the same in all launches.
  void set(gpu::Launch& launch) {
    launch.timeout_ns = timeout_ns;
    launch.fifos = layout_;
    launch.stop = &stop;
    launch.stops_first = stops_first ? 1 : 0;
    launch.reports = reports_.data();
    for (std::size_t rank = 0; rank < regions_.size(); ++rank) {
      launch.regions[rank] = regions_[rank].get();
    }
  }

  std::uint64_t timeout_ns = 60'000'000'000;
  gpu::StopWords stop{};
  bool stops_first = false;
  /// Returns the first line of the first message from one rank to another, on the first channel.
  const gpu::Line& line(std::size_t to, std::uint32_t from) const {
    return *reinterpret_cast<const gpu::Line*>(regions_[to].get() + layout_.line_at(from, 0, 0));
  }
  const gpu::Report& report(std::size_t rank) const { return reports_[rank]; }
  /// Returns the number of messages from one rank to another so far, on the first channel.
  std::uint64_t messages(std::uint32_t from, std::size_t to) const {
    return layout_.end(regions_[to].get(), false, from, 0).flag;
  }

 private:
  gpu::FifoLayout layout_;
  std::vector<AlignedMemory> regions_;
  std::vector<gpu::Report> reports_;
};

} // namespace whorl::test
