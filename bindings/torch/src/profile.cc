#include "bindings/torch/src/profile.h"

#include <ATen/ThreadLocalState.h>
#include <ATen/record_function.h>

#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>
#include <torch/csrc/distributed/c10d/Utils.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

namespace whorl_torch {
namespace {

std::int64_t count_elements(const std::vector<at::Tensor>& tensors) {
  std::int64_t count = 0;
  for (const at::Tensor& tensor : tensors) count += tensor.numel();
  return count;
}

std::shared_ptr<torch::ParamCommsDebugInfo> facts_of(const ProfiledCall& call) {
  const std::string_view title = call.title;
  int first = 0, stride = 1;
  if (!call.ranks.empty()) c10d::getGlobalRankStartAndStride(call.ranks, first, stride);
  const auto& typed = call.inputs.empty() ? call.outputs : call.inputs;
  return std::make_shared<torch::ParamCommsDebugInfo>(
      std::tuple(call.group.getGroupUid(), call.group.getGroupDesc()), call.group.getRank(),
      std::string(title.substr(title.find(':') + 1)), count_elements(call.inputs),
      count_elements(call.outputs), typed.empty() ? at::kByte : typed[0].scalar_type(),
      std::vector<std::int64_t>(), std::vector<std::int64_t>(), first, stride,
      call.group.getSize());
}

} // namespace

std::function<void()> profiled(const ProfiledCall& call, std::function<void()> body) {
  if (!at::isRecordFunctionEnabled() || !at::hasCallbacks()) return body;
  return [body = std::move(body), state = at::ThreadLocalState(), facts = facts_of(call),
          name = c10::str("run of ", call.title, " in whorl")] {
    const at::ThreadLocalStateGuard profiler_of_the_issuer(state);
    at::RecordFunction span(at::RecordScope::USER_SCOPE);
    if (span.isActive()) span.before(name);
    const c10::DebugInfoGuard facts_of_the_call(c10::DebugInfoKind::PARAM_COMMS_INFO, facts);
    RECORD_FUNCTION(at::kParamCommsCallName, c10::ArrayRef<const c10::IValue>{});
    body();
  };
}

} // namespace whorl_torch
