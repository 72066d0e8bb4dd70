#pragma once

#include <memory>
#include <vector>

#include "base/status.h"
#include "comm/communicator.h"
#include "engine/request.h"
#include "engine/stream.h"

namespace whorl {

/// Part of the library that carries out a request.
enum class Path {
  kDevice, ///< kernels that the ranks have put into their streams together
  kStream, ///< the communicator's task queue, when the streams of the batch have come to it
  kHost,   ///< the calling thread
  kNone,   ///< the request has been refused, or its communicator has failed
};

/// The requests of a group on one communicator.
struct Batch {
  Communicator* communicator = nullptr;
  std::vector<Request> requests;
  std::vector<std::shared_ptr<Stream>> stream_of; ///< streams by request; null: complete on return
  std::vector<Path> paths;                        ///< paths by request, chosen by submit()
  Status error; ///< last error of the communicator, set by submit()

  void add(const Request& request, std::shared_ptr<Stream> stream) {
    requests.push_back(request);
    stream_of.push_back(std::move(stream));
  }
};

} // namespace whorl
