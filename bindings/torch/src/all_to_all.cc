// Personalized exchanges.
#include <algorithm>

#include "bindings/torch/src/errors.h"
#include "bindings/torch/src/process_group.h"
#include "bindings/torch/src/steps.h"
#include "bindings/torch/src/types.h"

namespace whorl_torch {
namespace {

/// Group of sends and receives, which proceed at the same time. Without end(), as after an
/// exception, none of them begins.
class GroupScope {
 public:
  explicit GroupScope(whorlComm_t comm) : comm_(comm) { check(whorlGroupStart(), comm); }
  void end() {
    open_ = false;
    check(whorlGroupEnd(), comm_);
  }
  ~GroupScope() {
    if (!open_) return;
    // whorl issues no call of a group in which one was refused.
    static_cast<void>(whorlSend(nullptr, 0, whorlInt8, 0, nullptr, nullptr));
    static_cast<void>(whorlGroupEnd());
  }
  GroupScope(const GroupScope&) = delete;
  GroupScope& operator=(const GroupScope&) = delete;

 private:
  whorlComm_t comm_;
  bool open_ = true;
};

/// Counts the elements, as whorl takes them, of blocks of `rows[j]` rows of the first dimension; of
/// equal blocks if `rows` is empty.
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

/// Returns the values of `input` in dense memory that has nothing in common with `outputs`, which
/// are dense.
at::Tensor copy_outside(const Tensors& outputs, const at::Tensor& input) {
  const at::Tensor dense = dense_copy(input);
  const bool shared = std::any_of(outputs.begin(), outputs.end(),
                                  [&](const at::Tensor& output) { return overlap(output, dense); });
  return shared ? dense.clone() : dense;
}

/// Sends `from[j]` to rank j and receives `to[j]` from rank j. All tensors are dense.
void exchange(const Tensors& to, const Tensors& from, std::size_t self, const Target& on) {
  GroupScope group(on.comm);
  for (std::size_t peer = 0; peer < to.size(); ++peer) {
    if (peer == self) continue;
    const Elements out = elements(from[peer]), in = elements(to[peer]);
    if (out.count > 0) {
      check(whorlSend(out.data, out.count, out.type, static_cast<int>(peer), on.comm, on.stream),
            on.comm);
    }
    if (in.count > 0) {
      check(whorlRecv(in.data, in.count, in.type, static_cast<int>(peer), on.comm, on.stream),
            on.comm);
    }
  }
  if (from[self].numel() > 0) copy_values(to[self], from[self].reshape(to[self].sizes()));
  group.end();
}

} // namespace

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
               {input}, [output, input, output_sizes, input_sizes, n = ranks()](const Target& on) {
                 const at::Tensor to = dense_like(output), from = copy_outside({to}, input);
                 const Elements e = elements(from);
                 const auto sends = block_counts(from, input_sizes, n);
                 const auto receives = block_counts(to, output_sizes, n);
                 check(whorlAlltoAllv(e.data, sends.data(), nullptr, to.data_ptr(), receives.data(),
                                      nullptr, e.type, on.comm, on.stream),
                       on.comm);
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
               [outputs, inputs, self = self()](const Target& on) {
                 Tensors to, from;
                 for (const at::Tensor& tensor : outputs) to.push_back(dense_like(tensor));
                 for (const at::Tensor& tensor : inputs) from.push_back(copy_outside(to, tensor));
                 exchange(to, from, self, on);
                 for (std::size_t i = 0; i < to.size(); ++i) copy_values(outputs[i], to[i]);
               });
}

} // namespace whorl_torch
