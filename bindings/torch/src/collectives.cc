// The collectives of the process group. Each checks its tensors at once, so that a wrong argument
// is the caller's exception, and leaves a body to the queue. Tensors whose elements do not lie side
// by side go through dense memory; lists of tensors of one size through one flat tensor.
#include <cstring>

#include "bindings/torch/src/errors.h"
#include "bindings/torch/src/process_group.h"
#include "bindings/torch/src/types.h"

namespace whorl_torch {
namespace {

using Tensors = ProcessGroupWhorl::Tensors;
using SharedReduction = std::shared_ptr<Reduction>;

const at::Tensor& only(const Tensors& tensors, const char* operation) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "whorl: ", operation,
                    " takes one tensor for each rank, not ", tensors.size());
  check_tensor(tensors[0], operation);
  return tensors[0];
}

const Tensors& only_list(const std::vector<Tensors>& lists, std::size_t size,
                         const char* operation) {
  TORCH_CHECK_VALUE(lists.size() == 1, "whorl: ", operation, " takes one list of tensors, not ",
                    lists.size());
  TORCH_CHECK_VALUE(lists[0].size() == size, "whorl: ", operation, ": the list has ",
                    lists[0].size(), " tensors; it must have one for each of the ", size, " ranks");
  for (const at::Tensor& tensor : lists[0]) check_tensor(tensor, operation);
  return lists[0];
}

void same_type(const at::Tensor& a, const at::Tensor& b, const char* operation) {
  if (a.scalar_type() != b.scalar_type()) {
    fail<c10::TypeError>("whorl: ", operation, ": input and output have different types, ",
                         a.scalar_type(), " and ", b.scalar_type());
  }
}

void same_count(std::int64_t a, std::int64_t b, const char* operation, const char* what) {
  TORCH_CHECK_VALUE(a == b, "whorl: ", operation, ": ", what, " has ", a, " elements, not ", b);
}

bool all_of_size(const Tensors& tensors, std::int64_t numel) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() != numel) return false;
  }
  return true;
}

at::Tensor flat_like(const Tensors& tensors) {
  return at::empty({static_cast<std::int64_t>(tensors.size()) * tensors[0].numel()},
                   tensors[0].options().memory_format(at::MemoryFormat::Contiguous));
}

at::Tensor part(const at::Tensor& flat, std::size_t index, const at::Tensor& like) {
  return flat.narrow(0, static_cast<std::int64_t>(index) * like.numel(), like.numel())
      .view(like.sizes());
}

void pack(const at::Tensor& flat, const Tensors& tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i)
    copy_values(part(flat, i, tensors[i]), tensors[i]);
}

void unpack(const Tensors& tensors, const at::Tensor& flat) {
  for (std::size_t i = 0; i < tensors.size(); ++i)
    copy_values(tensors[i], part(flat, i, tensors[i]));
}

void all_reduce(const at::Tensor& tensor, Reduction& reduction, whorlComm_t comm) {
  const at::Tensor dense = dense_copy(tensor);
  const Elements e = reduction.elements(dense);
  check(whorlAllReduce(e.data, e.data, e.count, e.type, reduction.on(comm), comm, nullptr), comm);
  copy_values(tensor, dense);
}

void all_gather(const at::Tensor& output, const at::Tensor& input, whorlComm_t comm) {
  const at::Tensor from = dense_copy(input), to = dense_like(output);
  const Elements e = elements(from);
  check(whorlAllGather(e.data, to.data_ptr(), e.count, e.type, comm, nullptr), comm);
  copy_values(output, to);
}

void reduce_scatter_into(const at::Tensor& output, const at::Tensor& input, Reduction& reduction,
                         whorlComm_t comm) {
  const at::Tensor from = dense_copy(input), to = dense_like(output);
  const Elements e = reduction.elements(to);
  check(whorlReduceScatter(from.data_ptr(), e.data, e.count, e.type, reduction.on(comm), comm,
                           nullptr),
        comm);
  copy_values(output, to);
}

void broadcast_one(const at::Tensor& tensor, int root, bool am_root, whorlComm_t comm) {
  const at::Tensor dense = am_root ? dense_copy(tensor) : dense_like(tensor);
  const Elements e = elements(dense);
  check(whorlBroadcast(e.data, e.data, e.count, e.type, root, comm, nullptr), comm);
  if (!am_root) copy_values(tensor, dense);
}

/// The result is left in `dense` of the root; elsewhere `dense` is only read.
void reduce_dense(const at::Tensor& dense, Reduction& reduction, int root, whorlComm_t comm) {
  const Elements e = reduction.elements(dense);
  check(whorlReduce(e.data, e.data, e.count, e.type, reduction.on(comm), root, comm, nullptr),
        comm);
}

/// Sends and receives that proceed at the same time.
class GroupScope {
 public:
  explicit GroupScope(whorlComm_t comm) : comm_(comm) { check(whorlGroupStart(), comm); }
  void end() {
    open_ = false;
    check(whorlGroupEnd(), comm_);
  }
  ~GroupScope() {
    if (open_) whorlGroupEnd();
  }
  GroupScope(const GroupScope&) = delete;
  GroupScope& operator=(const GroupScope&) = delete;

 private:
  whorlComm_t comm_;
  bool open_ = true;
};

/// Counts, as whorl takes them, of the blocks that `rows` rows each of the first dimension make;
/// equal blocks if there are none.
std::vector<std::size_t> block_counts(const at::Tensor& dense,
                                      const std::vector<std::int64_t>& rows, std::size_t ranks) {
  const std::size_t total = elements(dense).count;
  if (rows.empty()) return std::vector<std::size_t>(ranks, total / ranks);
  const std::int64_t all_rows = dense.dim() == 0 ? 1 : dense.size(0);
  const std::size_t per_row = all_rows == 0 ? 0 : total / static_cast<std::size_t>(all_rows);
  std::vector<std::size_t> counts;
  for (const std::int64_t count : rows) counts.push_back(static_cast<std::size_t>(count) * per_row);
  return counts;
}

/// `to[j]` gets what rank j has in `from[self]`. All are dense.
void exchange(const Tensors& to, const Tensors& from, std::size_t self, whorlComm_t comm) {
  GroupScope group(comm);
  for (std::size_t peer = 0; peer < to.size(); ++peer) {
    if (peer == self) continue;
    const Elements out = elements(from[peer]), in = elements(to[peer]);
    if (out.count > 0) {
      check(whorlSend(out.data, out.count, out.type, static_cast<int>(peer), comm, nullptr), comm);
    }
    if (in.count > 0) {
      check(whorlRecv(in.data, in.count, in.type, static_cast<int>(peer), comm, nullptr), comm);
    }
  }
  if (from[self].numel() > 0) copy_values(to[self], from[self].reshape(to[self].sizes()));
  group.end();
}

} // namespace

ProcessGroupWhorl::WorkResult ProcessGroupWhorl::broadcast(Tensors& tensors,
                                                           const c10d::BroadcastOptions& options) {
  const at::Tensor tensor = only(tensors, "broadcast");
  check_root(options.rootRank, "broadcast");
  return issue(describe(c10d::OpType::BROADCAST, "whorl:broadcast", options), tensors, tensors,
               [tensor, root = static_cast<int>(options.rootRank), rank = rank_](whorlComm_t comm) {
                 broadcast_one(tensor, root, rank == root, comm);
               });
}

ProcessGroupWhorl::WorkResult ProcessGroupWhorl::allreduce(Tensors& tensors,
                                                           const c10d::AllreduceOptions& options) {
  const at::Tensor tensor = only(tensors, "all_reduce");
  const auto reduction =
      std::make_shared<Reduction>(options.reduceOp, tensor.scalar_type(), "all_reduce");
  return issue(describe(c10d::OpType::ALLREDUCE, "whorl:all_reduce", options), tensors, tensors,
               [tensor, reduction](whorlComm_t comm) { all_reduce(tensor, *reduction, comm); });
}

ProcessGroupWhorl::WorkResult ProcessGroupWhorl::allreduce_sparse(Tensors& tensors,
                                                                  const c10d::AllreduceOptions&) {
  for (const at::Tensor& tensor : tensors) check_tensor(tensor, "all_reduce");
  fail<c10::ValueError>(
      "whorl: all_reduce of sparse tensors is not supported; pass "
      "tensor.to_dense()");
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
               tensors, tensors, [tensors, reductions](whorlComm_t comm) {
                 for (std::size_t i = 0; i < tensors.size(); ++i)
                   all_reduce(tensors[i], *reductions[i], comm);
               });
}

ProcessGroupWhorl::WorkResult ProcessGroupWhorl::reduce(Tensors& tensors,
                                                        const c10d::ReduceOptions& options) {
  const at::Tensor tensor = only(tensors, "reduce");
  check_root(options.rootRank, "reduce");
  const auto reduction =
      std::make_shared<Reduction>(options.reduceOp, tensor.scalar_type(), "reduce");
  return issue(describe(c10d::OpType::REDUCE, "whorl:reduce", options), tensors, tensors,
               [tensor, reduction, root = static_cast<int>(options.rootRank),
                rank = rank_](whorlComm_t comm) {
                 const at::Tensor dense = dense_copy(tensor);
                 reduce_dense(dense, *reduction, root, comm);
                 if (rank == root) copy_values(tensor, dense);
               });
}

ProcessGroupWhorl::WorkResult ProcessGroupWhorl::allgather(std::vector<Tensors>& outputs,
                                                           Tensors& inputs,
                                                           const c10d::AllgatherOptions& options) {
  const at::Tensor input = only(inputs, "all_gather");
  const Tensors list = only_list(outputs, ranks(), "all_gather");
  for (const at::Tensor& output : list) same_type(output, input, "all_gather");
  same_count(list[self()].numel(), input.numel(), "all_gather", "this rank's place in the output");
  const bool even = all_of_size(list, input.numel());
  return issue(describe(c10d::OpType::ALLGATHER, "whorl:all_gather", options), list, inputs,
               [list, input, even, self = self()](whorlComm_t comm) {
                 if (even) {
                   const at::Tensor flat = flat_like(list);
                   all_gather(flat, input, comm);
                   return unpack(list, flat);
                 }
                 copy_values(list[self], input.reshape(list[self].sizes()));
                 for (std::size_t root = 0; root < list.size(); ++root) {
                   broadcast_one(list[root], static_cast<int>(root), root == self, comm);
                 }
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
               inputs, [output, input](whorlComm_t comm) { all_gather(output, input, comm); });
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
               all, inputs, [outputs, inputs](whorlComm_t comm) {
                 for (std::size_t i = 0; i < inputs.size(); ++i) {
                   Tensors list;
                   for (const Tensors& of_rank : outputs) list.push_back(of_rank[i]);
                   const at::Tensor flat = flat_like(list);
                   all_gather(flat, inputs[i], comm);
                   unpack(list, flat);
                 }
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
               outputs, inputs, [outputs, inputs](whorlComm_t comm) {
                 for (std::size_t i = 0; i < inputs.size(); ++i) {
                   all_gather(outputs[i], inputs[i], comm);
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
               [list, input, root](whorlComm_t comm) {
                 const at::Tensor from = dense_copy(input);
                 const Elements e = elements(from);
                 const at::Tensor flat = list.empty() ? at::Tensor() : flat_like(list);
                 void* const to = list.empty() ? nullptr : flat.data_ptr();
                 check(whorlGather(e.data, to, e.count, e.type, root, comm, nullptr), comm);
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
               [list, output, root](whorlComm_t comm) {
                 const at::Tensor to = dense_like(output);
                 const Elements e = elements(to);
                 at::Tensor flat;
                 if (!list.empty()) {
                   flat = flat_like(list);
                   pack(flat, list);
                 }
                 check(whorlScatter(list.empty() ? nullptr : flat.data_ptr(), e.data, e.count,
                                    e.type, root, comm, nullptr),
                       comm);
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
               list, [list, output, even, reduction, self = self()](whorlComm_t comm) {
                 if (even) {
                   const at::Tensor flat = flat_like(list);
                   pack(flat, list);
                   return reduce_scatter_into(output, flat, *reduction, comm);
                 }
                 for (std::size_t root = 0; root < list.size(); ++root) {
                   const at::Tensor dense = list[root].clone(at::MemoryFormat::Contiguous);
                   reduce_dense(dense, *reduction, static_cast<int>(root), comm);
                   if (root == self) copy_values(output, dense.view(output.sizes()));
                 }
               });
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
               outputs, inputs, [output, input, reduction](whorlComm_t comm) {
                 reduce_scatter_into(output, input, *reduction, comm);
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
               outputs, inputs, [outputs, inputs, reductions](whorlComm_t comm) {
                 for (std::size_t i = 0; i < inputs.size(); ++i) {
                   reduce_scatter_into(outputs[i], inputs[i], *reductions[i], comm);
                 }
               });
}

ProcessGroupWhorl::WorkResult ProcessGroupWhorl::alltoall_base(
    at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_sizes,
    std::vector<std::int64_t>& input_sizes, const c10d::AllToAllOptions& options) {
  check_tensor(output, "all_to_all_single");
  check_tensor(input, "all_to_all_single");
  same_type(output, input, "all_to_all_single");
  // Sizes are rows of the first dimension; none means equal parts.
  const auto check_sizes = [&](const std::vector<std::int64_t>& sizes, const at::Tensor& tensor,
                               const char* which) {
    const std::int64_t rows = tensor.dim() == 0 ? tensor.numel() : tensor.size(0);
    if (sizes.empty()) {
      TORCH_CHECK_VALUE(rows % size_ == 0, "whorl: all_to_all_single: the first dimension of the ",
                        which, ", ", rows, ", does not divide equally among ", size_, " ranks");
      return;
    }
    TORCH_CHECK_VALUE(sizes.size() == ranks(), "whorl: all_to_all_single: the split sizes of the ",
                      which, " are ", sizes.size(), "; there must be one for each of the ", size_,
                      " ranks");
    std::int64_t sum = 0;
    for (const std::int64_t size : sizes) {
      TORCH_CHECK_VALUE(size >= 0, "whorl: all_to_all_single: a split size of the ", which, " is ",
                        size);
      sum += size;
    }
    TORCH_CHECK_VALUE(sum == rows, "whorl: all_to_all_single: the split sizes of the ", which,
                      " add up to ", sum, ", its first dimension is ", rows);
  };
  check_sizes(output_sizes, output, "output");
  check_sizes(input_sizes, input, "input");
  return issue(describe(c10d::OpType::ALLTOALL_BASE, "whorl:all_to_all", options), {output},
               {input}, [output, input, output_sizes, input_sizes, n = ranks()](whorlComm_t comm) {
                 const at::Tensor from = dense_copy(input), to = dense_like(output);
                 const Elements e = elements(from);
                 const auto sends = block_counts(from, input_sizes, n);
                 const auto receives = block_counts(to, output_sizes, n);
                 check(whorlAlltoAllv(e.data, sends.data(), nullptr, to.data_ptr(), receives.data(),
                                      nullptr, e.type, comm, nullptr),
                       comm);
                 copy_values(output, to);
               });
}

ProcessGroupWhorl::WorkResult ProcessGroupWhorl::alltoall(Tensors& outputs, Tensors& inputs,
                                                          const c10d::AllToAllOptions& options) {
  for (const Tensors* list : {&outputs, &inputs}) {
    TORCH_CHECK_VALUE(list->size() == ranks(), "whorl: all_to_all: a list has ", list->size(),
                      " tensors; it must have one for each of the ", size_, " ranks");
    for (const at::Tensor& tensor : *list) check_tensor(tensor, "all_to_all");
  }
  for (std::size_t i = 0; i < ranks(); ++i) same_type(outputs[i], inputs[i], "all_to_all");
  same_count(outputs[self()].numel(), inputs[self()].numel(), "all_to_all",
             "this rank's own output");
  return issue(describe(c10d::OpType::ALLTOALL, "whorl:all_to_all", options), outputs, inputs,
               [outputs, inputs, self = self()](whorlComm_t comm) {
                 Tensors to, from;
                 for (const at::Tensor& tensor : outputs) to.push_back(dense_like(tensor));
                 for (const at::Tensor& tensor : inputs) from.push_back(dense_copy(tensor));
                 exchange(to, from, self, comm);
                 for (std::size_t i = 0; i < to.size(); ++i) copy_values(outputs[i], to[i]);
               });
}

} // namespace whorl_torch
