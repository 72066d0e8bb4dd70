// Collectives of one tensor for each rank, and of several at once. Lists of tensors of one size go
// through one flat tensor.
#include "bindings/torch/src/errors.h"
#include "bindings/torch/src/process_group.h"
#include "bindings/torch/src/steps.h"
#include "bindings/torch/src/types.h"

namespace whorl_torch {

ProcessGroupWhorl::WorkResult ProcessGroupWhorl::allgather(std::vector<Tensors>& outputs,
                                                           Tensors& inputs,
                                                           const c10d::AllgatherOptions& options) {
  const at::Tensor input = only(inputs, "all_gather");
  const Tensors list = only_list(outputs, ranks(), "all_gather");
  for (const at::Tensor& output : list) same_type(output, input, "all_gather");
  same_count(list[self()].numel(), input.numel(), "all_gather", "this rank's place in the output");
  const bool even = all_of_size(list, input.numel());
  return issue(describe(c10d::OpType::ALLGATHER, "whorl:all_gather", options), list, inputs,
               [list, input, even](const Target& on) {
                 const at::Tensor flat = flat_like(list);
                 if (even) {
                   all_gather(flat, input, on);
                 } else {
                   std::vector<std::int64_t> counts;
                   for (const at::Tensor& output : list) counts.push_back(output.numel());
                   all_gather_uneven(flat, input, counts, on);
                 }
                 unpack(list, flat);
               });
}

ProcessGroupWhorl::WorkResult ProcessGroupWhorl::allgather_coalesced(
    std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == ranks(), "whorl: all_gather_coalesced: the output has ",
                    outputs.size(), " lists; it must have one for each of the ", size_, " ranks");
  Tensors all;
  for (const Tensors& list : outputs) {
    TORCH_CHECK_VALUE(list.size() == inputs.size(),
                      "whorl: all_gather_coalesced: a list of the "
                      "output has ",
                      list.size(), " tensors, the input ", inputs.size());
    for (std::size_t i = 0; i < list.size(); ++i) {
      check_tensor(list[i], "all_gather_coalesced");
      check_tensor(inputs[i], "all_gather_coalesced");
      same_type(list[i], inputs[i], "all_gather_coalesced");
      same_count(list[i].numel(), inputs[i].numel(), "all_gather_coalesced", "an output");
      all.push_back(list[i]);
    }
  }
  return issue(describe(c10d::OpType::ALLGATHER_COALESCED, "whorl:all_gather_coalesced", options),
               all, inputs, [outputs, inputs](const Target& on) {
                 for (std::size_t i = 0; i < inputs.size(); ++i) {
                   Tensors list;
                   for (const Tensors& of_rank : outputs) list.push_back(of_rank[i]);
                   const at::Tensor flat = flat_like(list);
                   all_gather(flat, inputs[i], on);
                   unpack(list, flat);
                 }
               });
}

ProcessGroupWhorl::WorkResult ProcessGroupWhorl::gather(std::vector<Tensors>& outputs,
                                                        Tensors& inputs,
                                                        const c10d::GatherOptions& options) {
  const at::Tensor input = only(inputs, "gather");
  check_root(options.rootRank, "gather");
  const int root = static_cast<int>(options.rootRank);
  Tensors list;
  if (rank_ == root) {
    list = only_list(outputs, ranks(), "gather");
    for (const at::Tensor& output : list) {
      same_type(output, input, "gather");
      same_count(output.numel(), input.numel(), "gather", "an output");
    }
  } else {
    TORCH_CHECK_VALUE(outputs.empty(), "whorl: gather: only the root, rank ", root,
                      ", has outputs");
  }
  return issue(describe(c10d::OpType::GATHER, "whorl:gather", options), list, inputs,
               [list, input, root](const Target& on) {
                 const at::Tensor from = dense_copy(input);
                 const Elements e = elements(from);
                 const at::Tensor flat = list.empty() ? at::Tensor() : flat_like(list);
                 void* const to = list.empty() ? nullptr : flat.data_ptr();
                 check(whorlGather(e.data, to, e.count, e.type, root, on.comm, on.stream), on.comm);
                 if (!list.empty()) unpack(list, flat);
               });
}

ProcessGroupWhorl::WorkResult ProcessGroupWhorl::scatter(Tensors& outputs,
                                                         std::vector<Tensors>& inputs,
                                                         const c10d::ScatterOptions& options) {
  const at::Tensor output = only(outputs, "scatter");
  check_root(options.rootRank, "scatter");
  const int root = static_cast<int>(options.rootRank);
  Tensors list;
  if (rank_ == root) {
    list = only_list(inputs, ranks(), "scatter");
    for (const at::Tensor& input : list) {
      same_type(output, input, "scatter");
      same_count(input.numel(), output.numel(), "scatter", "an input");
    }
  } else {
    TORCH_CHECK_VALUE(inputs.empty(), "whorl: scatter: only the root, rank ", root, ", has inputs");
  }
  return issue(describe(c10d::OpType::SCATTER, "whorl:scatter", options), outputs, list,
               [list, output, root](const Target& on) {
                 const at::Tensor to = dense_like(output);
                 const Elements e = elements(to);
                 at::Tensor flat;
                 if (!list.empty()) {
                   flat = flat_like(list);
                   pack(flat, list);
                 }
                 check(whorlScatter(list.empty() ? nullptr : flat.data_ptr(), e.data, e.count,
                                    e.type, root, on.comm, on.stream),
                       on.comm);
                 copy_values(output, to);
               });
}

ProcessGroupWhorl::WorkResult ProcessGroupWhorl::reduce_scatter(
    Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ReduceScatterOptions& options) {
  const at::Tensor output = only(outputs, "reduce_scatter");
  const Tensors list = only_list(inputs, ranks(), "reduce_scatter");
  for (const at::Tensor& input : list) same_type(output, input, "reduce_scatter");
  same_count(list[self()].numel(), output.numel(), "reduce_scatter", "this rank's input");
  const bool even = all_of_size(list, output.numel());
  const auto reduction =
      std::make_shared<Reduction>(options.reduceOp, output.scalar_type(), "reduce_scatter");
  return issue(describe(c10d::OpType::REDUCE_SCATTER, "whorl:reduce_scatter", options), outputs,
               list, [list, output, even, reduction](const Target& on) {
                 const at::Tensor flat = flat_like(list);
                 pack(flat, list);
                 if (even) return reduce_scatter_into(output, flat, *reduction, on);
                 const at::Tensor to = dense_like(output);
                 std::vector<std::size_t> counts;
                 for (const at::Tensor& input : list) {
                   counts.push_back(reduction->elements(input).count);
                 }
                 const Elements e = reduction->elements(flat);
                 check(whorlReduceScatterv(e.data, to.data_ptr(), counts.data(), e.type,
                                           reduction->on(on.comm), on.comm, on.stream),
                       on.comm);
                 copy_values(output, to);
               });
}

ProcessGroupWhorl::WorkResult ProcessGroupWhorl::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  std::vector<SharedReduction> reductions;
  for (const at::Tensor& tensor : tensors) {
    check_tensor(tensor, "all_reduce_coalesced");
    reductions.push_back(std::make_shared<Reduction>(options.reduceOp, tensor.scalar_type(),
                                                     "all_reduce_coalesced"));
  }
  return issue(describe(c10d::OpType::ALLREDUCE_COALESCED, "whorl:all_reduce_coalesced", options),
               tensors, tensors, [tensors, reductions](const Target& on) {
                 // All are read before any is written: they may share memory.
                 const Tensors values = without_overlap(tensors);
                 for (std::size_t i = 0; i < tensors.size(); ++i) {
                   all_reduce(values[i], *reductions[i], on);
                 }
                 for (std::size_t i = 0; i < tensors.size(); ++i)
                   copy_values(tensors[i], values[i]);
               });
}

ProcessGroupWhorl::WorkResult ProcessGroupWhorl::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(),
                    "whorl: all_gather_into_tensor_coalesced: ", outputs.size(), " outputs and ",
                    inputs.size(), " inputs");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_tensor(outputs[i], "all_gather_into_tensor_coalesced");
    check_tensor(inputs[i], "all_gather_into_tensor_coalesced");
    same_type(outputs[i], inputs[i], "all_gather_into_tensor_coalesced");
    same_count(outputs[i].numel(), inputs[i].numel() * size_, "all_gather_into_tensor_coalesced",
               "an output");
  }
  return issue(describe(c10d::OpType::COALESCED, "whorl:all_gather_into_tensor_coalesced", options),
               outputs, inputs, [outputs, inputs](const Target& on) {
                 for (std::size_t i = 0; i < inputs.size(); ++i) {
                   all_gather(outputs[i], inputs[i], on);
                 }
               });
}

ProcessGroupWhorl::WorkResult ProcessGroupWhorl::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(),
                    "whorl: reduce_scatter_tensor_coalesced: ", outputs.size(), " outputs and ",
                    inputs.size(), " inputs");
  std::vector<SharedReduction> reductions;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_tensor(outputs[i], "reduce_scatter_tensor_coalesced");
    check_tensor(inputs[i], "reduce_scatter_tensor_coalesced");
    same_type(outputs[i], inputs[i], "reduce_scatter_tensor_coalesced");
    same_count(inputs[i].numel(), outputs[i].numel() * size_, "reduce_scatter_tensor_coalesced",
               "an input");
    reductions.push_back(std::make_shared<Reduction>(options.reduceOp, outputs[i].scalar_type(),
                                                     "reduce_scatter_tensor_coalesced"));
  }
  return issue(describe(c10d::OpType::COALESCED, "whorl:reduce_scatter_tensor_coalesced", options),
               outputs, inputs, [outputs, inputs, reductions](const Target& on) {
                 for (std::size_t i = 0; i < inputs.size(); ++i) {
                   reduce_scatter_into(outputs[i], inputs[i], *reductions[i], on);
                 }
               });
}

} // namespace whorl_torch
