#include "bindings/torch/src/steps.h"

#include <ATen/MemoryOverlap.h>

#include "bindings/torch/src/errors.h"

namespace whorl_torch {
namespace {

/// Returns the elements of a flat tensor from `begin` on, as many as `like` has, in the shape of
/// `like`.
at::Tensor part(const at::Tensor& flat, std::int64_t begin, const at::Tensor& like) {
  return flat.narrow(0, begin, like.numel()).view(like.sizes());
}

/// Returns `input`, or a copy if `whole` and this rank's `block` overlap and the block is not in
/// its place there. All are dense; the input is one of the other two.
at::Tensor in_place_or_apart(const at::Tensor& input, const at::Tensor& whole,
                             const at::Tensor& block, const Target& on) {
  if (!overlap(whole, block)) return input;
  int rank = 0;
  check(whorlCommUserRank(on.comm, &rank), on.comm);
  const auto* const place =
      static_cast<const char*>(whole.data_ptr()) + static_cast<std::size_t>(rank) * block.nbytes();
  return block.data_ptr() == place ? input : input.clone();
}

} // namespace

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

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  const auto begin = [](const at::Tensor& tensor) {
    return reinterpret_cast<std::uintptr_t>(tensor.data_ptr());
  };
  return a.numel() > 0 && b.numel() > 0 && begin(a) < begin(b) + b.nbytes() &&
         begin(b) < begin(a) + a.nbytes();
}

Tensors without_overlap(const Tensors& tensors) {
  bool shared = false;
  for (std::size_t i = 0; i < tensors.size() && !shared; ++i) {
    for (std::size_t j = 0; j < i && !shared; ++j) {
      shared = at::get_overlap_status(tensors[i], tensors[j]) != at::MemOverlapStatus::No;
    }
  }
  if (!shared) return tensors;
  Tensors copies;
  for (const at::Tensor& tensor : tensors) {
    copies.push_back(
        at::empty(tensor.sizes(), tensor.options().memory_format(at::MemoryFormat::Contiguous)));
    copy_values(copies.back(), tensor);
  }
  return copies;
}

bool all_of_size(const Tensors& tensors, std::int64_t numel) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() != numel) return false;
  }
  return true;
}

at::Tensor flat_like(const Tensors& tensors) {
  std::int64_t count = 0;
  for (const at::Tensor& tensor : tensors) count += tensor.numel();
  return at::empty({count}, tensors[0].options().memory_format(at::MemoryFormat::Contiguous));
}

void pack(const at::Tensor& flat, const Tensors& tensors) {
  std::int64_t begin = 0;
  for (const at::Tensor& tensor : tensors) {
    copy_values(part(flat, begin, tensor), tensor);
    begin += tensor.numel();
  }
}

void unpack(const Tensors& tensors, const at::Tensor& flat) {
  std::int64_t begin = 0;
  for (const at::Tensor& tensor : tensors) {
    copy_values(tensor, part(flat, begin, tensor));
    begin += tensor.numel();
  }
}

void all_reduce(const at::Tensor& tensor, Reduction& reduction, const Target& on) {
  const at::Tensor dense = dense_copy(tensor);
  const Elements e = reduction.elements(dense);
  check(whorlAllReduce(e.data, e.data, e.count, e.type, reduction.on(on.comm), on.comm, on.stream),
        on.comm);
  copy_values(tensor, dense);
}

void all_gather(const at::Tensor& output, const at::Tensor& input, const Target& on) {
  const at::Tensor given = dense_copy(input), to = dense_like(output);
  const at::Tensor from = in_place_or_apart(given, to, given, on);
  const Elements e = elements(from);
  check(whorlAllGather(e.data, to.data_ptr(), e.count, e.type, on.comm, on.stream), on.comm);
  copy_values(output, to);
}

void all_gather_uneven(const at::Tensor& flat, const at::Tensor& input,
                       const std::vector<std::int64_t>& counts, const Target& on) {
  const at::Tensor from = dense_copy(input);
  const Elements e = elements(from), all = elements(flat);
  const std::size_t each =
      flat.numel() == 0 ? 1 : all.count / static_cast<std::size_t>(flat.numel());
  std::vector<std::size_t> sizes;
  for (const std::int64_t count : counts) sizes.push_back(static_cast<std::size_t>(count) * each);
  check(
      whorlAllGatherv(e.data, e.count, all.data, sizes.data(), nullptr, e.type, on.comm, on.stream),
      on.comm);
}

void reduce_scatter_into(const at::Tensor& output, const at::Tensor& input, Reduction& reduction,
                         const Target& on) {
  const at::Tensor given = dense_copy(input), to = dense_like(output);
  const at::Tensor from = in_place_or_apart(given, given, to, on);
  const Elements e = reduction.elements(to);
  check(whorlReduceScatter(from.data_ptr(), e.data, e.count, e.type, reduction.on(on.comm), on.comm,
                           on.stream),
        on.comm);
  copy_values(output, to);
}

void broadcast_one(const at::Tensor& tensor, int root, bool am_root, const Target& on) {
  const at::Tensor dense = am_root ? dense_copy(tensor) : dense_like(tensor);
  const Elements e = elements(dense);
  check(whorlBroadcast(e.data, e.data, e.count, e.type, root, on.comm, on.stream), on.comm);
  if (!am_root) copy_values(tensor, dense);
}

} // namespace whorl_torch
