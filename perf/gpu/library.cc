#include "perf/gpu/library.h"

#include <dlfcn.h>

#include <fstream>
#include <iterator>

namespace perf::gpu {

Library Library::whorl() {
  Library library;
  library.name_ = "whorl";
#define PERF_LIBRARY_TAKE(name) library.name = &XCCL(name);
  PERF_LIBRARY_FUNCTIONS(PERF_LIBRARY_TAKE)
#undef PERF_LIBRARY_TAKE
  return library;
}

Library Library::nccl(const std::string& path) {
  Library library;
  library.name_ = "nccl";
  void* const loaded = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) throw Failure(std::string("there is no NCCL: ") + dlerror());
#define PERF_LIBRARY_FIND(name)                                                         \
  library.name = reinterpret_cast<decltype(library.name)>(dlsym(loaded, "nccl" #name)); \
  if (library.name == nullptr) throw Failure(path + " has no nccl" #name);
  PERF_LIBRARY_FUNCTIONS(PERF_LIBRARY_FIND)
#undef PERF_LIBRARY_FIND
  return library;
}

int Library::version() const {
  int version = 0;
  check(GetVersion(&version), nullptr, "GetVersion");
  return version;
}

void Library::check(Result result, Comm comm, const char* call) const {
  if (result == XCCL(Success)) return;
  const char* const sentence = GetLastError(comm);
  throw Failure(name_ + ": " + call + ": " + GetErrorString(result) +
                (sentence != nullptr && *sentence != '\0' ? std::string(": ") + sentence : ""));
}

bool whorl_mentions(const std::string& name) {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&XCCL(AllReduce)), &info) == 0) return false;
  std::ifstream file(info.dli_fname, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  return text.find(name) != std::string::npos;
}

} // namespace perf::gpu
