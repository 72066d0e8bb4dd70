// Reports of kernels that have given up, which other processes leave in shared memory. An input is
// a sequence of reports, one for each rank.
#include "device/common/report.h"

#include <cstring>
#include <string>

#include "input.h"
#include "target.h"

namespace whorl::fuzz {
namespace {

constexpr std::size_t kMaxRanks = 8;

gpu::Report waiting_for(std::uint32_t peer, std::uint32_t expired) {
  Request request;
  request.collective = Collective::kBroadcast;
  request.type = DataType::kInt64;
  gpu::Report report{};
  report.state = 1;
  report.expired = expired;
  report.peer = peer;
  report.operation = report_tag(request);
  report.count = 80;
  report.timeout_ns = 1'500'000'000;
  return report;
}

} // namespace

std::vector<std::string> seeds() {
  return {bytes_of(waiting_for(2, 1), waiting_for(0, 0), gpu::Report{}),
          bytes_of(waiting_for(1, 1), waiting_for(0, 1)), bytes_of(waiting_for(0, 1))};
}

} // namespace whorl::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace whorl;
  using namespace whorl::fuzz;
  Input input(data, size);
  std::vector<gpu::Report> reports;
  std::vector<std::string> names;
  bool any_expired = false;
  do {
    auto come = input.take<gpu::Report>();
    reports.push_back(read_report(come));
    const gpu::Report& read = reports.back();
    require(read.state == 0 || std::memcmp(&read, &come, sizeof read) == 0, "as it has come");
    any_expired = any_expired || (read.state != 0 && read.expired != 0);
    names.push_back("rank " + std::to_string(names.size()));
  } while (!input.empty() && reports.size() < kMaxRanks);
  const Status error = error_of(reports, names);
  require(error.ok() != any_expired, "an error if the time of a rank has run out");
  if (!error.ok()) require_error(error);
  return 0;
}
