#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstdint>
#include <functional>
#include <vector>

namespace whorl_torch {

/// One operation, as profilers see it. Borrowed for the call of profiled().
struct ProfiledCall {
  const char* title; ///< "whorl:all_reduce"
  const c10d::Backend& group;
  const std::vector<std::uint64_t>& ranks; ///< ranks of the group in the whole program; empty: all
  const std::vector<at::Tensor>& inputs;
  const std::vector<at::Tensor>& outputs;
};

/// Adds spans to `body` while a profiler is active: "run of whorl:all_reduce in whorl" shows when
/// and on which thread the operation was carried out, and in it "record_param_comms", torch's span
/// of every backend, has the group and the numbers of elements, from which tools know the bytes.
/// The span of the Work lasts from issue to completion.
std::function<void()> profiled(const ProfiledCall& call, std::function<void()> body);

} // namespace whorl_torch
