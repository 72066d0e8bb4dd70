#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace whorl::verbs {

/// Describes the failure of a request by the status of its completion, the vendor's code and, where
/// there is one, what to look at.
std::string describe_completion(ibv_wc_status status, std::uint32_t vendor_code);

/// Describes why memory could not be registered, and the remedy.
std::string describe_registration(std::size_t bytes, int error, const std::string& device);

/// Describes why a queue pair could not be connected, and the remedy.
std::string describe_connecting(int error);

} // namespace whorl::verbs
