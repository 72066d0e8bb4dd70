#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "perf/common/api.h"

namespace perf {

/// Element type with the name that the tables use.
struct TypeInfo {
  DataType type;
  const char* name;
  std::size_t bytes;
  bool is_float;
  bool is_signed;
  int exponent_bits; ///< number of exponent bits; floats only
  int mantissa_bits; ///< number of stored bits; integers of |v| ≤ 2^(mantissa_bits + 1) are exact
};

/// Returns all types, in the order of their values; NCCL has the first twelve.
const std::vector<TypeInfo>& all_types();
const TypeInfo& info_of(DataType type);

/// Reduction as the command line names it.
enum class Operator { kSum, kProd, kMax, kMin, kAvg, kMulSum, kBand, kBor, kBxor, kNone };
/// Returns the operators that `-o all` runs.
const std::vector<Operator>& all_operators();
/// Returns whether `op` can combine elements of the type.
bool combines(const TypeInfo& type, Operator op);
/// Returns whether elements are truth values: any byte but 0 is true, results are 0 or 1.
bool is_truth(const TypeInfo& type);
const char* name_of(Operator op);

/// Returns the type that `text` names, or nullptr if this build of the programs has none.
const TypeInfo* find_type(const std::string& text);
/// Returns whether `text` names an operator of this build, and stores that operator.
bool find_operator(const std::string& text, Operator* op);

} // namespace perf
