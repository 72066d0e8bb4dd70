#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/system.h"

namespace whorl::monitor {

/// Memory with the pages of all communicators of this process: one memfd, since descriptors are
/// scarce in programs with many communicators. Blocks follow one another; each begins with a
/// BlockHeader. The file grows, and blocks are reused; it ends with the last block. Any thread.
class PageFile {
 public:
  /// Owner of a block, which begins on a page of memory and is zeroed but for its header. `data()`
  /// is null if there is none.
  class Block {
   public:
    Block() = default;
    Block(Block&& other) noexcept
        : file_(std::move(other.file_)),
          data_(std::exchange(other.data_, nullptr)),
          offset_(other.offset_),
          bytes_(other.bytes_) {}
    Block& operator=(Block&&) = delete;
    ~Block();
    std::byte* data() const noexcept { return data_; }

   private:
    friend class PageFile;
    Block(std::shared_ptr<PageFile> file, std::byte* data, std::size_t offset, std::size_t bytes)
        : file_(std::move(file)), data_(data), offset_(offset), bytes_(bytes) {}
    std::shared_ptr<PageFile> file_;
    std::byte* data_ = nullptr;
    std::size_t offset_ = 0, bytes_ = 0;
  };

  /// Makes a block of at least `bytes`, in the file of this process; one without data where there
  /// is no descriptor or no memory.
  static Block allocate(std::size_t bytes);

 private:
  struct Free {
    std::size_t offset, bytes;
  };
  explicit PageFile(Fd fd) : fd_(std::move(fd)) {}
  static std::shared_ptr<PageFile> of_process();
  static Block allocate_in(std::shared_ptr<PageFile> file, std::size_t bytes);
  std::byte* map(std::size_t offset, std::size_t bytes) const noexcept;

  Fd fd_;
  std::mutex mutex_;
  std::size_t size_ = 0;   ///< end of the last block
  std::size_t blocks_ = 0; ///< number of blocks, also free ones
  std::vector<Free> free_;
};

} // namespace whorl::monitor
