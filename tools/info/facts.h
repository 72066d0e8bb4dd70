// What whorl-info says of this process and machine.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace whorl::info {

/// Collects everything, as the JSON of --json. What cannot be found out has an "error" with the
/// reason instead.
nlohmann::json collect();

/// Formats the facts, for programs as JSON and for people as text.
std::string to_json(const nlohmann::json& facts);
std::string to_text(const nlohmann::json& facts);

} // namespace whorl::info
