#pragma once

#include <span>

#include "algorithms/algorithm.h"

namespace whorl {

std::span<const Algorithm> doubling_algorithms();

} // namespace whorl
