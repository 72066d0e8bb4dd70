#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace perf {

/// Parameter tensor of a model, with the number of elements of its gradient.
struct Parameter {
  std::string name;
  std::size_t elements;
};

/// Returns the parameters of a model in the order in which the model registers them. Known names:
/// workload_names(). Tied weights appear once.
std::vector<Parameter> model_parameters(const std::string& model);

bool known_workload(const std::string& model);
/// Returns "resnet50, bert-base, gpt2".
std::string workload_names();

/// Returns the sizes, in elements, of the buckets in which PyTorch's DistributedDataParallel
/// reduces these gradients from its second step on, in that order: parameters in reverse order of
/// registration, since gradients become ready that way; a bucket is closed by the parameter that
/// brings it to its cap, which is `first_cap_bytes` for the first bucket and `cap_bytes` for the
/// others.
std::vector<std::size_t> gradient_buckets(const std::vector<Parameter>& parameters,
                                          std::size_t element_bytes,
                                          std::size_t first_cap_bytes = std::size_t{1} << 20,
                                          std::size_t cap_bytes = std::size_t{25} << 20);

} // namespace perf
