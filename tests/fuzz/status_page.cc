// The pages on which the ranks of a process show others what they do, as whorl-stat reads them. The
// first byte chooses: one page, or pages in blocks.
#include <cstring>
#include <memory>
#include <new>
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
  std::string block = page;
  block.resize(kBlockAlignment);
  reinterpret_cast<PageHeader*>(block.data())->block.bytes = block.size();
  return {char{0} + page, char{1} + block + block, char{1} + block + std::string(8, '\0')};
}

namespace {

void check(const monitor::Snapshot& snapshot) {
  require(snapshot.rank >= 0 && snapshot.rank < snapshot.nranks, "a rank below their number");
  require(snapshot.wait.peer < snapshot.nranks, "a peer below their number");
  require(snapshot.waited_ns.size() == static_cast<std::size_t>(snapshot.nranks), "waits");
  for (const std::string& text :
       {snapshot.host, snapshot.name, snapshot.error, snapshot.wait.text}) {
    require(std::none_of(text.begin(), text.end(), is_control), "printable");
  }
  for (const monitor::RecordedOperation& operation : snapshot.operations) {
    const std::string text = describe(operation);
    require(!text.empty() && std::none_of(text.begin(), text.end(), is_control), "an operation");
  }
  require(nlohmann::json::accept(to_json(snapshot)), "JSON");
}

} // namespace
} // namespace whorl::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace whorl;
  using namespace whorl::fuzz;
  Input input(data, size);
  const bool one = input.byte() % 2 == 0;
  const std::size_t bytes = input.rest().size();
  constexpr std::align_val_t kPage{monitor::kBlockAlignment};
  const auto free = [](std::byte* memory) { ::operator delete(memory, kPage); };
  const std::unique_ptr<std::byte, decltype(free)> memory( // not a byte more, for the sanitizer
      static_cast<std::byte*>(::operator new(bytes, kPage)), free);
  std::byte* const begin = memory.get();
  std::copy(input.rest().begin(), input.rest().end(), begin);
  if (!one) {
    for (const monitor::Snapshot& snapshot : monitor::read_blocks({begin, bytes})) check(snapshot);
    return 0;
  }
  const auto snapshot = monitor::read_page({begin, bytes});
  snapshot.ok() ? check(*snapshot) : require_error(snapshot.status());
  return 0;
}
