#pragma once

#include "topology/graph.h"
#include "topology/hwloc_elements.h"
#include "topology/xml_file.h"

namespace whorl::topology {

/// Reader of the network and RDMA devices of hwloc's XML.
class HwlocPorts {
 public:
  /// Makes a reader that adds to `graph`. `file` and `graph` outlive this object.
  HwlocPorts(const XmlFile& file, Graph& graph) : file_(file), graph_(graph) {}
  /// Sets whether the file has the types of version 3.
  void set_newer(bool newer) noexcept { newer_ = newer; }

  /// Returns whether a PCI object has a network or RDMA device.
  bool has_any(Element object) const;
  /// Adds the ports of a network card: those that its RDMA device has, or one for each network
  /// device, or one.
  void read_card(Element object, int card);
  /// Adds a network or RDMA device that is on no PCI bus; nothing for other devices.
  void read_loose(Element os_device, int parent);

 private:
  bool is_openfabrics(Element os_device) const;
  bool is_network(Element os_device) const;
  bool has_type(Element os_device, unsigned number, unsigned bit) const;

  const XmlFile& file_;
  Graph& graph_;
  bool newer_ = false; ///< whether the file has the types of version 3
};

} // namespace whorl::topology
