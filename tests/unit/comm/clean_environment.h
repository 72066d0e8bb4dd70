#pragma once

#include <cstdlib>
#include <map>
#include <string>

#include "base/params.h"

namespace whorl::test {

/// An environment without any of whorl's variables; the destructor restores what was there.
class CleanEnvironment {
 public:
  CleanEnvironment() {
    for (const ParamInfo& param : all_params()) {
      if (const char* const value = std::getenv(param.name)) saved_[param.name] = value;
      unsetenv(param.name);
    }
  }
  ~CleanEnvironment() {
    for (const ParamInfo& param : all_params()) unsetenv(param.name);
    for (const auto& [name, value] : saved_) setenv(name.c_str(), value.c_str(), 1);
  }
  CleanEnvironment(const CleanEnvironment&) = delete;
  CleanEnvironment& operator=(const CleanEnvironment&) = delete;

 private:
  std::map<std::string, std::string> saved_;
};

} // namespace whorl::test
