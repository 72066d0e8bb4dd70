#include "machine.h"

#include <pugixml.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "target.h"
#include "topology/hwloc_xml.h"
#include "topology/json.h"
#include "topology/nccl_xml.h"
#include "topology/text.h"
#include "topology/xml.h"

namespace whorl::fuzz {
namespace {

using topology::Graph;
using topology::Source;

/// Reads what must be readable, without notes.
Graph read_again(const std::string& xml) {
  auto graph = topology::read_xml(xml, "again");
  if (!graph.ok()) require(false, graph.status().message() + "\n" + xml);
  graph->notes.clear();
  return *std::move(graph);
}

/// Returns the first lines in which two texts differ; "" if there are none.
std::string difference(const std::string& a, const std::string& b) {
  std::istringstream lines_a(a), lines_b(b);
  std::string line_a, line_b;
  for (bool more = true; more && line_a == line_b;) {
    more = static_cast<bool>(std::getline(lines_a, line_a));
    if (!std::getline(lines_b, line_b)) line_b.clear();
  }
  return line_a == line_b ? "" : line_a + "\n" + line_b + "\n";
}

void require_same(const Graph& graph, const std::string& xml) {
  const Graph again = read_again(xml);
  if (again == graph) return;
  require(false, "another machine is read:\n" +
                     difference(topology::to_tree(graph), topology::to_tree(again)) +
                     difference(topology::to_json(graph), topology::to_json(again)) + xml);
}

/// Reverses the children of each element: of hwloc's objects only, and not those of devices, whose
/// order counts where two have one name.
void reverse(pugi::xml_node element, bool hwloc) {
  std::vector<pugi::xml_node> children;
  for (const pugi::xml_node child : element.children()) {
    if (!hwloc || std::string_view(child.name()) == "object") children.push_back(child);
  }
  if (std::string_view(element.attribute("type").value()) == "PCIDev") return;
  for (const pugi::xml_node child : children) {
    reverse(child, hwloc);
    element.prepend_move(child);
  }
}

/// Returns whether a file of NCCL describes several hosts, of which the first one counts.
bool has_several_hosts(pugi::xml_node system) {
  const std::string_view first = system.child("cpu").attribute("host_hash").value();
  for (const pugi::xml_node cpu : system.children("cpu")) {
    if (cpu.attribute("host_hash").value() != first) return true;
  }
  return false;
}

} // namespace

std::vector<std::string> seeds() { return {}; } // files

std::optional<Graph> read_machine(const std::uint8_t* data, std::size_t size) {
  auto graph = topology::read_xml(std::string(reinterpret_cast<const char*>(data), size), "input");
  if (!graph.ok()) {
    require(graph.status().message().starts_with("input"), graph.status().message());
    return {};
  }
  graph->notes.clear();
  return *std::move(graph);
}

void check_form(const std::uint8_t* data, std::size_t size, Source form) {
  const auto graph = read_machine(data, size);
  if (!graph || graph->source != form) return;
  const std::string nccl = topology::write_nccl_xml(*graph);
  const std::string hwloc = topology::write_hwloc_xml(*graph);
  const bool is_nccl = form == Source::kNccl;
  require_same(*graph, is_nccl ? nccl : hwloc);
  read_again(is_nccl ? hwloc : nccl);
  pugi::xml_document document;
  require(static_cast<bool>(document.load_buffer(data, size)), "XML");
  const pugi::xml_node root = document.document_element();
  if (is_nccl && has_several_hosts(root)) return;
  reverse(is_nccl ? root : root.child("object"), !is_nccl);
  std::ostringstream text;
  document.save(text);
  require_same(*graph, text.str());
}

} // namespace whorl::fuzz
