#pragma once

#include <span>

#include "algorithms/algorithm.h"

namespace whorl {

std::span<const Algorithm> halving_doubling_algorithms();

} // namespace whorl
