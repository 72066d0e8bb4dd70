#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "perf/common/api.h"

namespace perf {

/// An element type by the names that the tables use.
struct TypeInfo {
  DataType type;
  const char* name;
  std::size_t bytes;
  bool is_float;
  bool is_signed;
  int exponent_bits; ///< floats only
  int mantissa_bits; ///< floats: stored bits; integers of |v| ≤ 2^(mantissa_bits + 1) are exact
};

/// All types, in the order of their values; NCCL has the first twelve.
const std::vector<TypeInfo>& all_types();
const TypeInfo& info_of(DataType type);

/// A reduction as it is named on the command line.
enum class Operator { kSum, kProd, kMax, kMin, kAvg, kMulSum, kBand, kBor, kBxor, kNone };
/// Those that `-o all` runs, each with the types that it combines().
const std::vector<Operator>& all_operators();
bool combines(const TypeInfo& type, Operator op);
/// Whether elements are truth values: any byte but 0 is true, results are 0 or 1.
bool is_truth(const TypeInfo& type);
const char* name_of(Operator op);

/// Whether this build of the programs can name `text` as a type or an operator.
const TypeInfo* find_type(const std::string& text);
bool find_operator(const std::string& text, Operator* op);

} // namespace perf
