#include "bindings/torch/src/types.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <optional>

#include "bindings/torch/src/device_stream.h"
#include "bindings/torch/src/errors.h"

namespace whorl_torch {
namespace {

using c10d::ReduceOp;

std::optional<whorlDataType_t> type_of(at::ScalarType type) {
  switch (type) {
    case at::kChar:
      return whorlInt8;
    case at::kByte:
      return whorlUint8;
    case at::kInt:
      return whorlInt32;
    case at::kUInt32:
      return whorlUint32;
    case at::kLong:
      return whorlInt64;
    case at::kUInt64:
      return whorlUint64;
    case at::kHalf:
      return whorlFloat16;
    case at::kFloat:
      return whorlFloat32;
    case at::kDouble:
      return whorlFloat64;
    case at::kBFloat16:
      return whorlBfloat16;
    case at::kFloat8_e4m3fn:
      return whorlFloat8e4m3;
    case at::kFloat8_e5m2:
      return whorlFloat8e5m2;
    case at::kShort:
      return whorlInt16;
    case at::kUInt16:
      return whorlUint16;
    case at::kBool:
      return whorlBool;
    default:
      return std::nullopt;
  }
}

const char* name_of(ReduceOp::RedOpType op) {
  switch (op) {
    case ReduceOp::SUM:
      return "SUM";
    case ReduceOp::AVG:
      return "AVG";
    case ReduceOp::PRODUCT:
      return "PRODUCT";
    case ReduceOp::MIN:
      return "MIN";
    case ReduceOp::MAX:
      return "MAX";
    case ReduceOp::BAND:
      return "BAND";
    case ReduceOp::BOR:
      return "BOR";
    case ReduceOp::BXOR:
      return "BXOR";
    case ReduceOp::PREMUL_SUM:
      return "PREMUL_SUM";
    default:
      return "UNUSED";
  }
}

bool is_bitwise(ReduceOp::RedOpType op) {
  return op == ReduceOp::BAND || op == ReduceOp::BOR || op == ReduceOp::BXOR;
}

std::optional<whorlRedOp_t> operator_of(ReduceOp::RedOpType op) {
  switch (op) {
    case ReduceOp::SUM:
      return whorlSum;
    case ReduceOp::AVG:
      return whorlAvg;
    case ReduceOp::PRODUCT:
      return whorlProd;
    case ReduceOp::MIN:
      return whorlMin;
    case ReduceOp::MAX:
      return whorlMax;
    case ReduceOp::BAND:
      return whorlBand;
    case ReduceOp::BOR:
      return whorlBor;
    case ReduceOp::BXOR:
      return whorlBxor;
    case ReduceOp::PREMUL_SUM:
      return whorlSum;
    default:
      return std::nullopt;
  }
}

} // namespace

void check_tensor(const at::Tensor& tensor, const char* operation) {
  if (!tensor.defined()) {
    fail<c10::ValueError>("whorl: ", operation, ": the tensor is undefined");
  }
  if (tensor.layout() != at::kStrided) {
    fail<c10::ValueError>("whorl: ", operation, ": tensors of layout ", tensor.layout(),
                          " are not supported; pass tensor.to_dense(), or the indices and values "
                          "by themselves (all_reduce takes tensors of layout Sparse)");
  }
  check_device(tensor, operation);
}

void check_device(const at::Tensor& tensor, const char* operation) {
  if (tensor.device().is_cpu()) return;
  const std::string why = why_not_on(tensor.device());
  if (why.empty()) return;
  fail<c10::ValueError>("whorl: ", operation, ": the tensor lies on ", tensor.device(), ", ", why,
                        "; pass tensor.cpu(), or give that device a backend of its own, as in "
                        "init_process_group(\"cpu:whorl,cuda:nccl\")");
}

Elements elements(const at::Tensor& dense) {
  const auto count = static_cast<std::size_t>(dense.numel());
  void* data = dense.data_ptr();
  if (const auto type = type_of(dense.scalar_type())) return {data, count, *type};
  return {data, count * dense.element_size(), whorlUint8};
}

at::Tensor dense_like(const at::Tensor& tensor) {
  if (tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg()) return tensor;
  return at::empty(tensor.sizes(), tensor.options().memory_format(at::MemoryFormat::Contiguous));
}

void copy_values(const at::Tensor& to, const at::Tensor& from) {
  if (to.is_same(from) || to.numel() == 0) return;
  // Values of a variable that is trained may be written, as every in-place collective does.
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  to.copy_(from);
}

at::Tensor dense_copy(const at::Tensor& tensor) {
  at::Tensor dense = dense_like(tensor);
  copy_values(dense, tensor);
  return dense;
}

Reduction::Reduction(const ReduceOp& op, at::ScalarType type, const char* operation) {
  const ReduceOp::RedOpType kind = op.op_;
  at::ScalarType real = type;
  if (at::isComplexType(type)) {
    if (kind != ReduceOp::SUM && kind != ReduceOp::AVG && kind != ReduceOp::PREMUL_SUM) {
      fail<c10::ValueError>("whorl: ", operation, ": ", name_of(kind),
                            " of complex numbers is not defined; SUM, AVG and PREMUL_SUM are");
    }
    real = at::toRealValueType(type);
    per_element_ = 2;
  }
  if (is_bitwise(kind) && !at::isIntegralType(real, /*includeBool=*/true)) {
    fail<c10::ValueError>("whorl: ", operation, ": ", name_of(kind),
                          " is for integers and bool, not ", type);
  }
  if (real == at::kBool && (kind == ReduceOp::AVG || kind == ReduceOp::PREMUL_SUM)) {
    fail<c10::ValueError>("whorl: ", operation, ": ", name_of(kind),
                          " of bool is not defined; convert the tensor first");
  }
  const auto known_type = type_of(real);
  const auto known_op = operator_of(kind);
  if (!known_type || !known_op) {
    fail<c10::ValueError>("whorl: ", operation, ": ", name_of(kind), " of ", type,
                          " is not supported; convert the tensor first");
  }
  type_ = *known_type;
  op_ = *known_op;
  if (kind == ReduceOp::PREMUL_SUM) {
    const auto* supplement =
        dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
    if (supplement == nullptr) {
      fail<c10::ValueError>("whorl: ", operation,
                            ": PREMUL_SUM needs a factor; make the operator "
                            "with torch.distributed._make_nccl_premul_sum");
    }
    const at::Tensor given =
        supplement->tensor_factor.defined()
            ? supplement->tensor_factor.detach().to(at::kCPU).reshape({1})
            : at::full({1}, supplement->double_factor, at::TensorOptions().dtype(at::kDouble));
    factor_ = given.to(real).contiguous();
    if (at::isIntegralType(real, /*includeBool=*/false) &&
        factor_.item<double>() != given.item<double>()) {
      fail<c10::ValueError>("whorl: ", operation, ": the factor of PREMUL_SUM is ",
                            given.item<double>(), ", which is no number of type ", type,
                            "; convert the tensor first");
    }
  }
}

Elements Reduction::elements(const at::Tensor& dense) const {
  return {dense.data_ptr(), static_cast<std::size_t>(dense.numel()) * per_element_, type_};
}

whorlRedOp_t Reduction::on(whorlComm_t comm) {
  if (factor_.defined() && comm_ == nullptr) {
    check(
        whorlRedOpCreatePreMulSum(&op_, factor_.data_ptr(), type_, whorlScalarHostImmediate, comm),
        comm);
    comm_ = comm;
  }
  return op_;
}

Reduction::~Reduction() {
  if (comm_ != nullptr) whorlRedOpDestroy(op_, comm_);
}

} // namespace whorl_torch
