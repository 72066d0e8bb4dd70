// Allreduce of sparse tensors (COO): every rank gets the indices and values of all ranks, whose
// number differs from rank to rank, and adds these up in the order of the ranks, so that all ranks
// have the same bits.
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>

#include "bindings/torch/src/errors.h"
#include "bindings/torch/src/process_group.h"
#include "bindings/torch/src/steps.h"

namespace whorl_torch {
namespace {

constexpr std::int64_t kMaxDims = 29;
constexpr std::int64_t kEntries = 0, kSparseDims = 1, kDims = 2,
                       kSizes = 3; // columns of a description
constexpr std::int64_t kDescription = kSizes + kMaxDims;

/// Exchanges the shape and the number of entries of every rank's tensor, a row for each rank.
/// Throws on all ranks if the shapes differ; the communicator stays usable.
at::Tensor describe_all(const at::Tensor& mine, int ranks, whorlComm_t comm) {
  at::Tensor description = at::zeros({kDescription}, at::kLong);
  auto* const row = description.data_ptr<std::int64_t>();
  row[kEntries] = mine._nnz();
  row[kSparseDims] = mine.sparse_dim();
  row[kDims] = mine.dim();
  std::copy(mine.sizes().begin(), mine.sizes().end(), row + kSizes);
  at::Tensor all = at::empty({ranks, kDescription}, at::kLong);
  all_gather(all, description, {comm}); // host memory, whose values are needed now
  const auto* const first = all.data_ptr<std::int64_t>();
  for (int rank = 1; rank < ranks; ++rank) {
    const auto* const theirs = first + rank * kDescription;
    if (std::equal(theirs + kSparseDims, theirs + kDescription, first + kSparseDims)) continue;
    const auto shape = [](const std::int64_t* of) {
      return c10::str(at::IntArrayRef(of + kSizes, static_cast<std::size_t>(of[kDims])), " with ",
                      of[kSparseDims], " sparse dimensions");
    };
    fail<c10::ValueError>("whorl: all_reduce of sparse tensors: rank 0 has the shape ",
                          shape(first), ", rank ", rank, " has ", shape(theirs));
  }
  return all;
}

at::Tensor sum_of_all(const at::Tensor& mine, int ranks, const Target& on) {
  const at::Tensor descriptions = describe_all(mine, ranks, on.comm);
  std::vector<std::int64_t> entries;
  for (int rank = 0; rank < ranks; ++rank) {
    entries.push_back(descriptions[rank][kEntries].item<std::int64_t>());
  }
  // Entries are rows, so that the blocks of the ranks lie one after the other.
  const auto gather = [&](const at::Tensor& rows) {
    std::vector<std::int64_t> counts, shape(rows.sizes().begin(), rows.sizes().end());
    const std::int64_t per_row = c10::multiply_integers(shape.begin() + 1, shape.end());
    shape[0] = 0;
    for (const std::int64_t count : entries) {
      counts.push_back(count * per_row);
      shape[0] += count;
    }
    const at::Tensor all = at::empty(shape, rows.options());
    all_gather_uneven(all, rows.contiguous(), counts, on);
    return all;
  };
  const at::Tensor indices = gather(mine._indices().t());
  const at::Tensor values = gather(mine._values());
  return at::_sparse_coo_tensor_unsafe(indices.t(), values, mine.sizes(), mine.options())
      .coalesce();
}

} // namespace

ProcessGroupWhorl::WorkResult ProcessGroupWhorl::allreduce_sparse(
    Tensors& tensors, const c10d::AllreduceOptions& options) {
  TORCH_CHECK_VALUE(tensors.size() == 1 && tensors[0].defined(),
                    "whorl: all_reduce takes one tensor for each rank, not ", tensors.size());
  const at::Tensor tensor = tensors[0];
  TORCH_CHECK_VALUE(tensor.is_sparse(), "whorl: all_reduce of sparse tensors: the layout is ",
                    tensor.layout(), ", it must be Sparse (COO); convert it, for instance by ",
                    "tensor.to_sparse_coo()");
  check_device(tensor, "all_reduce");
  TORCH_CHECK_VALUE(tensor.dim() <= kMaxDims,
                    "whorl: all_reduce of sparse tensors: the tensor has ", tensor.dim(),
                    " dimensions; ", kMaxDims, " are supported");
  const bool average = options.reduceOp.op_ == c10d::ReduceOp::AVG;
  TORCH_CHECK_VALUE(average || options.reduceOp.op_ == c10d::ReduceOp::SUM,
                    "whorl: all_reduce of sparse tensors can add up (SUM) and average (AVG) only");
  TORCH_CHECK_VALUE(!average || at::isFloatingType(tensor.scalar_type()) ||
                        at::isComplexType(tensor.scalar_type()),
                    "whorl: all_reduce of sparse tensors: AVG is for floating-point numbers, not ",
                    tensor.scalar_type());
  return issue(describe(c10d::OpType::_ALLREDUCE_SPARSE, "whorl:all_reduce_sparse", options),
               tensors, tensors, [tensor, average, ranks = size_](const Target& on) {
                 const at::AutoDispatchBelowADInplaceOrView below_autograd;
                 at::Tensor sum = sum_of_all(tensor.coalesce(), ranks, on);
                 if (average) sum._values().div_(ranks);
                 tensor.copy_(sum);
               });
}

} // namespace whorl_torch
