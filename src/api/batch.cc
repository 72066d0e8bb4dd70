#include "api/batch.h"

#include <algorithm>
#include <utility>

namespace whorl {

void Batch::add(const Request& request, const std::shared_ptr<Stream>& stream) {
  requests.push_back(request);
  stream_of.push_back(stream);
  if (stream == nullptr) {
    blocking = true;
  } else if (std::find(streams.begin(), streams.end(), stream) == streams.end()) {
    streams.push_back(stream);
  }
}

void Batch::drop(std::size_t index) {
  const auto at = static_cast<std::ptrdiff_t>(index);
  requests.erase(requests.begin() + at);
  const std::shared_ptr<Stream> stream = std::move(stream_of[index]);
  stream_of.erase(stream_of.begin() + at);
  if (std::find(stream_of.begin(), stream_of.end(), stream) == stream_of.end()) {
    std::erase(streams, stream);
  }
}

std::vector<Batch> sort_by_communicator(std::span<const Call> calls) {
  std::vector<Batch> batches;
  for (const Call& call : calls) {
    auto batch = std::find_if(batches.begin(), batches.end(),
                              [&](const Batch& b) { return b.handle == call.handle; });
    if (batch == batches.end()) batch = batches.insert(batches.end(), Batch{.handle = call.handle});
    batch->add(call.request, call.stream);
  }
  return batches;
}

void keep(whorlComm& handle, const Status& status, Status& first) {
  if (status.ok()) return;
  handle.set_error(status);
  if (first.ok()) first = status;
}

void BatchNapper::look_around(std::uint64_t waited_ns) noexcept {
  for (Batch* const batch : batches_) {
    Communicator& communicator = *batch->handle->communicator;
    if (engines_ == Engines::kOwn) {
      communicator.napper().look_around(waited_ns); // says in the log what the engine waits for
    } else {
      static_cast<void>(communicator.state());
    }
  }
}

} // namespace whorl
