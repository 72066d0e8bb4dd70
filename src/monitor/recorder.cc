#include "monitor/recorder.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/bytes.h"
#include "base/system.h"

namespace whorl::monitor {
namespace {

template <std::size_t kSize>
void copy_name(std::string_view from, std::array<char, kSize>& to) {
  to = {};
  std::copy_n(from.begin(), std::min(from.size(), kSize - 1), to.begin());
}

} // namespace

Recorder::Recorder(const PageLayout& layout, PageFile::Block block, std::unique_ptr<Memory[]> own)
    : layout_(layout),
      block_(std::move(block)),
      own_(std::move(own)),
      data_(own_ == nullptr ? block_.data() : own_[0].bytes.data()),
      state_(new (data_ + PageLayout::state()) PageState),
      ring_(reinterpret_cast<PageEntry*>(data_ + PageLayout::ring())),
      waited_(reinterpret_cast<std::atomic<std::uint64_t>*>(data_ + layout.waited())),
      mask_(layout.entries - 1) {
  state_->waits_for.store(-1, std::memory_order_relaxed);
}

std::unique_ptr<Recorder> Recorder::make(const Who& who, std::uint32_t entries) {
  const PageLayout layout{entries, static_cast<std::uint32_t>(who.nranks)};
  PageFile::Block block = PageFile::allocate(layout.bytes());
  std::unique_ptr<Memory[]> own;
  if (block.data() == nullptr) {
    own = std::make_unique<Memory[]>(round_up(layout.bytes(), sizeof(Memory)) / sizeof(Memory));
  }
  std::unique_ptr<Recorder> made(new Recorder(layout, std::move(block), std::move(own)));
  auto& header = *reinterpret_cast<PageHeader*>(made->data_);
  header.version = kPageVersion;
  header.entries = entries;
  header.rank = static_cast<std::int32_t>(who.info.rank);
  header.nranks = who.nranks;
  header.process_id = who.info.process_id;
  header.ticks = ticks();
  header.time_ns = sys().now_ns();
  header.job = who.identity.job;
  header.host_key = who.info.host_key;
  header.host = who.info.host_name;
  copy_name(who.name, header.name);
  made->creating("preparing the transports");
  header.block.magic.store(kPageMagic, std::memory_order_release); // pairs with read_numbers()
  return made;
}

void Recorder::creating(std::string_view step) noexcept {
  state_->waiting.write(step);
  state_->waiting_since_ns.store(sys().now_ns(), std::memory_order_relaxed);
}

std::optional<Fingerprint> Recorder::find_collective(std::uint32_t sequence) const noexcept {
  const std::uint64_t kept = std::min(begun_, mask_ + 1);
  for (std::uint64_t number = begun_; number-- > begun_ - kept;) {
    const PageEntry& entry = ring_[number & mask_];
    const auto fingerprint = std::bit_cast<Fingerprint>(
        std::array{entry.fingerprint[0].load(std::memory_order_relaxed),
                   entry.fingerprint[1].load(std::memory_order_relaxed)});
    const bool collective =
        entry.partner.load(std::memory_order_relaxed) == PageEntry::partner_of(-1, false);
    if (collective && fingerprint.sequence == sequence) return fingerprint;
  }
  return std::nullopt;
}

void Recorder::waiting(std::uint64_t since_ns, std::uint64_t now_ns, int peer,
                       std::string_view text) noexcept {
  if (!text.empty()) state_->waiting.write(text);
  state_->waits_for.store(peer, std::memory_order_relaxed);
  state_->waiting_since_ns.store(since_ns, std::memory_order_relaxed);
  state_->looked_ns.store(now_ns, std::memory_order_relaxed);
  if (peer >= 0) {
    // Only this thread writes, so the sum needs no atomic addition.
    std::atomic<std::uint64_t>& sum = waited_[peer];
    const std::uint64_t from = std::max(counted_ns_, since_ns);
    sum.store(sum.load(std::memory_order_relaxed) + (now_ns - std::min(from, now_ns)),
              std::memory_order_relaxed);
  }
  counted_ns_ = now_ns;
  shows_wait_ = true;
}

/// Shows that the wait is over, until the next look of a wait in another operation under way.
void Recorder::end_wait() noexcept {
  state_->waiting_since_ns.store(0, std::memory_order_relaxed);
  shows_wait_ = false;
}

void Recorder::fail(std::string_view error) noexcept {
  if (failed_.exchange(true, std::memory_order_relaxed)) return;
  state_->error.write(error);
  state_->phase.store(Phase::kFailed, std::memory_order_release); // pairs with read_page()
}

} // namespace whorl::monitor
