#include "topology/hwloc_library.h"

#ifdef WHORL_HWLOC_LIBRARY
#include <dlfcn.h>
#include <fmt/core.h>

#include <type_traits>
#endif

namespace whorl::topology {

#ifdef WHORL_HWLOC_LIBRARY

namespace {

Result<HwlocFunctions> load() {
  const auto failed = [] {
    const char* reason = ::dlerror();
    return Status::error(Code::kSystemError,
                         fmt::format("{}; install hwloc 2 (Debian's package is libhwloc15)",
                                     reason != nullptr ? reason : WHORL_HWLOC_LIBRARY));
  };
  void* const library = ::dlopen(WHORL_HWLOC_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return failed();
  HwlocFunctions found{};
  const auto get = [library](const char* name, auto& function) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    return function != nullptr;
  };
  const bool complete =
      get("hwloc_topology_init", found.topology_init) &&
      get("hwloc_topology_destroy", found.topology_destroy) &&
      get("hwloc_topology_set_io_types_filter", found.topology_set_io_types_filter) &&
      get("hwloc_topology_set_type_filter", found.topology_set_type_filter) &&
      get("hwloc_topology_load", found.topology_load) &&
      get("hwloc_topology_export_xmlbuffer", found.topology_export_xmlbuffer) &&
      get("hwloc_free_xmlbuffer", found.free_xmlbuffer);
  if (!complete) return failed();
  return found;
}

} // namespace

Result<const HwlocFunctions*> hwloc_functions() {
  static const auto* const loaded = new Result<HwlocFunctions>(load()); // never destroyed
  if (!loaded->ok()) return loaded->status();
  return &**loaded;
}

#else

Result<const HwlocFunctions*> hwloc_functions() {
  static constexpr HwlocFunctions kLinked{
      ::hwloc_topology_init,
      ::hwloc_topology_destroy,
      ::hwloc_topology_set_io_types_filter,
      ::hwloc_topology_set_type_filter,
      ::hwloc_topology_load,
      ::hwloc_topology_export_xmlbuffer,
      ::hwloc_free_xmlbuffer,
  };
  return &kLinked;
}

#endif

} // namespace whorl::topology
