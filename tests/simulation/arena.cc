#include "simulation/arena.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstring>
#include <new>
#include <utility>

namespace whorl::simulation {

Arena::Arena() {
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  base_ = static_cast<std::byte*>(memory);
}

Arena::~Arena() { munmap(base_, kBytes); }

void Arena::clear() {
  std::memset(base_, 0, used_);
  used_ = 0;
  unbacked_.clear();
  names_.clear();
}

std::byte* Arena::allocate(std::size_t bytes) {
  std::byte* const memory = base_ + used_;
  used_ += (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  if (used_ > kBytes) throw std::bad_alloc();
  return memory;
}

void Arena::set_backed(const std::byte* begin, std::size_t bytes, bool backed) {
  unbacked_.resize(kBytes / kPageBytes);
  const std::size_t first = offset_of(begin) / kPageBytes;
  for (std::size_t page = first; page < first + bytes / kPageBytes; ++page) {
    unbacked_[page] = !backed;
  }
}

bool Arena::backed(std::size_t offset, std::size_t bytes) const noexcept {
  if (unbacked_.empty() || bytes == 0) return true;
  return !unbacked_[offset / kPageBytes] && !unbacked_[(offset + bytes - 1) / kPageBytes];
}

void Arena::name(const volatile void* begin, std::size_t bytes, std::string text) {
  names_.push_back({offset_of(begin), bytes, std::move(text)});
}

std::string Arena::describe(std::size_t offset) const {
  for (auto name = names_.rbegin(); name != names_.rend(); ++name) {
    if (offset - name->begin >= name->bytes) continue;
    const std::size_t inside = offset - name->begin;
    return inside == 0 ? name->text : fmt::format("{}+{}", name->text, inside);
  }
  return fmt::format("memory+{:#x}", offset);
}

Arena& arena() noexcept {
  static Arena only;
  return only;
}

} // namespace whorl::simulation
