#include "comm/staging_memory.h"

#include "gpu/driver.h"
#include "transports/shm/heap.h"

namespace whorl {

Result<std::unique_ptr<StagingMemory>> StagingMemory::make(std::size_t bytes) {
  auto memory = std::make_unique<StagingMemory>();
  const auto made = heap_alloc(bytes);
  if (!made.ok()) return made.status();
  memory->data_ = static_cast<std::byte*>(*made);
  memory->bytes_ = bytes;
  WHORL_CUDA_TRY(cuMemHostRegister(*made, bytes, CU_MEMHOSTREGISTER_PORTABLE));
  memory->registered_ = true;
  return memory;
}

StagingMemory::~StagingMemory() {
  if (registered_) static_cast<void>(gpu::driver()->cuMemHostUnregister(data_));
  if (data_ != nullptr) static_cast<void>(heap_free(data_));
}

} // namespace whorl
