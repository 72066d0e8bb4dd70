#include "perf/common/types.h"

#include <string_view>

namespace perf {

const std::vector<TypeInfo>& all_types() {
  static const auto* types = new std::vector<TypeInfo>{
      {XCCL(Int8), "int8", 1, false, true, 0, 0},
      {XCCL(Uint8), "uint8", 1, false, false, 0, 0},
      {XCCL(Int32), "int32", 4, false, true, 0, 0},
      {XCCL(Uint32), "uint32", 4, false, false, 0, 0},
      {XCCL(Int64), "int64", 8, false, true, 0, 0},
      {XCCL(Uint64), "uint64", 8, false, false, 0, 0},
      {XCCL(Float16), "half", 2, true, true, 5, 10},
      {XCCL(Float32), "float", 4, true, true, 8, 23},
      {XCCL(Float64), "double", 8, true, true, 11, 52},
      {XCCL(Bfloat16), "bfloat16", 2, true, true, 8, 7},
      {XCCL(Float8e4m3), "f8e4m3", 1, true, true, 4, 3},
      {XCCL(Float8e5m2), "f8e5m2", 1, true, true, 5, 2},
#ifndef WHORL_PERF_NCCL
      {XCCL(Int16), "int16", 2, false, true, 0, 0},
      {XCCL(Uint16), "uint16", 2, false, false, 0, 0},
      {XCCL(Bool), "bool", 1, false, false, 0, 0},
#endif
  };
  return *types;
}

const TypeInfo& info_of(DataType type) { return all_types()[static_cast<std::size_t>(type)]; }

const std::vector<Operator>& all_operators() {
  static const auto* operators = new std::vector<Operator>{
      Operator::kSum,  Operator::kProd, Operator::kMax,
      Operator::kMin,  Operator::kAvg,  Operator::kMulSum,
#ifndef WHORL_PERF_NCCL
      Operator::kBand, Operator::kBor,  Operator::kBxor,
#endif
  };
  return *operators;
}

bool is_truth(const TypeInfo& type) { return std::string_view(type.name) == "bool"; }

bool combines(const TypeInfo& type, Operator op) {
  if (op == Operator::kNone) return true;
  if (op == Operator::kAvg || op == Operator::kMulSum) return !is_truth(type);
  const bool bitwise = op == Operator::kBand || op == Operator::kBor || op == Operator::kBxor;
  return !bitwise || !type.is_float;
}

const char* name_of(Operator op) {
  switch (op) {
    case Operator::kSum:
      return "sum";
    case Operator::kProd:
      return "prod";
    case Operator::kMax:
      return "max";
    case Operator::kMin:
      return "min";
    case Operator::kAvg:
      return "avg";
    case Operator::kMulSum:
      return "mulsum";
    case Operator::kBand:
      return "band";
    case Operator::kBor:
      return "bor";
    case Operator::kBxor:
      return "bxor";
    case Operator::kNone:
      return "none";
  }
  return "none";
}

const TypeInfo* find_type(const std::string& text) {
  struct Alias {
    const char* alias;
    const char* name;
  };
  static constexpr Alias kAliases[] = {
      {"char", "int8"},         {"int", "int32"},       {"float16", "half"},
      {"float32", "float"},     {"float64", "double"},  {"bf16", "bfloat16"},
      {"float8e4m3", "f8e4m3"}, {"fp8_e4m3", "f8e4m3"}, {"float8e5m2", "f8e5m2"},
      {"fp8_e5m2", "f8e5m2"},
  };
  std::string name = text;
  for (const Alias& alias : kAliases) {
    if (text == alias.alias) name = alias.name;
  }
  for (const TypeInfo& type : all_types()) {
    if (name == type.name) return &type;
  }
  return nullptr;
}

bool find_operator(const std::string& text, Operator* op) {
  for (Operator candidate : all_operators()) {
    if (text == name_of(candidate)) {
      *op = candidate;
      return true;
    }
  }
  return false;
}

} // namespace perf
