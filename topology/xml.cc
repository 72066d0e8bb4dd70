#include "topology/xml.h"

#include <fmt/core.h>

#include <string_view>
#include <utility>

#include "topology/hwloc_xml.h"
#include "topology/nccl_xml.h"

namespace whorl::topology {
namespace {

/// Most GPUs and NICs of a machine: answers are about pairs of them.
constexpr std::size_t kMaxDevices = 256;

Result<Graph> read(const Result<XmlFile>& file) {
  if (!file.ok()) return file.status();
  const std::string_view root = file->root().name();
  if (root != "system" && root != "topology") {
    return file->error(file->root(),
                       "is no topology: hwloc's begins with <topology>, NCCL's with <system>");
  }
  auto graph = root == "system" ? read_nccl_xml(*file) : read_hwloc_xml(*file);
  if (!graph.ok()) return graph;
  const std::size_t devices = graph->all(NodeKind::kGpu).size() + graph->all(NodeKind::kNic).size();
  if (devices > kMaxDevices) {
    return file->error(
        file->root(),
        fmt::format("has {} GPUs and NICs; machines of up to {} are read", devices, kMaxDevices));
  }
  return graph;
}

} // namespace

Result<Graph> read_xml_file(const std::string& path) { return read(XmlFile::read(path)); }

Result<Graph> read_xml(std::string text, const std::string& name) {
  return read(XmlFile::parse(std::move(text), name));
}

} // namespace whorl::topology
