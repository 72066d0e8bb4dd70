#include "transports/ucx/worker.h"

#include <fmt/core.h>
#include <pthread.h>
#include <signal.h>

#include <cstring>

namespace whorl {
namespace {

// Version of the programming interface that whorl needs; what came later is told by field masks.
constexpr unsigned kMajor = 1, kMinor = 10;

/// Blocker of signals for the threads that UCX starts, which inherit the mask.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &previous_);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &previous_, nullptr); }

 private:
  sigset_t previous_;
};

} // namespace

Result<std::unique_ptr<UcxWorker>> UcxWorker::make() {
  const UcxEnvironment environment;
  const BlockedSignals blocked;
  const auto api = load_ucx();
  if (!api.ok()) return api.status();
  std::unique_ptr<UcxWorker> worker(new UcxWorker(*api));
  WHORL_TRY(worker->create());
  return worker;
}

Status UcxWorker::failed(const char* what, ucs_status_t status) const {
  return Status::error(
      Code::kSystemError,
      fmt::format("UCX {} cannot make {}: {}; `ucx_info -d` lists the devices of this host, and "
                  "UCX_TLS and UCX_NET_DEVICES limit what is used",
                  api_->version_string(), what, api_->status_string(status)));
}

Status UcxWorker::create() {
  ucp_config_t* config = nullptr;
  ucs_status_t status = api_->config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return failed("sense of its options (UCX_...)", status);
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  status = api_->init_version(kMajor, kMinor, &params, config, &context_);
  api_->config_release(config);
  if (status != UCS_OK) {
    context_ = nullptr;
    return failed("a context", status);
  }
  ucp_worker_params_t worker_params{};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker_params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  status = api_->worker_create(context_, &worker_params, &worker_);
  if (status != UCS_OK) {
    worker_ = nullptr;
    return failed("a worker", status);
  }
  status = api_->worker_get_efd(worker_, &descriptor_);
  if (status != UCS_OK) return failed("a descriptor to sleep on", status);
  ucp_address_t* address = nullptr;
  std::size_t bytes = 0;
  status = api_->worker_get_address(worker_, &address, &bytes);
  if (status != UCS_OK) return failed("an address", status);
  address_.resize(bytes);
  std::memcpy(address_.data(), address, bytes);
  api_->worker_release_address(worker_, address);
  return {};
}

UcxWorker::~UcxWorker() {
  if (worker_ != nullptr) api_->worker_destroy(worker_);
  if (context_ != nullptr) api_->cleanup(context_);
}

Status UcxWorker::set_handler(unsigned id, ucp_am_recv_callback_t handler, void* argument) {
  ucp_am_handler_param_t params{};
  params.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                      UCP_AM_HANDLER_PARAM_FIELD_ARG;
  params.id = id;
  params.cb = handler;
  params.arg = argument;
  const std::lock_guard lock(mutex_);
  const ucs_status_t status = api_->worker_set_am_recv_handler(worker_, &params);
  return status == UCS_OK ? Status() : failed("a handler of active messages", status);
}

} // namespace whorl
