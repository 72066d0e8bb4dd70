#include "transports/ucx/link.h"

#include <array>
#include <cerrno>

#include "transports/ucx/endpoint.h"

namespace whorl {

UcxLink::UcxLink(UcxWorker& with, FailureJudge& judged_by, int self_rank, int peer)
    : worker(with), judge(judged_by), self(self_rank), rank(peer) {}

UcxLink::~UcxLink() = default;

bool UcxLink::send(unsigned kind, const ucx::Header& header, const void* payload, std::size_t bytes,
                   ucp_send_nbx_callback_t done, void* argument) noexcept {
  if (ep == nullptr) { // closed after a failure
    fail(UCS_ERR_CANCELED);
    return true;
  }
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.cb.send = done;
  param.user_data = argument;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  sent_bytes.fetch_add(sizeof header + bytes, std::memory_order_relaxed);
  const ucs_status_ptr_t request =
      worker.api().am_send_nbx(ep, kind, &header, sizeof header, payload, bytes, &param);
  if (UCS_PTR_IS_ERR(request)) fail(UCS_PTR_STATUS(request));
  return !UCS_PTR_IS_PTR(request);
}

void UcxLink::greet(std::size_t bytes) noexcept {
  static constexpr std::array<std::byte, kGreetingBytes> kNothing{};
  hello = {.token = token_of_peer, .from = static_cast<std::uint32_t>(self)};
  marking.store(true, std::memory_order_relaxed);
  marked_bytes = sent_bytes.load(std::memory_order_relaxed);
  const auto done = [](void* request, ucs_status_t result, void* argument) {
    auto& link = *static_cast<UcxLink*>(argument);
    if (result != UCS_OK) link.fail(result);
    link.arrived(link.marked_bytes);
    link.marking.store(false, std::memory_order_release); // pairs with acquire in flushed()
    link.worker.api().request_free(request);
  };
  if (send(ucx::kHello, hello, kNothing.data(), bytes, done, this)) {
    arrived(marked_bytes);
    marking.store(false, std::memory_order_release);
  }
}

bool UcxLink::flushed() noexcept {
  if (!flush_pending() &&
      sent_bytes.load(std::memory_order_relaxed) - taken.load(std::memory_order_relaxed) <=
          kSurelyTaken) {
    return true;
  }
  // A peer that has left in good order has received everything that it needs.
  if (failed() && left.load(std::memory_order_acquire)) return true;
  const std::lock_guard lock(worker.mutex());
  if (flush_pending() || failed()) return false;
  greet(0);
  return !flush_pending() && !failed();
}

void UcxLink::begin_flush() noexcept {
  if (ep == nullptr || failed()) return;
  flushing.store(true, std::memory_order_relaxed);
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = [](void* request, ucs_status_t, void* argument) {
    auto& link = *static_cast<UcxLink*>(argument);
    link.flushing.store(false, std::memory_order_release); // pairs with acquire in all_delivered()
    link.worker.api().request_free(request);
  };
  param.user_data = this;
  if (!UCS_PTR_IS_PTR(worker.api().ep_flush_nbx(ep, &param))) {
    flushing.store(false, std::memory_order_relaxed);
  }
}

void UcxLink::close() noexcept {
  if (ep == nullptr) return;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t request = worker.api().ep_close_nbx(ep, &param);
  if (UCS_PTR_IS_PTR(request)) closing = request;
  ep = nullptr;
}

bool UcxLink::closed() noexcept {
  if (closing != nullptr && worker.api().request_check_status(closing) != UCS_INPROGRESS) {
    worker.api().request_free(closing);
    closing = nullptr;
  }
  return ep == nullptr && closing == nullptr;
}

void UcxLink::fail(ucs_status_t result) noexcept {
  ucs_status_t none = UCS_OK;
  // Pairs with acquire in failed().
  status.compare_exchange_strong(none, result, std::memory_order_release);
}

Progress UcxLink::lost(bool needed) noexcept {
  const ucs_status_t result = status.load(std::memory_order_acquire);
  const bool unreachable = result == UCS_ERR_ENDPOINT_TIMEOUT || result == UCS_ERR_TIMED_OUT;
  return judge.connection_lost(rank, unreachable ? -ETIMEDOUT : -ECONNRESET, needed);
}

} // namespace whorl
