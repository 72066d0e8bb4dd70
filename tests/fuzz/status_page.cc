// The page on which a rank shows others what it does, as whorl-stat reads it.
#include <cstring>
#include <nlohmann/json.hpp>

#include "input.h"
#include "monitor/layout.h"
#include "monitor/snapshot.h"
#include "target.h"

namespace whorl::fuzz {

std::vector<std::string> seeds() {
  using namespace monitor;
  std::string page(PageLayout{4, 2}.bytes(), '\0');
  auto& header = *reinterpret_cast<PageHeader*>(page.data());
  header.block.magic = kPageMagic;
  header.version = kPageVersion;
  header.entries = 4;
  header.nranks = 2;
  std::memcpy(header.host.data(), "node7", 6);
  auto& state = *reinterpret_cast<PageState*>(page.data() + PageLayout::state());
  state.phase = Phase::kFailed;
  state.begun = 5;
  state.waiting.write("waiting for rank 1 (host node7, pid 42) while receiving");
  state.error.write("rank 1 died \x1b[31m");
  return {page};
}

} // namespace whorl::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace whorl;
  using namespace whorl::fuzz;
  constexpr std::size_t kAlignment = 128;
  std::vector<std::byte> memory(size + kAlignment);
  std::byte* const begin =
      memory.data() + (-reinterpret_cast<std::uintptr_t>(memory.data()) % kAlignment);
  if (size > 0) std::memcpy(begin, data, size);
  const auto snapshot = monitor::read_page({begin, size});
  if (!snapshot.ok()) {
    require_error(snapshot.status());
    return 0;
  }
  require(snapshot->rank >= 0 && snapshot->rank < snapshot->nranks, "a rank below their number");
  require(snapshot->wait.peer < snapshot->nranks, "a peer below their number");
  require(snapshot->waited_ns.size() == static_cast<std::size_t>(snapshot->nranks), "waits");
  for (const std::string& text :
       {snapshot->host, snapshot->name, snapshot->error, snapshot->wait.text}) {
    require(std::none_of(text.begin(), text.end(), is_control), "printable");
  }
  for (const monitor::RecordedOperation& operation : snapshot->operations) {
    const std::string text = describe(operation);
    require(!text.empty() && std::none_of(text.begin(), text.end(), is_control), "an operation");
  }
  require(nlohmann::json::accept(to_json(*snapshot)), "JSON");
  return 0;
}
