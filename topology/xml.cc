#include "topology/xml.h"

#include <fmt/core.h>

#include <string_view>
#include <utility>

#include "topology/hwloc_xml.h"
#include "topology/nccl_xml.h"

namespace whorl::topology {
namespace {

Result<Graph> read(const Result<XmlFile>& file) {
  if (!file.ok()) return file.status();
  const std::string_view root = file->root().name();
  if (root == "system") return read_nccl_xml(*file);
  if (root == "topology") return read_hwloc_xml(*file);
  return file->error(file->root(),
                     "is no topology: hwloc's begins with <topology>, NCCL's with <system>");
}

} // namespace

Result<Graph> read_xml_file(const std::string& path) { return read(XmlFile::read(path)); }

Result<Graph> read_xml(std::string text, const std::string& name) {
  return read(XmlFile::parse(std::move(text), name));
}

} // namespace whorl::topology
