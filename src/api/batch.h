#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "api/group.h"
#include "api/handle.h"
#include "base/status.h"
#include "base/wait.h"
#include "engine/request.h"
#include "engine/stream.h"

namespace whorl {

/// All calls of a group on one communicator.
struct Batch {
  whorlComm* handle = nullptr;
  std::vector<Request> requests;
  std::vector<std::shared_ptr<Stream>> stream_of; ///< of each request; may be null
  std::vector<std::shared_ptr<Stream>> streams;   ///< distinct, without null
  bool blocking = false;                          ///< a call had no stream

  void add(const Request& request, const std::shared_ptr<Stream>& stream);
  /// Takes a request out again.
  void drop(std::size_t index);
};

/// In the order in which the communicators are first used.
std::vector<Batch> sort_by_communicator(std::span<const Call> calls);

/// Keeps an error in the handle that it belongs to, and in `first` if that has none yet.
void keep(whorlComm& handle, const Status& status, Status& first);

/// Looks after the peers of several communicators while a thread waits for all of them.
class BatchNapper final : public Napper {
 public:
  /// Whose the engines are meanwhile: this thread's, or that of threads which may be at work.
  enum class Engines { kOwn, kOthers };
  /// `batches` outlive this.
  BatchNapper(std::span<Batch* const> batches, Engines engines)
      : batches_(batches), engines_(engines) {}
  void nap(std::uint64_t max_ns) noexcept override { clock_.nap(max_ns); }
  void look_around(std::uint64_t waited_ns) noexcept override;

 private:
  std::span<Batch* const> batches_;
  Engines engines_;
  ClockNapper clock_;
};

} // namespace whorl
