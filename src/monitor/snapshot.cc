#include "monitor/snapshot.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "base/printable.h"
#include "base/shm_segment.h"
#include "base/system.h"
#include "base/ticks.h"

namespace whorl::monitor {
namespace {

template <std::size_t kSize>
std::string text_of(const std::array<char, kSize>& bytes) {
  return printable({bytes.data(), ::strnlen(bytes.data(), kSize)});
}

template <std::size_t kSize>
std::string text_of(const SharedText<kSize>& shared) {
  constexpr int kAttempts = 3; // a writer needs less than a microsecond
  std::array<char, kSize> bytes;
  for (int i = 0; i < kAttempts; ++i) {
    if (shared.read(bytes)) return text_of(bytes);
  }
  return text_of(bytes); // the writer was stopped while it wrote
}

/// Converter from ticks() of this host to the monotonic clock, by two moments at which both are
/// known.
class TicksToNs {
 public:
  TicksToNs(std::uint64_t ticks, std::uint64_t ns, std::uint64_t ticks_now, std::uint64_t ns_now)
      : ticks_(ticks_now), ns_(ns_now) {
    const auto passed = static_cast<double>(ticks_now - ticks);
    if (ticks_now > ticks && ns_now > ns) ns_per_tick_ = static_cast<double>(ns_now - ns) / passed;
  }
  std::uint64_t operator()(std::uint64_t at) const {
    const auto before = static_cast<double>(ticks_ - std::min(at, ticks_)) * ns_per_tick_;
    return ns_ - std::min(ns_, static_cast<std::uint64_t>(std::min(before, 1e19)));
  }

 private:
  std::uint64_t ticks_, ns_;
  double ns_per_tick_ = 1;
};

/// Numbers of a page that say where its parts are. Copies, since the process that the page belongs
/// to could change the page after the check.
struct PageNumbers {
  std::uint32_t entries = 0;
  std::int32_t rank = 0, nranks = 0;
};

/// Returns the numbers of a page, which fit its size.
Result<PageNumbers> read_numbers(std::span<const std::byte> page) {
  if (page.size() < PageLayout::ring()) {
    return Status::error(Code::kInternalError, fmt::format("a page of {} bytes", page.size()));
  }
  const auto& header = *reinterpret_cast<const PageHeader*>(page.data());
  const bool complete = header.block.magic.load(std::memory_order_acquire) ==
                        kPageMagic; // pairs with Recorder::make()
  if (!complete || header.version != kPageVersion) {
    return Status::error(Code::kInvalidUsage,
                         fmt::format("a page of version {}, or none of whorl, or one that is being "
                                     "made; this program reads version {}",
                                     header.version, kPageVersion));
  }
  const auto once = [](const auto& number) { // a volatile object is read exactly once
    return *static_cast<const volatile std::remove_reference_t<decltype(number)>*>(&number);
  };
  const PageNumbers found{
      .entries = once(header.entries), .rank = once(header.rank), .nranks = once(header.nranks)};
  const bool ring = std::has_single_bit(found.entries) && found.entries <= kMaxEntries;
  if (!ring || found.nranks < 1 || static_cast<std::uint32_t>(found.nranks) > kMaxRanks ||
      found.rank < 0 || found.rank >= found.nranks ||
      page.size() < PageLayout{found.entries, static_cast<std::uint32_t>(found.nranks)}.bytes()) {
    return Status::error(Code::kInternalError,
                         fmt::format("a page of {} bytes with {} operations, rank {} of {}",
                                     page.size(), found.entries, found.rank, found.nranks));
  }
  return found;
}

RecordedOperation read_entry(const PageEntry& entry, std::uint64_t number, const TicksToNs& ns) {
  constexpr auto kBeforeNumber = std::memory_order_acquire; // pairs with release in begin()
  const std::array words = {entry.fingerprint[0].load(kBeforeNumber),
                            entry.fingerprint[1].load(kBeforeNumber)};
  const std::uint64_t partner = entry.partner.load(kBeforeNumber);
  const std::uint64_t ended = entry.ended.load(kBeforeNumber);
  return {.number = number,
          .fingerprint = std::bit_cast<Fingerprint>(words),
          .peer = static_cast<int>(std::min<std::uint64_t>(partner / 2, kMaxRanks)) - 1,
          .sends = partner % 2 != 0,
          .under_way = ended == 0,
          .began_ns = ns(entry.began.load(kBeforeNumber)),
          .ended_ns = ended <= PageEntry::kNotTimed ? 0 : ns(ended)};
}

void read_operations(const PageState& state, const PageEntry* ring, std::uint64_t entries,
                     const TicksToNs& ns, Snapshot& out) {
  out.begun = state.begun.load(std::memory_order_acquire); // pairs with Recorder::begin()
  const std::uint64_t kept = std::min(out.begun, entries);
  for (std::uint64_t number = out.begun - kept; number < out.begun; ++number) {
    out.operations.push_back(read_entry(ring[number & (entries - 1)], number, ns));
  }
  // Meanwhile the writer may have reused entries; it may also be in the middle of the next one.
  const std::uint64_t reused = state.begun.load(std::memory_order_relaxed) + 1;
  std::erase_if(out.operations, [&](const RecordedOperation& operation) {
    return operation.number + entries < reused;
  });
}

/// Makes sure that what was read before, also of plain memory, was read before what follows.
void finish_reads() noexcept {
  // The thread sanitizer does not know fences. None of its reports depends on this one: it orders
  // reads of the header, which nobody writes while the page is complete.
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
#endif
  std::atomic_thread_fence(std::memory_order_acquire);
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
}

} // namespace

Result<Snapshot> read_page(std::span<const std::byte> page) {
  const auto numbers = read_numbers(page);
  if (!numbers.ok()) return numbers.status();
  const auto* const header = reinterpret_cast<const PageHeader*>(page.data());
  const auto nranks = static_cast<std::uint32_t>(numbers->nranks);
  const PageLayout layout{numbers->entries, nranks};
  const auto& state = *reinterpret_cast<const PageState*>(page.data() + PageLayout::state());
  Snapshot out;
  out.process_id = header->process_id;
  out.rank = numbers->rank;
  out.nranks = numbers->nranks;
  out.job = header->job;
  out.host_key = header->host_key;
  out.host = text_of(header->host);
  out.name = text_of(header->name);
  out.taken_ns = sys().now_ns();
  const TicksToNs ns(header->ticks, header->time_ns, ticks(), out.taken_ns);

  const auto phase =
      static_cast<std::uint32_t>(state.phase.load(std::memory_order_acquire)); // pairs with fail()
  out.phase = static_cast<Phase>(std::min(phase, static_cast<std::uint32_t>(Phase::kFailed)));
  if (out.phase == Phase::kFailed) out.error = text_of(state.error);
  const std::uint64_t since_ns = state.waiting_since_ns.load(std::memory_order_relaxed);
  out.wait = {.under_way = since_ns != 0,
              .since_ns = since_ns,
              .looked_ns = state.looked_ns.load(std::memory_order_relaxed),
              .peer = state.waits_for.load(std::memory_order_relaxed),
              .text = text_of(state.waiting)};
  if (out.wait.peer >= out.nranks) out.wait.peer = -1;
  read_operations(state, reinterpret_cast<const PageEntry*>(page.data() + PageLayout::ring()),
                  numbers->entries, ns, out);
  const auto* const waited =
      reinterpret_cast<const std::atomic<std::uint64_t>*>(page.data() + layout.waited());
  for (std::uint32_t rank = 0; rank < nranks; ++rank) {
    out.waited_ns.push_back(waited[rank].load(std::memory_order_relaxed));
  }
  finish_reads();
  if (header->block.magic.load(std::memory_order_relaxed) != kPageMagic || header->job != out.job) {
    return Status::error(Code::kInvalidUsage, "a page whose communicator ended meanwhile");
  }
  return out;
}

std::vector<Snapshot> read_blocks(std::span<const std::byte> all) {
  std::vector<Snapshot> pages;
  while (all.size() >= kBlockAlignment) {
    const std::uint64_t bytes = // pairs with PageFile::allocate()
        reinterpret_cast<const BlockHeader*>(all.data())->bytes.load(std::memory_order_acquire);
    if (bytes == 0 || bytes % kBlockAlignment != 0 || bytes > all.size()) break;
    if (auto page = read_page(all.first(bytes)); page.ok()) pages.push_back(*std::move(page));
    all = all.subspan(bytes);
  }
  return pages;
}

Result<std::vector<Snapshot>> read_pages(Fd fd) {
  std::size_t size = 0;
  const int error = sys().file_size(fd.get(), &size);
  if (error < 0) return Status::error(Code::kSystemError, "the memory of pages has no size");
  if (size < kBlockAlignment) return std::vector<Snapshot>();
  const auto segment = ShmSegment::open_to_read(std::move(fd), size);
  if (!segment.ok()) return segment.status();
  return read_blocks({segment->data(), size});
}

std::string describe(const RecordedOperation& operation) {
  const Fingerprint& f = operation.fingerprint;
  if (operation.peer < 0 || !known(f)) return whorl::describe(f);
  return fmt::format("{} number {}{} {} rank {}", operation.sends ? "send" : "receive", f.sequence,
                     describe_arguments(Collective::kSend, f.count(), f.data_type(), {}, 0),
                     operation.sends ? "to" : "from", operation.peer);
}

} // namespace whorl::monitor
