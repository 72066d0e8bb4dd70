#pragma once

#include <torch/version.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bindings/torch/src/communicator.h"
#include "bindings/torch/src/device_run.h"
#include "bindings/torch/src/executor.h"
#include "bindings/torch/src/lifetime.h"
#include "bindings/torch/src/types.h"

namespace whorl_torch {

inline constexpr const char* kBackendName = "whorl";

/// Backend "whorl" of torch.distributed. Collectives of a group run in the order of issue;
/// different groups run concurrently. An operation that is not asynchronous is carried out by the
/// calling thread. On tensors of a device, to carry an operation out is to queue it there, in
/// streams of the group (see DeviceRun).
class ProcessGroupWhorl final : public c10d::Backend {
 public:
  struct Options : c10d::Backend::Options {
    explicit Options(std::chrono::milliseconds timeout = kBackendDefaultTimeout)
        : c10d::Backend::Options(kBackendName, timeout) {}
    std::string name; ///< name of the group in messages
    /// Whether the ranks meet when the group is made, so that an absent rank is an error there, and
    /// exchange what they need to meet again. Otherwise they meet through the store, which must
    /// exist as long, at the first use of the group and of each pair. The same on all ranks.
    bool eager = true;
  };
  using WorkResult = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;

  /// Waits for the other ranks if the options say so; fails where the process of one has ended, by
  /// what the group `world` knows of the ranks (null: there is no such group). The first operations
  /// that need further communicators create these.
  ProcessGroupWhorl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                    c10::intrusive_ptr<Options> options,
                    const c10::intrusive_ptr<ProcessGroupWhorl>& world);
  ~ProcessGroupWhorl() override;

  const std::string getBackendName() const override { return kBackendName; }
  const c10::intrusive_ptr<Options>& options() const { return options_; }

  WorkResult broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkResult allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkResult allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkResult allreduce_coalesced(Tensors& tensors,
                                 const c10d::AllreduceCoalescedOptions& options) override;
  WorkResult reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkResult allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                       const c10d::AllgatherOptions& options) override;
  WorkResult _allgather_base(at::Tensor& output, at::Tensor& input,
                             const c10d::AllgatherOptions& options) override;
  WorkResult allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                 const c10d::AllgatherOptions& options) override;
  WorkResult allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                             const c10d::AllgatherOptions& options) override;
  WorkResult gather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::GatherOptions& options) override;
  WorkResult scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                     const c10d::ScatterOptions& options) override;
  WorkResult reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                            const c10d::ReduceScatterOptions& options) override;
  WorkResult _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                  const c10d::ReduceScatterOptions& options) override;
  WorkResult reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                             const c10d::ReduceScatterOptions& options) override;
  WorkResult alltoall_base(at::Tensor& output, at::Tensor& input,
                           std::vector<std::int64_t>& output_sizes,
                           std::vector<std::int64_t>& input_sizes,
                           const c10d::AllToAllOptions& options) override;
  WorkResult alltoall(Tensors& outputs, Tensors& inputs,
                      const c10d::AllToAllOptions& options) override;
  WorkResult barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;
  WorkResult send(Tensors& tensors, int destination, int tag) override;
  WorkResult recv(Tensors& tensors, int source, int tag) override;
  WorkResult recvAnysource(Tensors& tensors, int tag) override;

  /// Begins a list of operations, and drops one that was never ended because of an exception.
  void startCoalescing() override {
    coalescing_ = true;
    coalesced_.clear();
  }
  WorkResult endCoalescing() override;
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override { return sequence_.load(); }

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 8)
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override { return options_; }
  bool supportsSplitting() const override { return true; }
  /// Makes a group of `ranks`, ranks of this group. Collective over this group; returns null on the
  /// other ranks.
  c10::intrusive_ptr<c10d::Backend> split(
      const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
      const c10::intrusive_ptr<c10d::Backend::Options>& options) override;
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 13)
  bool supportsShrinking() const override { return true; }
  /// Makes a group of the ranks that remain, which alone call this. With SHRINK_ABORT (1) the group
  /// may have failed, and all that is under way in it ends first.
  c10::intrusive_ptr<c10d::Backend> shrink(
      const std::vector<std::int64_t>& ranks_to_exclude, int shrink_flags,
      const c10::intrusive_ptr<c10d::Backend::Options>& options) override;
#endif
  void setTimeout(std::chrono::milliseconds timeout) override { set_timeout(timeout); }
  c10d::ErrorType getError() override;
  void abort() override { abort_group(); }
  void shutdown() override { resources_->shut_down(deadline_in(kShutdownGrace)); }
#endif
  void set_timeout(std::chrono::milliseconds timeout);
  void abort_group();

 private:
  using Timeout = std::optional<std::chrono::milliseconds>;

  ProcessGroupWhorl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                    c10::intrusive_ptr<Options> options, whorlComm_t comm,
                    const ProcessGroupWhorl* world = nullptr);
  using MakeChild =
      std::function<whorlResult_t(whorlComm_t parent, whorlComm_t* out, whorlConfig_t* config)>;
  /// Returns the options of a group that is made out of this one.
  c10::intrusive_ptr<Options> child_options(
      const c10::intrusive_ptr<c10d::Backend::Options>& given) const;
  /// Makes the communicator of such a group, in the order of this group's operations.
  whorlComm_t make_child(const char* title, const Options& child, MakeChild make);
  /// Connects the ranks, which exchange what they need to meet again. Collective.
  void meet();
  /// Kind, title and timeout of an operation.
  struct Call {
    c10d::OpType type;
    const char* title;
    bool async = true;
    Timeout timeout;
  };
  template <class CallOptions>
  static Call describe(c10d::OpType type, const char* title, const CallOptions& options) {
    Call call{type, title, true, std::nullopt};
    if (options.timeout.count() > 0) call.timeout = options.timeout;
    if constexpr (requires { options.asyncOp; }) call.async = options.asyncOp;
    return call;
  }
  /// Queues an operation in the lane of the calling thread: callbacks have lanes of their own.
  /// `body` runs later, on any thread, and owns the tensors that it uses.
  WorkResult issue(const Call& call, Tensors outputs, Tensors inputs,
                   std::function<void(const Target&)> body);
  WorkPtr make_work(const Call& call, Tensors outputs, Tensors inputs, std::function<void()> body,
                    std::shared_ptr<DeviceRun> run);
  /// Returns the device part of an operation on these tensors; null if they are on the CPU.
  std::shared_ptr<DeviceRun> device_part(const char* title, const Tensors& outputs,
                                         const Tensors& inputs);
  WorkResult receive(Tensors& tensors, int source, int tag, c10d::OpType type, const char* title);
  std::size_t ranks() const { return static_cast<std::size_t>(size_); }
  std::size_t self() const { return static_cast<std::size_t>(rank_); }
  void check_root(std::int64_t root, const char* operation) const;

  c10::intrusive_ptr<Options> options_;
  c10::intrusive_ptr<c10d::Store> store_;
  Communicator::Place place_;
  std::shared_ptr<GroupResources> resources_;
  std::atomic<std::uint64_t> sequence_{0};
  std::uint64_t monitored_barriers_ = 0;
  bool coalescing_ = false;
  std::vector<WorkPtr> coalesced_;
  std::mutex devices_mutex_;
  std::vector<c10::Device> devices_; ///< devices of earlier tensors
};

} // namespace whorl_torch
