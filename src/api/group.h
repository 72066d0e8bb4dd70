#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "api/handle.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "engine/request.h"
#include "engine/stream.h"

namespace whorl {

/// One checked call.
struct Call {
  whorlComm* handle = nullptr;
  Request request;
  std::shared_ptr<Stream> stream; ///< null for a call that is complete when it returns
};

/// The group of the calling thread: calls collected between whorlGroupStart() and whorlGroupEnd().
class Group {
 public:
  static Group& current() noexcept;

  /// Whether the calling thread has a group open; cheaper than current().
  static bool open() noexcept { return depth_ > 0; }
  void start() noexcept { ++depth_; }
  /// Ends one level; the outermost one issues everything. If a collected call was in error nothing
  /// is issued and that error is returned.
  Status end();

  void add(Call call);
  /// A creation of a communicator. All of a group run at the same time, because they wait for each
  /// other; but those that use the same `parent` (null: none) one after the other.
  void add_job(const whorlComm* parent, std::function<Status()> job);
  /// Drops what was collected for a handle that is about to be freed, and spoils the group.
  void forget(const whorlComm& handle);
  /// Remembers the error of a call that could not be added.
  void spoil(const Status& error);
  /// The same where there is no memory for a sentence.
  void spoil_without_memory() noexcept { out_of_memory_ = true; }

 private:
  // A word of static TLS, which is read without a call; that much is also left for libraries that
  // are loaded later.
  [[gnu::tls_model("initial-exec")]] static constinit thread_local int depth_;
  std::vector<Call> calls_;
  struct Job {
    const whorlComm* parent;
    std::function<Status()> run;
  };
  void run_jobs(std::vector<Job> jobs, Status& pending, Status& error);

  std::vector<Job> jobs_;
  Status error_;
  bool out_of_memory_ = false;
};

/// Issues calls together: those of one communicator form a batch, different communicators run at
/// the same time. Returns when the batches without a stream are complete. Each error is also kept
/// in the handle it belongs to.
Status issue(std::span<const Call> calls);

} // namespace whorl
