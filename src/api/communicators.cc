// Creating and ending communicators.
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include "api/create.h"
#include "api/group.h"
#include "api/support.h"
#include "bootstrap/meeting_point.h"
#include "bootstrap/root.h"
#include "device/join.h"
#include "device/staged/stream.h"

using namespace whorl;       // NOLINT: this file is the bridge between the two worlds
using namespace whorl::capi; // NOLINT

namespace {

/// Checks the arguments that all functions have which make a communicator.
Status check_ranks(const void* out, int nranks, int rank) {
  WHORL_TRY(check_out(out, "comm"));
  constexpr int kMaxRanks = 32768;
  if (nranks < 1 || nranks > kMaxRanks) {
    return invalid(fmt::format("nranks is {}; it must be from 1 to {}", nranks, kMaxRanks));
  }
  if (rank < 0 || rank >= nranks) {
    return invalid(fmt::format("rank is {}; it must be from 0 to {}", rank, nranks - 1));
  }
  return {};
}

/// Tells the ranks that `gather` brings together why this one does not come.
void tell_others(const Gather& gather, std::uint64_t timeout_ns, const Status& why) {
  CommError reason;
  reason.set(why);
  static_cast<void>(gather(timeout_ns, reason));
}

/// Creates a communicator of the ranks that `gather` brings together, at once or as part of the
/// open group. A rank with wrong arguments or options only tells the others so; it has less time
/// for that where the call ought to return at once, and none in a callback. `parent`: see create().
Status create_or_collect(const char* function, whorlComm_t* out, whorlConfig_t* config,
                         const Status& arguments, Gather gather, whorlComm* parent = nullptr) {
  const bool wait = blocking(config);
  const bool now = !Group::current().open();
  if (wait && now) WHORL_TRY(check_may_wait(function));
  mark_used();
  if (out != nullptr) *out = nullptr;
  const auto options = arguments.ok() ? make_options(config) : Result<Options>(arguments);
  if (!options.ok()) {
    if (check_may_wait(function).ok()) {
      tell_others(gather, wait && now ? kTellRefusedNs : kTellNs, options.status());
    }
    return options.status().with_context(function);
  }
  auto job = [=, options = *options, gather = std::move(gather)](const Status& refused) -> Status {
    if (!refused.ok()) {
      tell_others(gather, kTellNs, refused);
      return refused;
    }
    const Status status = create(out, options, wait, gather, parent);
    if (!status.ok() && !wait && check_may_wait(function).ok()) {
      tell_others(gather, kTellNs, status); // it has no thread
    }
    if (!status.ok()) return status.with_context(function);
    if (!wait) {
      return Status::error(Code::kInProgress,
                           "the communicator is being created; poll whorlCommGetAsyncError");
    }
    return {};
  };
  if (now) return job({});
  Group::current().add_job(nullptr, std::move(job));
  return {};
}

/// Creates a communicator whose rank and number of ranks are known beforehand.
Status create_or_collect(const char* function, whorlComm_t* out, whorlConfig_t* config, int nranks,
                         int rank, std::function<Result<Rendezvous>(const Attendant&)> meet,
                         const Status& arguments = {}, whorlComm* parent = nullptr) {
  return create_or_collect(
      function, out, config, arguments.ok() ? check_ranks(out, nranks, rank) : arguments,
      [nranks, rank, meet = std::move(meet)](std::uint64_t timeout_ns,
                                             const CommError& comm_error) -> Result<Gathering> {
        auto met = meet(
            {.rank = rank, .nranks = nranks, .timeout_ns = timeout_ns, .comm_error = &comm_error});
        if (!met.ok()) return met.status();
        return Gathering{
            .oob = std::move(met->oob), .identity = met->identity, .rank = rank, .nranks = nranks};
      },
      parent);
}

Status write_id(const char* function, const Result<UniqueId>& id, whorlUniqueId* out) {
  if (!id.ok()) return id.status().with_context(function);
  const auto bytes = id->encode();
  if (!bytes.ok()) return bytes.status().with_context(function);
  static_assert(sizeof *out == UniqueId::kBytes);
  std::memcpy(out, bytes->data(), bytes->size());
  return {};
}

/// Waits until no other thread is inside a call on the handle.
void wait_until_empty(const whorlComm& handle) {
  ClockWaiter waiter;
  const CommError never_set;
  const WaitPolicy policy{.timeout_ns = UINT64_MAX, .spins = 100};
  static_cast<void>(
      wait_until([&] { return handle.inside.load() == 0 ? Progress::kDone : Progress::kIdle; },
                 policy, never_set, waiter));
}

/// Begins the end of a handle: afterwards other calls refuse the handle, this thread's group has no
/// calls on it, and its creation has ended; a creation out of the communicator, in another thread,
/// is about to end.
Status retire(const char* function, whorlComm* handle) {
  WHORL_TRY(check_handle(function, handle));
  const Status ended = // before the handle is dead, because there may be no memory for it
      Status::error(Code::kInvalidUsage, std::string(function) + " has ended the creation");
  if (handle->magic.exchange(whorlComm::kDead) != whorlComm::kAlive) {
    return invalid(function, "comm is being destroyed by another thread");
  }
  Group::current().forget(*handle);
  if (handle->created.load(std::memory_order_acquire) == Code::kInProgress) {
    handle->comm_error->set(ended);
  }
  handle->stop_making(ended);
  if (handle->creator.joinable()) handle->creator.join();
  return {};
}

} // namespace

namespace whorl::capi {

Status init_rank(const char* function, whorlComm_t* comm, int nranks, const whorlUniqueId& bytes,
                 int rank, whorlConfig_t* config, const Status& arguments, whorlComm* parent) {
  const auto id = UniqueId::decode(std::as_bytes(std::span(bytes.internal)));
  if (!id.ok()) { // this rank does not know where to tell the others
    WHORL_TRY(arguments.with_context(function));
    WHORL_TRY(check_ranks(comm, nranks, rank).with_context(function));
    return id.status().with_context(function);
  }
  // A parent that fails ends the wait for ranks that join; it may be gone if the call does not
  // wait.
  whorlComm* const followed = arguments.ok() && blocking(config) ? parent : nullptr;
  return create_or_collect(
      function, comm, config, nranks, rank,
      [id = *id, followed](Attendant self) {
        if (followed == nullptr) return meet_by_id(id, self);
        self.check = [=] { return followed->communicator->state(); };
        auto met = meet_by_id(id, self);
        if (met.ok() || self.excused()) return met;
        // Perhaps no rank of the parent has reached the root: then nobody else tells those that
        // join.
        if (const Status ended = self.check(); !ended.ok()) {
          CommError reason;
          reason.set(ended);
          self.comm_error = &reason;
          self.timeout_ns = kTellNs;
          static_cast<void>(meet_by_id(id, self));
        }
        return met;
      },
      arguments, parent);
}

Status make_id(const char* function, whorlUniqueId* out) {
  if (out == nullptr) return invalid(function, "uniqueId is NULL");
  // No mark_used(): the root is a thread that shares nothing with the rest of this process, so a
  // child that is forked now may be one of the ranks that meet at the root.
  return write_id(function, start_root(), out);
}

} // namespace whorl::capi

extern "C" {

whorlResult_t whorlGetUniqueId(whorlUniqueId* uniqueId) {
  constexpr const char* kName = "whorlGetUniqueId";
  return guarded(kName, [&] { return make_id(kName, uniqueId); });
}

whorlResult_t whorlGetMeetingPoint(whorlComm_t comm, whorlUniqueId* point) {
  return guarded("whorlGetMeetingPoint", [&]() -> Status {
    if (point == nullptr) return invalid("whorlGetMeetingPoint", "point is NULL");
    RootScope scope = RootScope::kAnywhere;
    if (comm != nullptr) {
      const Inside inside(comm);
      WHORL_TRY(check_created("whorlGetMeetingPoint", comm));
      if (comm->communicator->membership().on_one_host()) scope = RootScope::kThisHost;
    }
    return write_id("whorlGetMeetingPoint", make_meeting_point(scope), point);
  });
}

whorlResult_t whorlGetUniqueIdAt(const whorlUniqueId* point, const char* name,
                                 whorlUniqueId* uniqueId) {
  constexpr const char* kName = "whorlGetUniqueIdAt";
  return guarded(kName, [&]() -> Status {
    if (point == nullptr) return invalid(kName, "point is NULL");
    if (name == nullptr) return invalid(kName, "name is NULL");
    if (uniqueId == nullptr) return invalid(kName, "uniqueId is NULL");
    const auto decoded = UniqueId::decode(std::as_bytes(std::span(point->internal)));
    if (!decoded.ok()) return decoded.status().with_context(kName);
    return write_id(kName, derive_id(*decoded, name), uniqueId);
  });
}

whorlResult_t whorlCommInitRank(whorlComm_t* comm, int nranks, whorlUniqueId commId, int rank) {
  constexpr const char* kName = "whorlCommInitRank";
  return collectable(kName, [&] { return init_rank(kName, comm, nranks, commId, rank, nullptr); });
}

whorlResult_t whorlCommInitRankConfig(whorlComm_t* comm, int nranks, whorlUniqueId commId, int rank,
                                      whorlConfig_t* config) {
  constexpr const char* kName = "whorlCommInitRankConfig";
  return collectable(kName, [&] { return init_rank(kName, comm, nranks, commId, rank, config); });
}

whorlResult_t whorlCommInitAddress(whorlComm_t* comm, int nranks, const char* hostPort, int rank,
                                   whorlConfig_t* config) {
  constexpr const char* kName = "whorlCommInitAddress";
  return collectable(kName, [&]() -> Status {
    if (hostPort == nullptr) return invalid(kName, "hostPort is NULL; pass \"host:port\"");
    return create_or_collect(kName, comm, config, nranks, rank,
                             [address = std::string(hostPort)](const Attendant& self) {
                               return meet_by_address(address, self);
                             });
  });
}

whorlResult_t whorlCommInitStore(whorlComm_t* comm, int nranks, const whorlStore_t* store, int rank,
                                 whorlConfig_t* config) {
  constexpr const char* kName = "whorlCommInitStore";
  return collectable(kName, [&]() -> Status {
    if (store == nullptr || store->set == nullptr || store->get == nullptr) {
      return invalid(kName, "store, or one of its functions, is NULL");
    }
    const Store functions{.context = store->context,
                          .prefix = store->prefix != nullptr ? store->prefix : "",
                          .set = store->set,
                          .get = store->get};
    return create_or_collect(kName, comm, config, nranks, rank, [functions](const Attendant& self) {
      return meet_by_store(functions, self);
    });
  });
}

whorlResult_t whorlCommInitOob(whorlComm_t* comm, int nranks, const whorlOob_t* oob, int rank,
                               whorlConfig_t* config) {
  constexpr const char* kName = "whorlCommInitOob";
  return collectable(kName, [&]() -> Status {
    if (oob == nullptr || oob->allgather == nullptr) {
      return invalid(kName, "oob, or its function, is NULL");
    }
    const Allgather function{.context = oob->context, .allgather = oob->allgather};
    return create_or_collect(kName, comm, config, nranks, rank, [function](const Attendant& self) {
      return meet_by_allgather(function, self);
    });
  });
}

whorlResult_t whorlCommInitEnv(whorlComm_t* comm, whorlConfig_t* config) {
  constexpr const char* kName = "whorlCommInitEnv";
  return collectable(kName, [&]() -> Status {
    return create_or_collect(kName, comm, config, check_out(comm, "comm"), meet_by_launcher);
  });
}

whorlResult_t whorlCommInitAll(whorlComm_t* comms, int ndev, const int* devlist) {
  return guarded("whorlCommInitAll", [&]() -> Status {
    WHORL_TRY(check_may_wait("whorlCommInitAll"));
    WHORL_TRY(check_ranks(comms, ndev, 0).with_context("whorlCommInitAll"));
    mark_used();
    const auto options = make_options(nullptr);
    if (!options.ok()) return options.status();
    prepare_device(ndev); // ranks are made by threads, which have no context
    std::vector<Options> of_rank(static_cast<std::size_t>(ndev), *options);
    for (int rank = 0; rank < ndev && devices_possible(); ++rank) {
      of_rank[static_cast<std::size_t>(rank)].device = devlist != nullptr ? devlist[rank] : rank;
    }
    return create_all(comms, of_rank).with_context("whorlCommInitAll");
  });
}

whorlResult_t whorlCommFinalize(whorlComm_t comm) {
  return guarded("whorlCommFinalize", comm, [&]() -> Status {
    WHORL_TRY(check_may_wait("whorlCommFinalize"));
    if (comm == nullptr) return {};
    WHORL_TRY(check_ready("whorlCommFinalize", comm));
    const Status status = comm->communicator->flush();
    comm->finalized = true;
    return status;
  });
}

whorlResult_t whorlCommDestroy(whorlComm_t comm) {
  return guarded("whorlCommDestroy", [&]() -> Status {
    WHORL_TRY(check_may_wait("whorlCommDestroy"));
    if (comm == nullptr) return {};
    WHORL_TRY(retire("whorlCommDestroy", comm));
    Status given_up;
    if (comm->communicator != nullptr) {
      Communicator& communicator = *comm->communicator;
      communicator.begin_destruction();
      if (!comm->finalized) static_cast<void>(communicator.drain()); // the streams have the errors
    }
    wait_until_empty(*comm); // a call of another thread may be given up, too
    if (comm->communicator != nullptr) given_up = comm->communicator->given_up();
    delete comm;
    return given_up.with_context("whorlCommDestroy");
  });
}

whorlResult_t whorlCommAbort(whorlComm_t comm) {
  return guarded("whorlCommAbort", [&]() -> Status {
    WHORL_TRY(check_may_wait("whorlCommAbort"));
    if (comm == nullptr) return {};
    WHORL_TRY(retire("whorlCommAbort", comm));
    if (comm->communicator != nullptr) {
      Communicator& communicator = *comm->communicator;
      if (comm->leaving) wait_until_empty(*comm); // for leave_all()
      communicator.abort(
          Status::error(Code::kRemoteError,
                        fmt::format("{} has called whorlCommAbort",
                                    communicator.membership().describe(communicator.rank()))));
      wait_until_empty(*comm);
      static_cast<void>(communicator.drain());
    }
    wait_until_empty(*comm);
    delete comm;
    return {};
  });
}

whorlResult_t whorlCommGetAsyncError(whorlComm_t comm, whorlResult_t* asyncError) {
  return guarded("whorlCommGetAsyncError", comm, [&]() -> Status {
    WHORL_TRY(check_handle("whorlCommGetAsyncError", comm));
    if (asyncError == nullptr) return invalid("whorlCommGetAsyncError", "asyncError is NULL");
    const Code created = comm->created.load(std::memory_order_acquire);
    const Code code = created == Code::kOk ? comm->communicator->state().code() : created;
    *asyncError = static_cast<whorlResult_t>(code);
    return {};
  });
}

whorlResult_t whorlCommCount(const whorlComm_t comm, int* count) {
  return guarded("whorlCommCount", comm, [&]() -> Status {
    WHORL_TRY(check_created("whorlCommCount", comm));
    if (count == nullptr) return invalid("whorlCommCount", "count is NULL");
    *count = comm->communicator->nranks();
    return {};
  });
}

whorlResult_t whorlCommSetTimeout(whorlComm_t comm, int ms) {
  return guarded("whorlCommSetTimeout", comm, [&]() -> Status {
    WHORL_TRY(check_ready("whorlCommSetTimeout", comm));
    if (ms <= 0) {
      return invalid("whorlCommSetTimeout",
                     fmt::format("ms is {}; it must be at least 1 millisecond", ms));
    }
    comm->communicator->set_timeout(static_cast<std::uint64_t>(ms) * 1'000'000);
    return {};
  });
}

whorlResult_t whorlCommCuDevice(const whorlComm_t comm, int* device) {
  return guarded("whorlCommCuDevice", comm, [&]() -> Status {
    WHORL_TRY(check_created("whorlCommCuDevice", comm));
    if (device == nullptr) return invalid("whorlCommCuDevice", "device is NULL");
    *device = comm->communicator->options().device;
    return {};
  });
}

whorlResult_t whorlCommUserRank(const whorlComm_t comm, int* rank) {
  return guarded("whorlCommUserRank", comm, [&]() -> Status {
    WHORL_TRY(check_created("whorlCommUserRank", comm));
    if (rank == nullptr) return invalid("whorlCommUserRank", "rank is NULL");
    *rank = comm->communicator->rank();
    return {};
  });
}

whorlResult_t whorlCommDescribe(const whorlComm_t comm, char* text, size_t size) {
  return guarded("whorlCommDescribe", comm, [&]() -> Status {
    WHORL_TRY(check_created("whorlCommDescribe", comm));
    if (text == nullptr || size == 0)
      return invalid("whorlCommDescribe", "there is no room for text");
    const std::string line = comm->communicator->describe();
    const std::size_t length = std::min(line.size(), size - 1);
    line.copy(text, length);
    text[length] = '\0';
    return {};
  });
}

whorlResult_t whorlCommGetTransport(const whorlComm_t comm, int peer, const char** name) {
  return guarded("whorlCommGetTransport", comm, [&]() -> Status {
    WHORL_TRY(check_created("whorlCommGetTransport", comm));
    if (name == nullptr) return invalid("whorlCommGetTransport", "name is NULL");
    const int nranks = comm->communicator->membership().nranks;
    if (peer < 0 || peer >= nranks) {
      return invalid("whorlCommGetTransport",
                     fmt::format("peer {} is not one of {} ranks", peer, nranks));
    }
    *name = comm->communicator->transport_name(peer).data();
    return {};
  });
}

} // extern "C"
