#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "topology/graph.h"

namespace whorl::fuzz {

/// Reads a machine from XML, without its notes. Returns nothing for text that is refused, with an
/// error that begins with the name of the file.
std::optional<topology::Graph> read_machine(const std::uint8_t* data, std::size_t size);

/// Reads a machine from a form of XML, and requires that it can be written and read: in this form,
/// the same machine is read, whatever the order of elements; in the other one, a machine.
void check_form(const std::uint8_t* data, std::size_t size, topology::Source form);

} // namespace whorl::fuzz
