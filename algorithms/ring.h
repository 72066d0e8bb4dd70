#pragma once

#include <span>

#include "algorithms/algorithm.h"

namespace whorl {

std::span<const Algorithm> ring_algorithms();

} // namespace whorl
