#include "bindings/torch/src/communicator.h"

#include <algorithm>
#include <climits>

#include "bindings/torch/src/deadline.h"
#include "bindings/torch/src/errors.h"
#include "bindings/torch/src/signals.h"
#include "bindings/torch/src/store.h"

namespace whorl_torch {
namespace {

using Clock = std::chrono::steady_clock;
// Interval in which a creation looks whether its ranks are still there, and the time that the
// creation has to end after a rank has ended, which may have completed both it and all its work.
constexpr std::chrono::milliseconds kCheckInterval{100}, kEndGrace{2000};

int clamp_ms(std::int64_t ms) { return static_cast<int>(std::clamp<std::int64_t>(ms, 1, INT_MAX)); }

} // namespace

Communicator::Communicator(Place place)
    : place_(std::move(place)), timeout_ms_(place_.timeout.count()) {}

Communicator::Communicator(Place place, whorlComm_t comm) : Communicator(std::move(place)) {
  comm_ = comm;
}

Communicator::~Communicator() { destroy(); }

whorlComm_t Communicator::get(std::optional<std::chrono::milliseconds> timeout) {
  if (!creation_error_.empty()) fail<c10::DistBackendError>(creation_error_);
  if (interrupted_.load()) {
    fail<c10::DistBackendError>("whorl rank ", place_.rank, ": ", place_.name,
                                " has been aborted or shut down");
  }
  const std::int64_t ms = timeout ? timeout->count() : timeout_ms_.load();
  if (comm_ == nullptr) create(ms);
  if (ms != timeout_in_force_ms_) {
    check(whorlCommSetTimeout(comm_, clamp_ms(ms)), comm_);
    timeout_in_force_ms_ = ms;
  }
  return comm_;
}

void Communicator::create(std::int64_t timeout_ms) {
  StoreAdapter adapter(place_.store, interrupted_);
  const whorlStore_t store = adapter.callbacks(place_.prefix);
  whorlConfig_t config = WHORL_CONFIG_INITIALIZER;
  config.timeoutMs = clamp_ms(timeout_ms);
  config.commName = place_.name.c_str();
  config.blocking = 0; // so that it ends soon when interrupted, though other ranks do not come
  whorlComm_t comm = nullptr;
  const whorlUniqueId* const point =
      place_.processes ? place_.processes->meeting_point(place_.host) : nullptr;
  whorlResult_t result = whorlSuccess;
  if (point != nullptr) {
    whorlUniqueId id;
    check(whorlGetUniqueIdAt(point, place_.name.c_str(), &id));
    result = whorlCommInitRankConfig(&comm, place_.size, id, place_.rank, &config);
  } else {
    result = whorlCommInitStore(&comm, place_.size, &store, place_.rank, &config);
  }
  std::string end; // why the ranks cannot meet, as this rank saw it first
  if (result == whorlInProgress || comm != nullptr) {
    result = wait_for_creation(comm, point == nullptr, end);
  }
  // The host of the meeting point may have ended, or another rank may have given up (by
  // whorlCommAbort(), which is heard as invalid usage) because of one that has ended.
  if (comm != nullptr &&
      (result == whorlInvalidUsage || (point != nullptr && result != whorlSuccess))) {
    if (end.empty()) end = meeting_failure(false);
    if (!end.empty()) {
      abandon<c10::DistNetworkError>(comm, c10::str(end, "; ", whorlGetLastError(comm)));
    }
  }
  if (result != whorlSuccess) {
    std::string why = adapter.error().empty() ? std::string() : "; " + adapter.error();
    if (result == whorlRemoteError && !place_.ranks.empty()) { // a channel
      why += "; the two meet when one has issued its first send and the other the first receive";
    }
    creation_error_ = c10::str("whorl: ", place_.name, ": ", whorlGetLastError(comm), why);
    if (comm != nullptr) whorlCommAbort(comm);
    if (result == whorlRemoteError) fail<c10::DistNetworkError>(creation_error_);
    fail<c10::DistBackendError>(creation_error_);
  }
  timeout_in_force_ms_ = config.timeoutMs;
  const std::lock_guard lock(mutex_);
  if (interrupted_.load()) {
    whorlCommAbort(comm);
    fail<c10::DistBackendError>("whorl rank ", place_.rank, ": ", place_.name,
                                " was aborted while it was being created");
  }
  comm_ = comm;
}

template <class Error>
void Communicator::abandon(whorlComm_t comm, const std::string& why) {
  creation_error_ = c10::str("whorl: ", place_.name, ": ", why);
  interrupted_.store(true); // ends a wait for the store, and whorlCommAbort() waits for that
  whorlCommAbort(comm);
  fail<Error>(creation_error_);
}

whorlResult_t Communicator::wait_for_creation(whorlComm_t comm, bool by_store, std::string& end) {
  Clock::time_point next_check = Clock::now() + kCheckInterval;
  std::optional<Clock::time_point> give_up_at;
  for (Backoff backoff;; backoff.sleep()) {
    whorlResult_t state = whorlInProgress;
    whorlCommGetAsyncError(comm, &state);
    if (state != whorlInProgress) return state;
    if (interrupted_.load())
      abandon<c10::DistBackendError>(comm, "it was aborted while it was being created");
    if (const auto now = Clock::now(); now >= next_check) {
      next_check = now + kCheckInterval;
      if (interrupted()) {
        abandon<c10::DistBackendError>(
            comm, "the program was interrupted while it waited for the other ranks");
      }
      if (give_up_at && now < *give_up_at) continue;
      std::string why = meeting_failure(by_store);
      if (why.empty()) {
        give_up_at.reset();
        end.clear();
      } else if (give_up_at) {
        abandon<c10::DistNetworkError>(comm, end);
      } else {
        end = std::move(why);
        give_up_at = now + kEndGrace;
      }
    }
  }
}

std::string Communicator::meeting_failure(bool by_store) const {
  if (const int ended = rank_that_has_ended(); ended >= 0) {
    return c10::str("rank ", ended,
                    " of the group has ended; look for the end of that process in its own output");
  }
  if (!by_store) return {};
  try {
    static_cast<void>(place_.store->check({place_.prefix}));
    return {};
  } catch (const std::exception& error) {
    return c10::str("the store by which the ranks meet has ended: ", sentence_of(error));
  }
}

int Communicator::rank_that_has_ended() const {
  if (place_.processes == nullptr) return -1;
  if (place_.ranks.empty()) {
    for (int rank = 0; rank < place_.size; ++rank) {
      if (place_.processes->has_ended(rank)) return rank;
    }
  }
  for (const int rank : place_.ranks) {
    if (place_.processes->has_ended(rank)) return rank;
  }
  return -1;
}

void Communicator::interrupt() {
  const std::lock_guard ending(ending_);
  whorlComm_t comm = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (interrupted_.load()) return;
    failure_ = query_failure();
    if (!failure_) {
      failure_ = backend_error("whorl rank ", place_.rank, ": ", place_.name,
                               " has been aborted or shut down");
    }
    interrupted_.store(true);
    comm = comm_;
  }
  // The abort waits for streams of the device, so without the mutex: a thread that asks for the
  // state meanwhile may hold the lock of the interpreter. The handle stays in comm_ for a call that
  // is just being made: whorl knows that the communicator is gone.
  if (comm != nullptr) whorlCommAbort(comm);
}

void Communicator::revoke() {
  const std::lock_guard ending(ending_);
  const std::lock_guard lock(mutex_);
  if (!interrupted_.load() && comm_ != nullptr) whorlCommRevoke(comm_, WHORL_REVOKE_DEFAULT);
}

void Communicator::destroy() {
  const std::lock_guard ending(ending_);
  whorlComm_t comm = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (interrupted_.load() || comm_ == nullptr) {
      interrupted_.store(true);
      return;
    }
    failure_ = query_failure();
    interrupted_.store(true);
    comm = comm_;
  }
  // As with NCCL, what is under way is finished, however late another rank comes. With an error, as
  // of a rank that has died, nothing is waited for.
  whorlCommFinalize(comm);
  whorlCommDestroy(comm); // waits for streams of a device, as whorlCommAbort() does
}

void Communicator::set_timeout(std::chrono::milliseconds timeout) {
  timeout_ms_.store(timeout.count());
}

whorlResult_t Communicator::state() {
  const std::lock_guard lock(mutex_);
  if (interrupted_.load()) return whorlInvalidUsage;
  whorlResult_t state = whorlSuccess;
  if (comm_ != nullptr) whorlCommGetAsyncError(comm_, &state);
  return state;
}

std::exception_ptr Communicator::failure() {
  const std::lock_guard lock(mutex_);
  return interrupted_.load() ? failure_ : query_failure();
}

/// Asks the communicator for its error. With the mutex held, before interrupted_ is set.
std::exception_ptr Communicator::query_failure() {
  if (failure_ || comm_ == nullptr) return failure_;
  whorlResult_t state = whorlSuccess;
  whorlCommGetAsyncError(comm_, &state);
  if (state == whorlSuccess || state == whorlInProgress) return nullptr;
  return failure_ = error_of(comm_, state);
}

} // namespace whorl_torch
