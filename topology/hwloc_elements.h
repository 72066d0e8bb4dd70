#pragma once

#include <algorithm>
#include <pugixml.hpp>
#include <string_view>
#include <vector>

namespace whorl::topology {

/// Element of hwloc's XML.
using Element = pugi::xml_node;

/// Returns the type of an object; empty if it has none.
inline std::string_view type_of(Element object) { return object.attribute("type").value(); }

/// Returns the value of `<info name="NAME" value="…"/>`; empty if the object lacks it.
inline std::string_view info_of(Element object, std::string_view name) {
  for (const Element info : object.children("info")) {
    if (info.attribute("name").value() == name) return info.attribute("value").value();
  }
  return {};
}

/// Returns the operating system's devices of an object, by name.
inline std::vector<Element> os_devices_of(Element object) {
  std::vector<Element> devices;
  for (const Element child : object.children("object")) {
    if (type_of(child) == "OSDev") devices.push_back(child);
  }
  std::stable_sort(devices.begin(), devices.end(), [](Element a, Element b) {
    return std::string_view(a.attribute("name").value()) < b.attribute("name").value();
  });
  return devices;
}

} // namespace whorl::topology
