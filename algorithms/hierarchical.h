#pragma once

#include <span>

#include "algorithms/algorithm.h"

namespace whorl {

std::span<const Algorithm> hierarchical_algorithms();

} // namespace whorl
