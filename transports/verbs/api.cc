#include "transports/verbs/api.h"

#include <dlfcn.h>
#include <fmt/core.h>

namespace whorl {
namespace {

struct Loaded {
  VerbsApi api;
  std::string error;

  Loaded() {
    constexpr const char* kLibrary = "libibverbs.so.1";
    void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      error = fmt::format("{} is not installed (Debian: ibverbs-providers)", kLibrary);
      return;
    }
#define WHORL_VERBS_FIND(name, symbol)                                                     \
  api.name = reinterpret_cast<decltype(&::symbol)>(dlsym(library, #symbol));               \
  if (api.name == nullptr && error.empty()) {                                              \
    error = fmt::format("{} has no {}: it is older than rdma-core 33", kLibrary, #symbol); \
  }
    WHORL_VERBS_FUNCTIONS(WHORL_VERBS_FIND)
#undef WHORL_VERBS_FIND
    // Keeps registered memory out of children of fork(), where the kernel does not do so by itself.
    if (error.empty()) static_cast<void>(api.fork_init());
  }
};

} // namespace

const VerbsApi* find_verbs_api(std::string* why) {
  static const auto& loaded = *new Loaded; // never destroyed: threads may outlive main()
  *why = loaded.error;
  return loaded.error.empty() ? &loaded.api : nullptr;
}

} // namespace whorl
