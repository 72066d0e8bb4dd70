#pragma once

#include <torch/csrc/utils/pybind.h>

namespace whorl_torch {

/// Defines the Python classes of Works, whose get_future() returns a whorl_torch.futures.Future,
/// and what that class needs.
void define_works(pybind11::module& module);

} // namespace whorl_torch
