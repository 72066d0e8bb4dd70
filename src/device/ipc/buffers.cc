#include "device/ipc/buffers.h"

#include "base/bytes.h"
#include "device/kernel/blocks.h"
#include "gpu/driver.h"

namespace whorl {

void DeviceBuffers::describe_blocks(const Request& request, DevicePost& post,
                                    std::vector<BlockPlace>& places) const {
  if (!has_blocks(request)) return;
  post.uneven = 1;
  const Blocks blocks = blocks_of(request, members_.rank, members_.nranks);
  for (const auto* const all : {&blocks.sends, &blocks.receives}) {
    const Hull hull = hull_of(*all, size_of(request.type));
    for (const Blocks::Block& block : *all) {
      const bool any = block.count > 0;
      places.push_back(
          {any ? static_cast<std::uint64_t>(block.data - hull.begin) : 0, block.count});
    }
  }
}

bool DeviceBuffers::describe(const Request& request, DevicePost& post) {
  if (has_blocks(request)) {
    const Blocks blocks = blocks_of(request, members_.rank, members_.nranks);
    const Hull in = hull_of(blocks.sends, size_of(request.type));
    const Hull out = hull_of(blocks.receives, size_of(request.type));
    return find(in.begin, in.bytes, post.input) && find(out.begin, out.bytes, post.output);
  }
  return find(request.send, input_bytes(request, members_.rank, members_.nranks), post.input) &&
         find(request.recv, output_bytes(request, members_.rank, members_.nranks), post.output);
}

bool DeviceBuffers::find(const void* buffer, std::size_t bytes, gpu::SharedMemory& memory) {
  if (bytes == 0) return true;
  if (members_.same_process(members_.rank, kDeviceLeader)) {
    const auto address = reinterpret_cast<std::uintptr_t>(buffer);
    memory = {.address = address, .bytes = bytes, .allocation = address, .allocated = bytes};
    return true;
  }
  const auto found = exports_.find(buffer, bytes);
  if (found) memory = *found;
  return found && (found->mappings == 0 || sender_.possible());
}

Progress DeviceBuffers::hand_over(std::uint64_t number, const DevicePost& post, CUcontext context) {
  const SharedState::Wanted wanted = board_.asked(members_.rank, number);
  if (!wanted.any()) return Progress::kIdle;
  const gpu::ContextGuard guard(context);
  if (!sending_) {
    sending_ = true;
    error_ = send(number, post, wanted);
    if (!error_.ok()) return Progress::kFailed;
  }
  const Progress progress = sender_.step();
  if (progress == Progress::kFailed) error_ = sender_.error();
  return progress;
}

Status DeviceBuffers::send(std::uint64_t number, const DevicePost& post,
                           SharedState::Wanted wanted) {
  sender_.begin(number);
  const auto add = [&](const gpu::SharedMemory& run) -> Status {
    auto physical = exports_.hold(run);
    if (!physical.ok()) return physical.status();
    sender_.add(run, *std::move(physical));
    return {};
  };
  if (wanted.input) WHORL_TRY(add(post.input));
  if (wanted.output) WHORL_TRY(add(post.output));
  return {};
}

void DeviceBuffers::end_operation() {
  if (!sending_) return;
  sending_ = false;
  sender_.begin(0);
  exports_.trim();
}

} // namespace whorl
