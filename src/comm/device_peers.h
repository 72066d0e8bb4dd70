#pragma once

#include <cuda.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "comm/device_board.h"
#include "comm/device_gates.h"
#include "comm/device_group.h"
#include "gpu/peer_memory.h"

namespace whorl {

/// One rank of a communicator whose ranks are on one host, in several processes. Where all of them
/// are on one device, too, each maps the buffers of the others and does its slice of the work on
/// them, for all ranks:
///
///     call:    post ─▶ until all have posted ─▶ map what is new ─▶ queue
///     stream:  ready ─▶ until all are ─▶ kernel on a slice of all buffers ─▶ until all are done
///
/// So a call waits for the calls of the other ranks, never for their streams or data. Whether an
/// operation is done like that follows from the posts, which all ranks see alike; where a rank maps
/// memory for the first time all say whether they could, and if not, the host does this operation.
/// All unmap then what was new, so the next operation on that memory tries again; after
/// kMostRefusals of these the host does all operations.
class DevicePeers final : public DeviceGroup {
 public:
  /// `board` is that of Transport::board(). All arguments outlive this.
  DevicePeers(const Membership& members, std::span<std::byte> board, const DeviceWatch& watch);

  Status check(int rank, const Request& request, Stream* stream) const override;
  std::uint64_t post(int rank, const Request& request, Stream* stream,
                     std::uint64_t timeout_ns) override;
  Progress advance(std::uint64_t timeout_ns) override;
  Result<bool> meet(int rank, std::uint64_t number, const WaitPolicy& policy,
                    const Verdict& verdict, Napper& napper) override;
  bool counts() const noexcept override { return true; }
  void count() noexcept override;
  void flush() override {
    if (gates_.prepared()) gates_.flush();
  }

 private:
  struct Operation {
    std::uint64_t number;
    Request request;
    bool on_device = false; ///< here
    CUstream stream = nullptr;
    const Stream* stream_id = nullptr;
    DevicePost post{};
    enum class State { kNew, kPosted, kAnswered } state = State::kNew;
  };
  struct Outcome {
    std::uint64_t number;
    bool carried_out;
    Status error;
  };

  bool prepare(CUcontext context);
  bool describe_buffers(Operation& operation, CUcontext context);
  Progress attempt(Operation& operation, std::uint64_t timeout_ns);
  Progress decide(Operation& operation, std::uint64_t timeout_ns);
  Progress look_at_answers(Operation& operation, std::uint64_t timeout_ns);
  Progress end(const Operation& operation, bool carried_out, Status error = {});
  Status check_alike(const Operation& operation) const;
  bool together() const;
  Status map_all();
  Status open(int rank, const gpu::SharedMemory& memory, bool here);
  void close_retired(std::uint64_t last);
  void forget_new();
  Status queue(const Operation& operation, std::uint64_t timeout_ns);
  std::string missing(const Operation& operation) const;

  const Membership& members_;
  DeviceBoard board_;
  const DeviceWatch& watch_;
  std::vector<std::string> names_;
  CUcontext context_ = nullptr; ///< of the first operation, and of all
  std::array<std::byte, 16> device_{};
  gpu::MemoryExports exports_;
  std::unique_ptr<gpu::MemoryImports> imports_;
  DeviceGates gates_;     ///< its end is the end of all kernels that use imports_
  bool prepared_ = false; ///< or it has failed
  static constexpr int kMostRefusals = 8;
  int refusals_ = 0; ///< operations that a rank could not map the memory of; alike on all ranks
  bool usable_ = true;
  std::uint64_t posted_ = 0;         ///< operations so far
  std::deque<Operation> operations_; ///< that have no outcome yet; the first is at work
  std::deque<Outcome> outcomes_;     ///< that have not been fetched
  std::vector<DevicePost> posts_;    ///< [rank] of the operation at work
  struct NewMemory {
    int rank;
    gpu::SharedMemory memory;
  };
  std::vector<NewMemory> new_memory_; ///< of these posts, that no rank had mapped
  std::vector<Request> requests_;     ///< [rank] with the addresses here
};

} // namespace whorl
