#include "monitor/page_file.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/bytes.h"
#include "monitor/layout.h"

namespace whorl::monitor {
namespace {

BlockHeader& header_of(std::byte* block) noexcept { return *reinterpret_cast<BlockHeader*>(block); }

} // namespace

std::shared_ptr<PageFile> PageFile::of_process() {
  // Never destroyed, because the program may end while other threads destroy communicators.
  static auto& mutex = *new std::mutex;
  static auto& current = *new std::weak_ptr<PageFile>;
  const std::lock_guard lock(mutex);
  if (auto file = current.lock()) return file;
  Fd fd(sys().memfd_create(kPageName));
  if (!fd.valid() || sys().seal_size(fd.get()) < 0) return nullptr;
  std::shared_ptr<PageFile> file(new PageFile(std::move(fd)));
  current = file;
  return file;
}

std::byte* PageFile::map(std::size_t offset, std::size_t bytes) const noexcept {
  void* address = nullptr;
  const int error =
      sys().mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), offset, &address);
  return error < 0 ? nullptr : static_cast<std::byte*>(address);
}

PageFile::Block PageFile::allocate(std::size_t bytes) {
  try {
    return allocate_in(of_process(), bytes);
  } catch (const std::bad_alloc&) {
    return {};
  }
}

PageFile::Block PageFile::allocate_in(std::shared_ptr<PageFile> file, std::size_t bytes) {
  if (file == nullptr) return {};
  bytes = round_up(bytes, std::max(kBlockAlignment, sys().page_bytes()));
  const std::lock_guard lock(file->mutex_);
  const auto reused = std::find_if(file->free_.begin(), file->free_.end(),
                                   [bytes](const Free& free) { return free.bytes >= bytes; });
  if (reused != file->free_.end()) {
    const Free block = *reused;
    std::byte* const data = file->map(block.offset, block.bytes);
    if (data == nullptr) return {};
    file->free_.erase(reused);
    std::memset(data + sizeof(BlockHeader), 0, block.bytes - sizeof(BlockHeader));
    return {std::move(file), data, block.offset, block.bytes};
  }
  file->free_.reserve(file->blocks_ + 1); // so that the end of a block allocates nothing
  // Without memory behind it the first write to a page of the file would be a SIGBUS.
  const std::size_t offset = file->size_;
  if (sys().ftruncate(file->fd_.get(), offset + bytes) < 0 ||
      sys().fallocate(file->fd_.get(), offset, bytes) < 0) {
    return {};
  }
  std::byte* const data = file->map(offset, bytes);
  if (data == nullptr) return {};
  file->size_ = offset + bytes;
  ++file->blocks_;
  header_of(data).bytes.store(bytes, std::memory_order_release); // pairs with read_pages()
  return {std::move(file), data, offset, bytes};
}

PageFile::Block::~Block() {
  if (data_ == nullptr) return;
  header_of(data_).magic.store(0, std::memory_order_relaxed);
  sys().munmap(data_, bytes_);
  const std::lock_guard lock(file_->mutex_);
  file_->free_.push_back({offset_, bytes_});
}

} // namespace whorl::monitor
