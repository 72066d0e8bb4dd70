// The functions of hwloc that whorl calls: of the library with which whorl was linked, or of one
// that is loaded at run time (WHORL_HWLOC_LIBRARY).
#pragma once

#include <hwloc.h>

#include "base/status.h"

namespace whorl::topology {

/// Functions of hwloc, by their names without the prefix.
struct HwlocFunctions {
  decltype(&::hwloc_topology_init) topology_init;
  decltype(&::hwloc_topology_destroy) topology_destroy;
  decltype(&::hwloc_topology_set_io_types_filter) topology_set_io_types_filter;
  decltype(&::hwloc_topology_set_type_filter) topology_set_type_filter;
  decltype(&::hwloc_topology_load) topology_load;
  decltype(&::hwloc_topology_export_xmlbuffer) topology_export_xmlbuffer;
  decltype(&::hwloc_free_xmlbuffer) free_xmlbuffer;
};

/// Returns the functions, which stay valid as long as the process lives, or why there are none.
Result<const HwlocFunctions*> hwloc_functions();

} // namespace whorl::topology
