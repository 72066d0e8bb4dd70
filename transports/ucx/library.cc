#include "transports/ucx/library.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <list>
#include <string_view>
#include <vector>

#include "base/params.h"

namespace whorl {
namespace {

/// Options of UCX as whorl needs them.
constexpr std::array<const char*, 4> kOptions{
    "UCX_HANDLE_ERRORS=none",  // no signal handlers
    "UCX_MEM_EVENTS=n",        // no changes to malloc() and munmap()
    "UCX_MM_ERROR_HANDLING=y", // shared memory is not given up for the sake of error handling
    // UCX would warn of the option above where it has no shared memory.
    "UCX_WARN_UNUSED_ENV_VARS=n",
};

std::mutex& mutex() {
  static auto* const instance = new std::mutex; // never destroyed: threads may outlive main()
  return *instance;
}

Status not_usable(const std::string& library, const std::string& reason) {
  return Status::error(
      Code::kSystemError,
      fmt::format("UCX, which WHORL_TRANSPORTS asks for, cannot be used: {} ({}); install UCX "
                  "(Debian's package is libucx0), name its libucp.so.0 in WHORL_UCX_LIBRARY, or "
                  "leave ucx out of WHORL_TRANSPORTS",
                  library, reason));
}

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

/// Fills the table. Returns the name of a function that is missing, or null.
const char* find_all(void* library, UcxApi& api) {
  const char* missing = nullptr;
  const auto get = [&](const char* name, auto& function) {
    if (!find(library, name, function)) missing = name;
  };
  get("ucp_get_version_string", api.version_string);
  get("ucs_status_string", api.status_string);
  get("ucp_config_read", api.config_read);
  get("ucp_config_release", api.config_release);
  get("ucp_init_version", api.init_version);
  get("ucp_cleanup", api.cleanup);
  get("ucp_worker_create", api.worker_create);
  get("ucp_worker_destroy", api.worker_destroy);
  get("ucp_worker_get_address", api.worker_get_address);
  get("ucp_worker_release_address", api.worker_release_address);
  get("ucp_worker_set_am_recv_handler", api.worker_set_am_recv_handler);
  get("ucp_worker_progress", api.worker_progress);
  get("ucp_worker_get_efd", api.worker_get_efd);
  get("ucp_worker_arm", api.worker_arm);
  get("ucp_ep_create", api.ep_create);
  get("ucp_ep_close_nbx", api.ep_close_nbx);
  get("ucp_ep_flush_nbx", api.ep_flush_nbx);
  get("ucp_am_send_nbx", api.am_send_nbx);
  get("ucp_am_recv_data_nbx", api.am_recv_data_nbx);
  get("ucp_am_data_release", api.am_data_release);
  get("ucp_request_check_status", api.request_check_status);
  get("ucp_request_free", api.request_free);
  return missing;
}

} // namespace

Result<const UcxApi*> load_ucx() {
  static UcxApi api;
  static bool loaded = false; // guarded by the lock of UcxEnvironment
  if (loaded) return &api;
  std::string name = param_text(Param::kUcxLibrary);
  if (name.empty()) name = "libucp.so.0";
  void* const library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return not_usable(name, ::dlerror());
  if (const char* const missing = find_all(library, api); missing != nullptr) {
    ::dlclose(library);
    return not_usable(name, fmt::format("it has no {}(); UCX 1.10 or later is needed", missing));
  }
  loaded = true;
  return &api;
}

UcxEnvironment::UcxEnvironment() : lock_(mutex()), previous_(environ) {
  std::vector<char*> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.push_back(*variable);
  for (const char* const option : kOptions) {
    const std::string_view text(option);
    const std::string name(text.substr(0, text.find('=')));
    if (std::getenv(name.c_str()) == nullptr) variables.push_back(const_cast<char*>(option));
  }
  variables.push_back(nullptr);
  // Another thread may be in getenv(), so an array is never freed; it serves again as long as the
  // process has the same variables.
  static auto* const arrays = new std::list<std::vector<char*>>;
  auto array = std::find(arrays->begin(), arrays->end(), variables);
  if (array == arrays->end()) array = arrays->insert(array, std::move(variables));
  environ = array->data();
}

UcxEnvironment::~UcxEnvironment() { environ = previous_; }

} // namespace whorl
