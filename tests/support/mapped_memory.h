#pragma once

// Device memory from CUDA's virtual memory management, for tests.

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace whorl::test {

/// Physical memory of different sizes, mapped to consecutive addresses as in PyTorch's expandable
/// segments. On the device of the thread's context.
class MappedMemory {
 public:
  using Types = CUmemAllocationHandleType;
  /// Maps pieces of the given sizes, in minimum units of the device.
  explicit MappedMemory(std::vector<std::size_t> units,
                        Types types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
      : units_(std::move(units)) {
    prop_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop_.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    EXPECT_EQ(cuCtxGetDevice(&prop_.location.id), CUDA_SUCCESS);
    prop_.requestedHandleTypes = types;
    EXPECT_EQ(cuMemGetAllocationGranularity(&unit_, &prop_, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
              CUDA_SUCCESS);
    for (const std::size_t n : units_) bytes_ += n * unit_;
    EXPECT_EQ(cuMemAddressReserve(&begin_, bytes_, 0, 0, 0), CUDA_SUCCESS);
    map();
  }
  ~MappedMemory() {
    unmap();
    EXPECT_EQ(cuMemAddressFree(begin_, bytes_), CUDA_SUCCESS);
  }
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;

  std::size_t bytes() const { return bytes_; }
  std::size_t unit() const { return unit_; }
  std::byte* data() const { return reinterpret_cast<std::byte*>(begin_); }
  /// Maps other physical memory to the same addresses.
  void map_anew() {
    unmap();
    map();
  }
  void write(std::size_t offset, std::span<const std::byte> contents, CUstream stream) {
    EXPECT_EQ(cuMemcpyAsync(begin_ + offset, reinterpret_cast<CUdeviceptr>(contents.data()),
                            contents.size(), stream),
              CUDA_SUCCESS);
    EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  }
  void read(std::size_t offset, std::span<std::byte> to, CUstream stream) const {
    EXPECT_EQ(
        cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(to.data()), begin_ + offset, to.size(), stream),
        CUDA_SUCCESS);
    EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  }

 private:
  void map() {
    CUdeviceptr at = begin_;
    for (const std::size_t n : units_) {
      CUmemGenericAllocationHandle handle = 0;
      EXPECT_EQ(cuMemCreate(&handle, n * unit_, &prop_, 0), CUDA_SUCCESS);
      EXPECT_EQ(cuMemMap(at, n * unit_, 0, handle, 0), CUDA_SUCCESS);
      handles_.push_back(handle);
      at += n * unit_;
    }
    const CUmemAccessDesc access{.location = prop_.location,
                                 .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    EXPECT_EQ(cuMemSetAccess(begin_, bytes_, &access, 1), CUDA_SUCCESS);
  }
  void unmap() {
    CUdeviceptr at = begin_;
    for (std::size_t i = 0; i < units_.size(); ++i) {
      EXPECT_EQ(cuMemUnmap(at, units_[i] * unit_), CUDA_SUCCESS);
      EXPECT_EQ(cuMemRelease(handles_[i]), CUDA_SUCCESS);
      at += units_[i] * unit_;
    }
    handles_.clear();
  }

  std::vector<std::size_t> units_;
  CUmemAllocationProp prop_{};
  std::size_t unit_ = 0, bytes_ = 0;
  CUdeviceptr begin_ = 0;
  std::vector<CUmemGenericAllocationHandle> handles_;
};

} // namespace whorl::test
