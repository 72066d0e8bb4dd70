#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstddef>

#include "whorl/whorl.h"

namespace whorl_torch {

/// Communicator and stream on which the steps of an operation are issued.
struct Target {
  whorlComm_t comm;
  void* stream = nullptr; ///< a cudaStream_t; null: the calling thread carries it out
};

/// Throws a sentence if a tensor cannot be communicated: sparse ones, and those of some devices.
void check_tensor(const at::Tensor& tensor, const char* operation);
/// Throws a sentence if a tensor is on a device that whorl does not support.
void check_device(const at::Tensor& tensor, const char* operation);

/// Memory of a dense tensor, as whorl takes it.
struct Elements {
  void* data;
  std::size_t count;
  whorlDataType_t type;
};
/// Describes a tensor of any type for operations that move data; a type that whorl does not know is
/// moved as bytes.
Elements elements(const at::Tensor& dense);

/// Returns the tensor itself if its elements lie side by side in logical order, else a new one of
/// its shape. Values are not copied.
at::Tensor dense_like(const at::Tensor& tensor);
/// Copies the values, unless the two tensors are the same memory.
void copy_values(const at::Tensor& to, const at::Tensor& from);
/// Returns dense_like() with the values.
at::Tensor dense_copy(const at::Tensor& tensor);

/// Reduction operator and datatype of one operation, as whorl takes them.
class Reduction {
 public:
  /// Translates `op` for `type`; throws a sentence if the two do not go together.
  Reduction(const c10d::ReduceOp& op, at::ScalarType type, const char* operation);
  /// Describes a tensor to which the reduction is applied.
  Elements elements(const at::Tensor& dense) const;
  /// Returns the operator, made for `comm`; valid as long as this object exists.
  whorlRedOp_t on(whorlComm_t comm);
  ~Reduction();
  Reduction(const Reduction&) = delete;
  Reduction& operator=(const Reduction&) = delete;

 private:
  whorlDataType_t type_;
  std::size_t per_element_ = 1; ///< elements of whorl for each of torch; 2 for complex numbers
  whorlRedOp_t op_ = whorlSum;
  at::Tensor factor_; ///< factor of a premultiplied sum
  whorlComm_t comm_ = nullptr;
};

} // namespace whorl_torch
