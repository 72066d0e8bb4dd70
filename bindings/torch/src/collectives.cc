// Collectives of single tensors. Each collective checks its tensors at once, so that a wrong
// argument is the caller's exception, and leaves a body to the queue.
#include "bindings/torch/src/errors.h"
#include "bindings/torch/src/process_group.h"
#include "bindings/torch/src/steps.h"
#include "bindings/torch/src/types.h"

namespace whorl_torch {

ProcessGroupWhorl::WorkResult ProcessGroupWhorl::broadcast(Tensors& tensors,
                                                           const c10d::BroadcastOptions& options) {
  const at::Tensor tensor = only(tensors, "broadcast");
  check_root(options.rootRank, "broadcast");
  return issue(describe(c10d::OpType::BROADCAST, "whorl:broadcast", options), tensors, tensors,
               [tensor, root = static_cast<int>(options.rootRank), rank = rank_](const Target& on) {
                 broadcast_one(tensor, root, rank == root, on);
               });
}

ProcessGroupWhorl::WorkResult ProcessGroupWhorl::allreduce(Tensors& tensors,
                                                           const c10d::AllreduceOptions& options) {
  if (tensors.size() == 1 && tensors[0].defined() && tensors[0].is_sparse()) {
    return allreduce_sparse(tensors, options);
  }
  const at::Tensor tensor = only(tensors, "all_reduce");
  const auto reduction =
      std::make_shared<Reduction>(options.reduceOp, tensor.scalar_type(), "all_reduce");
  return issue(describe(c10d::OpType::ALLREDUCE, "whorl:all_reduce", options), tensors, tensors,
               [tensor, reduction](const Target& on) { all_reduce(tensor, *reduction, on); });
}

ProcessGroupWhorl::WorkResult ProcessGroupWhorl::reduce(Tensors& tensors,
                                                        const c10d::ReduceOptions& options) {
  const at::Tensor tensor = only(tensors, "reduce");
  check_root(options.rootRank, "reduce");
  const auto reduction =
      std::make_shared<Reduction>(options.reduceOp, tensor.scalar_type(), "reduce");
  return issue(describe(c10d::OpType::REDUCE, "whorl:reduce", options), tensors, tensors,
               [tensor, reduction, root = static_cast<int>(options.rootRank),
                rank = rank_](const Target& on) {
                 const at::Tensor dense = dense_copy(tensor);
                 const Elements e = reduction->elements(dense);
                 check(whorlReduce(e.data, e.data, e.count, e.type, reduction->on(on.comm), root,
                                   on.comm, on.stream),
                       on.comm);
                 if (rank == root) copy_values(tensor, dense);
               });
}

ProcessGroupWhorl::WorkResult ProcessGroupWhorl::_allgather_base(
    at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  Tensors outputs{output}, inputs{input};
  check_tensor(output, "all_gather_into_tensor");
  check_tensor(input, "all_gather_into_tensor");
  same_type(output, input, "all_gather_into_tensor");
  same_count(output.numel(), input.numel() * size_, "all_gather_into_tensor", "the output");
  return issue(describe(c10d::OpType::_ALLGATHER_BASE, "whorl:_all_gather_base", options), outputs,
               inputs, [output, input](const Target& on) { all_gather(output, input, on); });
}

ProcessGroupWhorl::WorkResult ProcessGroupWhorl::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  Tensors outputs{output}, inputs{input};
  check_tensor(output, "reduce_scatter_tensor");
  check_tensor(input, "reduce_scatter_tensor");
  same_type(output, input, "reduce_scatter_tensor");
  same_count(input.numel(), output.numel() * size_, "reduce_scatter_tensor", "the input");
  const auto reduction =
      std::make_shared<Reduction>(options.reduceOp, output.scalar_type(), "reduce_scatter_tensor");
  return issue(describe(c10d::OpType::_REDUCE_SCATTER_BASE, "whorl:_reduce_scatter_base", options),
               outputs, inputs, [output, input, reduction](const Target& on) {
                 reduce_scatter_into(output, input, *reduction, on);
               });
}

} // namespace whorl_torch
