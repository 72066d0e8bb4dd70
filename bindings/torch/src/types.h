#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstddef>

#include "whorl/whorl.h"

namespace whorl_torch {

/// What the steps of an operation are issued on.
struct Target {
  whorlComm_t comm;
  void* stream = nullptr; ///< a cudaStream_t; null: the calling thread carries it out
};

/// Refuses with a sentence what cannot be communicated: sparse tensors and those of some devices.
void check_tensor(const at::Tensor& tensor, const char* operation);
/// Its part that concerns the device.
void check_device(const at::Tensor& tensor, const char* operation);

/// Dense memory of a tensor, as whorl takes it.
struct Elements {
  void* data;
  std::size_t count;
  whorlDataType_t type;
};
/// For operations that move data: any type; one without a name in whorl is moved as bytes.
Elements elements(const at::Tensor& dense);

/// The tensor itself if its elements lie side by side in logical order, else new memory of its
/// shape. Values are not copied.
at::Tensor dense_like(const at::Tensor& tensor);
/// Copies if the two are different memory.
void copy_values(const at::Tensor& to, const at::Tensor& from);
/// dense_like() with the values.
at::Tensor dense_copy(const at::Tensor& tensor);

/// A reduction as whorl does it. Lives for one operation.
class Reduction {
 public:
  /// Throws a sentence if `type` and `op` do not go together.
  Reduction(const c10d::ReduceOp& op, at::ScalarType type, const char* operation);
  /// As elements(), for tensors that this reduction is applied to.
  Elements elements(const at::Tensor& dense) const;
  /// The operator, made for `comm`; valid until this object is gone.
  whorlRedOp_t on(whorlComm_t comm);
  ~Reduction();
  Reduction(const Reduction&) = delete;
  Reduction& operator=(const Reduction&) = delete;

 private:
  whorlDataType_t type_;
  std::size_t per_element_ = 1; ///< 2 for complex numbers
  whorlRedOp_t op_ = whorlSum;
  at::Tensor factor_; ///< of a premultiplied sum
  whorlComm_t comm_ = nullptr;
};

} // namespace whorl_torch
