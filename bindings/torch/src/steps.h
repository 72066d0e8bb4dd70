#pragma once

#include <memory>
#include <vector>

#include "bindings/torch/src/types.h"

namespace whorl_torch {

// What the collectives of the process group are made of: checks of arguments, which throw
// sentences, and steps on a communicator. Tensors whose elements do not lie side by side go through
// dense memory.

using Tensors = std::vector<at::Tensor>;
using SharedReduction = std::shared_ptr<Reduction>;

/// The tensor of a call that takes one.
const at::Tensor& only(const Tensors& tensors, const char* operation);
/// The list of a call that takes one, with a tensor for each of `size` ranks.
const Tensors& only_list(const std::vector<Tensors>& lists, std::size_t size,
                         const char* operation);
void same_type(const at::Tensor& a, const at::Tensor& b, const char* operation);
void same_count(std::int64_t a, std::int64_t b, const char* operation, const char* what);
/// Whether two dense tensors have memory in common.
bool overlap(const at::Tensor& a, const at::Tensor& b);
/// Tensors of the same values that have no memory in common: these, or copies if they have any.
Tensors apart(const Tensors& tensors);
bool all_of_size(const Tensors& tensors, std::int64_t numel);

/// One flat tensor for all of `tensors`.
at::Tensor flat_like(const Tensors& tensors);
void pack(const at::Tensor& flat, const Tensors& tensors);
void unpack(const Tensors& tensors, const at::Tensor& flat);

void all_reduce(const at::Tensor& tensor, Reduction& reduction, const Target& on);
void all_gather(const at::Tensor& output, const at::Tensor& input, const Target& on);
/// As all_gather() into `flat`, with `counts[j]` elements of rank j.
void all_gather_uneven(const at::Tensor& flat, const at::Tensor& input,
                       const std::vector<std::int64_t>& counts, const Target& on);
void reduce_scatter_into(const at::Tensor& output, const at::Tensor& input, Reduction& reduction,
                         const Target& on);
void broadcast_one(const at::Tensor& tensor, int root, bool am_root, const Target& on);

} // namespace whorl_torch
