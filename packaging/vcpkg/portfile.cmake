# A port beside its sources: vcpkg install whorl --overlay-ports=packaging/vcpkg
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
# The library is a shared one for every triplet; what it needs may be archives.
vcpkg_check_linkage(ONLY_DYNAMIC_LIBRARY)

set(FEATURE_OPTIONS "")
foreach(feature IN ITEMS hwloc yaml)
  if(feature IN_LIST FEATURES)
    list(APPEND FEATURE_OPTIONS "-D${feature}=enabled")
  else()
    list(APPEND FEATURE_OPTIONS "-D${feature}=disabled")
  endif()
endforeach()
if("programs" IN_LIST FEATURES)
  list(APPEND FEATURE_OPTIONS -Dperf=enabled)
else()
  list(APPEND FEATURE_OPTIONS -Dperf=disabled)
endif()

vcpkg_configure_meson(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS
    ${FEATURE_OPTIONS}
    -Dtests=disabled
    -Dbenchmarks=disabled
    -Dcuda=disabled
    -Dpmix=disabled
    -Ducx=disabled
    -Dverbs=disabled)
vcpkg_install_meson()
vcpkg_fixup_pkgconfig()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/whorl)
# The files of CMake find the prefix from their own place, which is another one here.
vcpkg_replace_string("${CURRENT_PACKAGES_DIR}/share/whorl/whorlConfig.cmake"
  "\${CMAKE_CURRENT_LIST_DIR}/../../.." "\${CMAKE_CURRENT_LIST_DIR}/../..")
if("programs" IN_LIST FEATURES)
  file(GLOB programs RELATIVE "${CURRENT_PACKAGES_DIR}/bin" "${CURRENT_PACKAGES_DIR}/bin/whorl-*")
  vcpkg_copy_tools(TOOL_NAMES ${programs} AUTO_CLEAN)
endif()
file(REMOVE_RECURSE
  "${CURRENT_PACKAGES_DIR}/debug/include"
  "${CURRENT_PACKAGES_DIR}/debug/share"
  "${CURRENT_PACKAGES_DIR}/share/doc")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
