#include "api/create.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/thread.h"
#include "comm/setup_round.h"
#include "comm/split.h"

namespace whorl {
namespace {

/// An Oob that counts the rounds made with it, successful or not. One that an exception has ended,
/// because there was no memory for the answers, has not been made.
class CountingOob final : public Oob {
 public:
  explicit CountingOob(Oob& oob) : oob_(oob) {}
  Status allgather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    Status status = oob_.allgather(mine, all);
    ++rounds_;
    return status;
  }
  Status give_up(const Status& why) override { return oob_.give_up(why); }
  Status check() override { return oob_.check(); }
  bool was_cut_off() const override { return oob_.was_cut_off(); }
  int rounds() const noexcept { return rounds_; }

 private:
  Oob& oob_;
  int rounds_ = 0;
};

/// Meets, connects, fills in the handle and writes the outcome there. Never throws: it may be the
/// whole of a thread.
Status fill(whorlComm& handle, const Options& options, const Gather& gather) noexcept {
  const Status status = without_exceptions([&]() -> Status {
    auto meeting = gather(options.timeout_ns, *handle.comm_error);
    if (!meeting.ok()) return meeting.status();
    const Status made = without_exceptions([&]() -> Status {
      auto setup = set_up(*meeting->oob, meeting->nranks, meeting->rank, meeting->identity, options,
                          handle.comm_error);
      if (!setup.ok()) return setup.status();
      handle.communicator = std::make_unique<Communicator>(*std::move(setup));
      return {};
    });
    if (made.ok()) return made;
    const Status agreed = meeting->oob->give_up(made);
    return agreed.ok() ? made : agreed;
  });
  if (!status.ok()) handle.set_error(status);
  // pairs with acquire in whorlCommGetAsyncError: the communicator is visible with the code
  handle.created.store(status.code(), std::memory_order_release);
  return status;
}

} // namespace

Status create(whorlComm_t* out, const Options& options, bool blocking, Gather gather,
              whorlComm* parent) {
  auto handle = std::make_unique<whorlComm>();
  if (blocking) {
    if (parent != nullptr) parent->begin_making(handle->comm_error);
    Status status = fill(*handle, options, gather);
    const Status stopped = parent != nullptr ? parent->end_making() : Status();
    if (status.ok() && !stopped.ok()) {
      handle->communicator->abort(stopped); // the other ranks may have the communicator
      status = stopped;
    }
    *out = status.ok() ? handle.release() : nullptr;
    return status;
  }
  auto thread =
      start_thread("whorl-create", [self = handle.get(), options, gather = std::move(gather)] {
        static_cast<void>(fill(*self, options, gather)); // the handle has the outcome
      });
  if (!thread.ok()) return thread.status();
  handle->creator = *std::move(thread);
  *out = handle.release();
  return {};
}

Status create_all(whorlComm_t* out, std::span<const Options> options) {
  const std::size_t count = options.size();
  auto meetings = meet_in_process(static_cast<int>(count), options[0].timeout_ns);
  if (!meetings.ok()) return meetings.status();
  std::vector<Status> outcomes(count);
  Threads threads(count);
  std::fill(out, out + count, nullptr);
  Status failed;
  for (std::size_t rank = 0; rank < count; ++rank) {
    Status started = threads.start("whorl-create", [&, rank] {
      outcomes[rank] = without_exceptions([&] {
        return create(out + rank, options[rank], true,
                      [&, rank](std::uint64_t, const CommError&) -> Result<Gathering> {
                        return std::move((*meetings)[rank]);
                      });
      });
      (*meetings)[rank].oob.reset(); // the others learn that this rank does not come
    });
    if (started.ok()) continue;
    outcomes[rank] = std::move(started);
    (*meetings)[rank].oob.reset();
  }
  threads.join();
  for (const Status& outcome : outcomes) { // the reason rather than what others made of it
    if (failed.ok() || failed.code() == Code::kRemoteError) {
      if (!outcome.ok()) failed = outcome;
    }
  }
  if (!failed.ok()) {
    for (std::size_t rank = 0; rank < count; ++rank) {
      delete out[rank];
      out[rank] = nullptr;
    }
  }
  return failed;
}

static_assert(kNoColor == WHORL_SPLIT_NOCOLOR);

Status create_split(whorlComm_t* out, whorlComm& parent, int color, int key,
                    const Result<Options>& given) {
  Communicator& communicator = *parent.communicator;
  const auto identity = communicator.derive_identity(color);
  auto meeting = meet_by_split(communicator, color, key);
  if (!meeting.ok()) return meeting.status();
  CountingOob oob(*meeting->oob);
  const bool probe = communicator.probed(); // all parts of a split have the same number of rounds
  std::unique_ptr<whorlComm> handle;
  Status status;
  if (color >= 0) {
    status = without_exceptions([&]() -> Status {
      if (!given.ok()) return given.status();
      if (!identity.ok()) return identity.status();
      Options options = *given;
      options.probe = probe;
      handle = std::make_unique<whorlComm>();
      auto setup =
          set_up(oob, meeting->nranks, meeting->rank, *identity, options, handle->comm_error);
      if (!setup.ok()) return setup.status();
      handle->communicator = std::make_unique<Communicator>(*std::move(setup));
      return {};
    });
  }
  if (!status.ok()) static_cast<void>(oob.give_up(status)); // others may be connecting
  Status agreed = attend_remaining_rounds(oob, meeting->nranks, oob.rounds(), probe, status);
  if (agreed.ok()) {
    // The last round: all ranks with this color have the new communicator, or none has.
    SetupReport<Nothing> last;
    last.set(status);
    agreed = exchange(oob, meeting->nranks, last).status();
  }
  if (status.ok()) status = agreed;
  if (status.ok()) {
    if (handle != nullptr) {
      handle->created.store(Code::kOk, std::memory_order_release);
      *out = handle.release();
    }
    return status;
  }
  // The reason is here, although others may have ended the parent because of it meanwhile.
  if (status.code() != Code::kRemoteError) return status;
  // A failure of the parent is the reason, and names ranks by the numbers of the parent.
  const Status of_parent = communicator.state();
  return of_parent.ok() ? status : of_parent;
}

} // namespace whorl
