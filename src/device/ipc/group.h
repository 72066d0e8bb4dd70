#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "device/common/group.h"
#include "device/common/path.h"
#include "device/ipc/graph_replay.h"
#include "device/ipc/schedule.h"
#include "device/ipc/shared_state.h"
#include "device/ipc/slices.h"
#include "device/ipc/stream_sync.h"

namespace whorl {

/// One rank of a communicator whose ranks are on one host, in several processes. A call waits for
/// the calls of the other ranks, never for their streams or data:
///
///     call:  post ─▶ until all have posted ─▶ (the first time: map memory ─▶ until all have) ─▶
///     queue
///
/// How an operation is done follows from the posts, which all ranks see alike:
///   - all on one device: by slices (device_slices.h);
///   - each on a device of its own: by schedules (device_peer_schedule.h);
///   - otherwise, or where a rank has its buffers on the host: by the host. A rank that knows so
///     from what the devices of earlier operations were waits for nobody.
/// Where a rank maps memory for the first time all say whether they could, and if not, the host
/// does this operation. Memory without an IPC handle is handed over before (device_mappings.h). The
/// next operation on that memory tries again, since what is in its way may be memory of a
/// communicator that another rank has yet to destroy, and slices unmap what was new; after
/// kMostRefusals of these the host does all operations.
class DevicePeers final : public DeviceGroup {
 public:
  /// `board` is that of Transport::board(), `mailbox` that of Transport::mailbox() or null. All
  /// arguments outlive this.
  DevicePeers(const Membership& members, std::span<std::byte> board, FdMailbox* mailbox,
              const DeviceWatch& watch, const DeviceRules& rules);
  ~DevicePeers() override {
    replays_.end();
    schedules_.wait();
  }

  Status check(int rank, const Request& request, Stream* stream) const override;
  std::uint64_t post(int rank, const Request& request, Stream* stream,
                     std::uint64_t timeout_ns) override;
  Progress advance(std::uint64_t timeout_ns) override;
  Result<Met> meet(int rank, std::uint64_t number, const WaitPolicy& policy, const Verdict& verdict,
                   Napper& napper) override;
  bool counts() const noexcept override { return true; }
  void count() noexcept override;
  void flush() override {
    if (!gates_.prepared()) return;
    gates_.flush();
    replays_.flush();
  }
  Status refusal() const override { return refusal_; }
  void stop() noexcept override { // also by replays_, when gates_ have gone
    board_.cancelled().store(1, std::memory_order_seq_cst);
  }
  Status failure() override { return schedules_.failure(); }

 private:
  /// Who carries out an operation.
  enum class By { kHost, kGates, kSlices, kSchedules };
  struct Operation {
    std::uint64_t number;
    Request request;
    bool on_device = false; ///< here
    CUstream stream = nullptr;
    const Stream* stream_id = nullptr;
    DevicePost post{};
    Capture capture; ///< of its stream
    enum class State { kNew, kPosted, kOffered, kMapping, kAnswered } state = State::kNew;
    By by = By::kHost; ///< once decided
  };
  struct Outcome {
    std::uint64_t number;
    Met met;
    Status error; ///< of the communicator; where it has refused, of the call
  };

  bool prepare(CUcontext context);
  void describe_call(Operation& operation, CUcontext context) const;
  bool describe_buffers(Operation& operation, CUcontext context);
  Progress attempt(Operation& operation, std::uint64_t timeout_ns);
  Progress decide(Operation& operation, std::uint64_t timeout_ns);
  By way_of(const Operation& operation);
  bool on_one_device() const;
  bool on_devices_of_their_own() const;
  Progress offer(Operation& operation);
  Progress look_at_offers(Operation& operation);
  Progress map(Operation& operation);
  Progress answer(Operation& operation, const Status& mapped);
  Progress look_at_answers(Operation& operation, std::uint64_t timeout_ns);
  void refuse(const Operation& operation);
  bool may_be_captured(const Request& request, CUcontext context) const;
  void describe_capture(Operation& operation);
  std::string why_not_captured(const Operation& operation) const;
  Status refuse_captured(const Operation& operation, const std::string& why) const;
  Progress leave_to_host(const Operation& operation, const std::string& why);
  Progress queue(const Operation& operation, std::uint64_t timeout_ns);
  Progress end(const Operation& operation, bool carried_out, Status error = {});
  Status check_alike(const Operation& operation) const;
  Status too_late(const Operation& operation, std::uint64_t timeout_ns) const;
  std::string missing(const Operation& operation) const;
  bool has_come(const Operation& operation, int rank) const;

  const Membership& members_;
  DeviceBoard board_;
  FdMailbox* mailbox_;
  const DeviceWatch& watch_;
  std::vector<std::string> names_;
  CUcontext context_ = nullptr; ///< of the first operation, and of all
  std::array<std::byte, 16> device_{};
  std::unique_ptr<DeviceSlices> slices_;
  DevicePeerSchedules schedules_;
  DeviceReplays replays_;
  DeviceGates gates_;     ///< its end is that of all kernels of these, but for graphs
  bool prepared_ = false; ///< or it has failed
  static constexpr int kMostRefusals = 8;
  int refusals_ = 0; ///< operations that a rank could not map the memory of; alike on all ranks
  bool usable_ = true;
  /// What the posts of an operation have shown of the devices, which stay the same.
  enum class Devices {
    kUnknown,
    kOne,   ///< of all ranks: slices
    kOpen,  ///< one for each rank, whose regions are mapped: schedules
    kApart, ///< otherwise: the host
  } devices_ = Devices::kUnknown;
  std::vector<DeviceOffer> offers_; ///< [rank]
  DeviceWay way_ = DeviceWay::kAny;
  Status way_error_;
  std::uint64_t posted_ = 0;         ///< operations so far
  std::deque<Operation> operations_; ///< that have no outcome yet; the first is at work
  std::deque<Outcome> outcomes_;     ///< that have not been fetched
  Status refusal_;                   ///< the last one
  std::vector<DevicePost> posts_;    ///< [rank] of the operation at work
};

} // namespace whorl
