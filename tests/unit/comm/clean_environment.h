#pragma once

#include <cstdlib>
#include <map>
#include <string>

#include "base/params.h"

namespace whorl::test {

/// Environment without any of whorl's variables; the destructor restores them.
class CleanEnvironment {
 public:
  CleanEnvironment() {
    for (const ParamInfo& param : all_params()) {
      for (const char* const name : {param.name, param.old_name}) {
        if (name == nullptr) continue;
        if (const char* const value = std::getenv(name)) saved_[name] = value;
        unsetenv(name);
      }
    }
  }
  ~CleanEnvironment() {
    for (const ParamInfo& param : all_params()) {
      unsetenv(param.name);
      if (param.old_name != nullptr) unsetenv(param.old_name);
    }
    for (const auto& [name, value] : saved_) setenv(name.c_str(), value.c_str(), 1);
  }
  CleanEnvironment(const CleanEnvironment&) = delete;
  CleanEnvironment& operator=(const CleanEnvironment&) = delete;

 private:
  std::map<std::string, std::string> saved_;
};

} // namespace whorl::test
