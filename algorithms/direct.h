#pragma once

#include <span>

#include "algorithms/algorithm.h"

namespace whorl {

std::span<const Algorithm> direct_algorithms();

} // namespace whorl
