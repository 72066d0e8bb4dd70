#include "device/common/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <memory>

namespace whorl {
namespace {

Request request_of(const gpu::Report& report) {
  const auto byte = [&](unsigned k) { return report.operation >> (8U * k) & 0xffU; };
  Request request;
  request.collective = static_cast<Collective>(byte(0));
  request.type = static_cast<DataType>(byte(1));
  request.op = static_cast<ReduceOp>(byte(2));
  request.peer = static_cast<int>(byte(3));
  request.count = report.count;
  if (byte(4) != 0) request.blocks = std::make_shared<Blocks>();
  return request;
}

bool makes_sense(const gpu::Report& report) {
  const Request request = request_of(report);
  return static_cast<int>(request.collective) < kNumCollectives &&
         static_cast<int>(request.type) < kNumDataTypes &&
         std::find(kReduceOps.begin(), kReduceOps.end(), request.op) != kReduceOps.end();
}

std::string describe_wait(std::size_t rank, const gpu::Report& report,
                          std::span<const std::string> names) {
  const auto phase = static_cast<gpu::WaitPhase>(report.phase);
  const std::string at =
      fmt::format("lane {}, step {}, window {}", report.lane, report.step, report.window);
  Request request = request_of(report);
  if (!reduces(request.collective)) request.count /= size_of(request.type); // in bytes so far
  const std::string what = describe(request);
  if (phase == gpu::WaitPhase::kLane) {
    return fmt::format("{} in {}: waiting for another lane of its own ({})", names[rank], what, at);
  }
  return fmt::format("{} in {}: waiting for {} while {} on the device ({})", names[rank], what,
                     names[std::min<std::size_t>(report.peer, names.size() - 1)],
                     phase == gpu::WaitPhase::kSending ? "sending" : "receiving", at);
}

} // namespace

std::uint64_t report_tag(const Request& request, bool uneven) {
  return static_cast<std::uint64_t>(request.collective) |
         static_cast<std::uint64_t>(request.type) << 8U |
         static_cast<std::uint64_t>(request.op) << 16U |
         (static_cast<std::uint64_t>(request.peer) & 0xffU) << 24U |
         static_cast<std::uint64_t>(uneven ? 1 : 0) << 32U;
}

gpu::Report read_report(gpu::Report& report) noexcept {
  // pairs with the publish() that ends the kernel's report
  const std::uint32_t state = std::atomic_ref(report.state).load(std::memory_order_acquire);
  const gpu::Report copy = report; // checked as it is used: its process could change the original
  return state != 0 && makes_sense(copy) ? copy : gpu::Report{};
}

Status error_of(std::span<const gpu::Report> reports, std::span<const std::string> names) {
  const auto expired = std::find_if(reports.begin(), reports.end(),
                                    [](const gpu::Report& report) { return report.expired != 0; });
  if (expired == reports.end()) return {};
  // A rank that waits for a waiting rank is not the cause: follow the chain to its end.
  auto rank = static_cast<std::size_t>(expired - reports.begin());
  for (std::size_t hops = 0; hops < reports.size(); ++hops) {
    const std::size_t peer = std::min<std::size_t>(reports[rank].peer, reports.size() - 1);
    if (reports[peer].state == 0 || peer == rank) break;
    rank = peer;
  }
  return Status::error(
      Code::kRemoteError,
      fmt::format("no progress within the timeout of {:.1f} s. {}. The device of that rank may be "
                  "busy with other work or out of order; if it needs longer, raise the "
                  "timeout (timeout= of the packages for Python and PyTorch, otherwise "
                  "WHORL_TIMEOUT_MS, timeoutMs or whorlCommSetTimeout())",
                  static_cast<double>(expired->timeout_ns) * 1e-9,
                  describe_wait(rank, reports[rank], names)));
}

} // namespace whorl
