#pragma once

#include <memory>
#include <vector>

#include "bindings/torch/src/types.h"

namespace whorl_torch {

// Parts of the collectives of the process group: checks of arguments, which throw sentences, and
// steps on a communicator. Tensors whose elements do not lie side by side go through
// dense memory.

using Tensors = std::vector<at::Tensor>;
using SharedReduction = std::shared_ptr<Reduction>;

/// Returns the tensor of a call that takes one.
const at::Tensor& only(const Tensors& tensors, const char* operation);
/// Returns the list of a call that takes one, with a tensor for each of `size` ranks.
const Tensors& only_list(const std::vector<Tensors>& lists, std::size_t size,
                         const char* operation);
/// Throws if the types of two tensors differ.
void same_type(const at::Tensor& a, const at::Tensor& b, const char* operation);
/// Throws if `what` has `a` elements and not `b`.
void same_count(std::int64_t a, std::int64_t b, const char* operation, const char* what);
/// Returns whether two dense tensors have memory in common.
bool overlap(const at::Tensor& a, const at::Tensor& b);
/// Returns tensors of the same values that have no memory in common: the same ones, or copies.
Tensors without_overlap(const Tensors& tensors);
/// Returns whether each tensor has `numel` elements.
bool all_of_size(const Tensors& tensors, std::int64_t numel);

/// Makes a flat tensor with room for all of `tensors`.
at::Tensor flat_like(const Tensors& tensors);
/// Copies the values of `tensors` into `flat`, one after the other.
void pack(const at::Tensor& flat, const Tensors& tensors);
/// Copies the values of `flat` into `tensors`, one after the other.
void unpack(const Tensors& tensors, const at::Tensor& flat);

/// Reduces `tensor` in place.
void all_reduce(const at::Tensor& tensor, Reduction& reduction, const Target& on);
/// Gathers the `input` of all ranks into `output`, by rank.
void all_gather(const at::Tensor& output, const at::Tensor& input, const Target& on);
/// Gathers as all_gather() does, into `flat`, with `counts[j]` elements of rank j.
void all_gather_uneven(const at::Tensor& flat, const at::Tensor& input,
                       const std::vector<std::int64_t>& counts, const Target& on);
/// Reduces `input`, and leaves this rank's block in `output`.
void reduce_scatter_into(const at::Tensor& output, const at::Tensor& input, Reduction& reduction,
                         const Target& on);
/// Broadcasts `tensor` from `root`; `am_root`: which this rank is.
void broadcast_one(const at::Tensor& tensor, int root, bool am_root, const Target& on);

} // namespace whorl_torch
