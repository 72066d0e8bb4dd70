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
#include "device/ipc/buffers.h"
#include "device/ipc/graph_replay.h"
#include "device/ipc/leader.h"
#include "device/ipc/schedule.h"
#include "device/ipc/shared_state.h"
#include "device/ipc/stream_sync.h"

namespace whorl {

/// One rank of a communicator whose ranks are on one host, in several processes. A call waits for
/// the calls of the other ranks, never for their streams or data:
///
///     call:  post ─▶ until all have posted ─▶ (map memory ─▶ until that is done) ─▶ queue
///
/// The way of an operation follows from the posts, which all ranks see alike:
///   - all ranks on one device: the kernel of the leader (device/ipc/leader.h);
///   - each rank on a device of its own: kernels that exchange messages (device/ipc/schedule.h);
///   - ranks that share a device through MPS, each in a process of its own: the same, if
///     WHORL_DEVICE_ALGO=schedule asks for it or a buffer has no handle for other processes;
///   - otherwise, or where a rank has its buffers on the host: the host. A rank that knows from the
///     devices of earlier operations that the host does this one waits for nobody.
/// On one device the leader answers whether it has mapped the buffers of all ranks; memory without
/// an IPC handle is handed over first (device/ipc/buffers.h). On devices of their own each rank
/// maps the regions of all others, once, and answers. If an answer is no, the host does the
/// operation, and the next one tries again, because a reason may be memory of a communicator that
/// another rank has yet to destroy; schedules are tried for kMaxRefusals operations at most.
class DevicePeers final : public DeviceGroup {
 public:
  /// Makes this rank's part of a group on `board`, the memory of Node::board(), and `fd_channel`,
  /// the channel of Node::fd_channel() or null. All arguments but `rules` outlive this object.
  DevicePeers(const Membership& members, std::span<std::byte> board, FdChannel* fd_channel,
              const DeviceWatch& watch, const DeviceRules& rules);
  ~DevicePeers() override {
    replays_.end();
    schedules_.wait();
    board_.leave(members_.rank);
  }

  Status check(int rank, const Request& request, Stream* stream) const override;
  std::uint64_t post(int rank, const Request& request, Stream* stream,
                     std::uint64_t timeout_ns) override;
  Progress advance(std::uint64_t timeout_ns) override;
  Result<Met> meet(int rank, std::uint64_t number, const WaitPolicy& policy,
                   const CommError& comm_error, Waiter& waiter) override;
  bool counts() const noexcept override { return true; }
  void count() noexcept override;
  void flush() override {
    if (!sync_.prepared()) return;
    sync_.flush();
    replays_.flush();
  }
  Status refusal() const override { return refusal_; }
  void stop() noexcept override { // also called by replays_ after the destruction of sync_
    board_.stop_words().set();
  }
  Status failure() override { return schedules_.failure(); }

 private:
  struct Operation {
    std::uint64_t number;
    Request request;
    bool on_device = false; ///< whether kernels of this rank reach its buffers
    CUstream stream = nullptr;
    std::uint64_t stream_id = 0; ///< Stream::id()
    DevicePost post{};
    std::vector<BlockPlace> places; ///< places of blocks, where they may differ in size
    Capture capture;                ///< capture of the stream
    enum class State { kNew, kPosted, kOffered, kMapping, kAnswered } state = State::kNew;
    DevicePath path = DevicePath::kHost; ///< the path, once decided
  };
  struct Outcome {
    std::uint64_t number;
    Met met;
    Status error; ///< error of the communicator, or of the call if the call is refused
  };

  bool prepare(CUcontext context);
  void describe_call(Operation& operation, CUcontext context) const;
  bool describe_buffers(Operation& operation, CUcontext context);
  Progress attempt(Operation& operation, std::uint64_t timeout_ns);
  Progress decide(Operation& operation, std::uint64_t timeout_ns);
  DevicePath path_of(const Operation& operation);
  bool is_uneven() const noexcept;
  Status check_blocks(const Operation& operation) const;
  void learn_devices();
  bool left_to_host(const Request& request) const noexcept;
  Progress offer(Operation& operation);
  Progress look_at_offers(Operation& operation);
  Progress lead(Operation& operation, std::uint64_t timeout_ns);
  Progress follow(Operation& operation, std::uint64_t timeout_ns);
  Progress answer(Operation& operation, const Status& mapped);
  Progress look_at_answers(Operation& operation, std::uint64_t timeout_ns);
  Progress conclude(const Operation& operation, bool mapped, std::uint64_t timeout_ns);
  bool may_be_captured(const Request& request, CUcontext context) const;
  void describe_capture(Operation& operation);
  std::string why_not_captured(const Operation& operation) const;
  Status refuse_captured(const Operation& operation, const std::string& why) const;
  Progress leave_to_host(const Operation& operation, const std::string& why);
  Progress queue(const Operation& operation, std::uint64_t timeout_ns);
  Progress end(const Operation& operation, bool carried_out, Status error = {});
  Status check_alike(const Operation& operation) const;
  Status too_late(const Operation& operation, std::uint64_t timeout_ns) const;
  bool has_come(const Operation& operation, int rank) const;

  const Membership& members_;
  SharedState board_;
  FdChannel* fd_channel_;
  const DeviceWatch& watch_;
  std::vector<std::string> names_;
  DeviceBuffers buffers_;
  CUcontext context_ = nullptr; ///< context of the first operation, and so of all operations
  std::array<std::byte, 16> device_{};
  bool together_ = false; ///< whether kernels of several processes run on the device together
  std::unique_ptr<DeviceLeader> leader_; ///< null on other ranks, and before prepare()
  DevicePeerSchedules schedules_;
  DeviceReplays replays_;
  StreamSync sync_;       ///< destroyed first, which waits for all kernels but those of graphs
  bool prepared_ = false; ///< whether prepare() has run, with or without success
  static constexpr int kMaxRefusals = 8;
  int refusals_ = 0;    ///< number of operations whose regions some rank could not map
  bool warned_ = false; ///< whether the log has why memory could not be mapped
  /// Facts about the devices that are the same for all operations, learned from posts.
  DeviceFacts facts_{.schedules = true};
  bool devices_known_ = false;         ///< facts_.layout and facts_.algo are those of all ranks
  bool schedules_open_ = false;        ///< whether the FIFOs of all ranks are mapped
  std::vector<DeviceOffer> offers_;    ///< [rank]
  DeviceAlgo algo_ = DeviceAlgo::kAny; ///< value of WHORL_DEVICE_ALGO on this rank
  Status algo_error_;
  std::uint64_t posted_ = 0;         ///< number of operations so far
  std::deque<Operation> operations_; ///< operations without an outcome; the first is in progress
  std::deque<Outcome> outcomes_;     ///< outcomes that meet() has not fetched
  Status refusal_;                   ///< the last refusal
  std::vector<DevicePost> posts_;    ///< [rank] of the operation in progress
};

} // namespace whorl
