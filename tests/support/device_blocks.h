#pragma once

// Collectives on a device whose blocks have different sizes, for ranks that are threads or
// processes. Each function is called by all ranks and returns "", or an error.

#include <cuda.h>
#include <whorl/whorl.h>

#include <cstddef>
#include <string>

namespace whorl::test {

/// Rank that calls collectives in a stream.
struct DeviceCaller {
  int rank, nranks;
  whorlComm_t comm;
  CUstream stream;
};

/// Exchanges random blocks, some of them empty, of up to `largest` elements.
std::string all_to_all_v(const DeviceCaller& caller, unsigned seed, std::size_t largest);
/// Calls every collective that has such a form, some of them in place as well. Returns an error if
/// the host has carried out any; where `sums_by_host` is set, unless it has carried out those that
/// combine blocks and no others.
std::string every_form(const DeviceCaller& caller, bool sums_by_host = false);
/// Gathers blocks of one size by calls of both forms.
std::string both_forms(const DeviceCaller& caller);

/// Exchanges blocks of three ranks: rank 2 sends three elements to rank 1, which expects five.
/// Returns an error unless the call fails, or soon after it the communicator, by a sentence with
/// both counts.
std::string wrong_counts(const DeviceCaller& caller);

} // namespace whorl::test
