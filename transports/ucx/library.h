#pragma once

#include <ucp/api/ucp.h>

#include <mutex>

#include "base/status.h"

namespace whorl {

/// Functions of UCX's library libucp.so.0 (and of libucs.so.0 below it) that whorl uses. Loaded at
/// run time, so that whorl runs where there is no UCX.
struct UcxApi {
  decltype(&ucp_get_version_string) version_string;
  decltype(&ucs_status_string) status_string;
  decltype(&ucp_config_read) config_read;
  decltype(&ucp_config_release) config_release;
  decltype(&ucp_init_version) init_version;
  decltype(&ucp_cleanup) cleanup;
  decltype(&ucp_worker_create) worker_create;
  decltype(&ucp_worker_destroy) worker_destroy;
  decltype(&ucp_worker_get_address) worker_get_address;
  decltype(&ucp_worker_release_address) worker_release_address;
  decltype(&ucp_worker_set_am_recv_handler) worker_set_am_recv_handler;
  decltype(&ucp_worker_progress) worker_progress;
  decltype(&ucp_worker_get_efd) worker_get_efd;
  decltype(&ucp_worker_arm) worker_arm;
  decltype(&ucp_ep_create) ep_create;
  decltype(&ucp_ep_close_nbx) ep_close_nbx;
  decltype(&ucp_ep_flush_nbx) ep_flush_nbx;
  decltype(&ucp_am_send_nbx) am_send_nbx;
  decltype(&ucp_am_recv_data_nbx) am_recv_data_nbx;
  decltype(&ucp_am_data_release) am_data_release;
  decltype(&ucp_request_check_status) request_check_status;
  decltype(&ucp_request_free) request_free;
};

/// Loads UCX, once in a process, from WHORL_UCX_LIBRARY or where the dynamic linker finds it. The
/// error has a remedy. A UCX that the process has loaded before is used as it is. Call it inside a
/// UcxEnvironment.
Result<const UcxApi*> load_ucx();

/// Environment of calls in which UCX reads its options: those that whorl needs, below what the user
/// has set. UCX reads some of them when it is loaded and some when a worker is created, so that
/// ucp_config_modify() would come too late, or UCX would complain about an option that its
/// transports do not have. One object at a time in a process; the others wait.
class UcxEnvironment {
 public:
  UcxEnvironment();
  UcxEnvironment(const UcxEnvironment&) = delete;
  UcxEnvironment& operator=(const UcxEnvironment&) = delete;
  ~UcxEnvironment();

 private:
  const std::lock_guard<std::mutex> lock_;
  char** previous_;
};

} // namespace whorl
