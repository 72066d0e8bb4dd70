#include "transports/verbs/errors.h"

#include <fmt/core.h>

#include <cerrno>

#include "net/address.h"

namespace whorl::verbs {
namespace {

struct Words {
  const char* name;
  const char* text;
};

Words words_of(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
      return {"retry exceeded",
              "the peer's RDMA device does not answer; look at the ports and cables of both hosts "
              "(ibstat, rdma link), with RoCE at lost packets (priority flow control, "
              "WHORL_IB_GID_INDEX), and see WHORL_IB_TIMEOUT for slow networks"};
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return {"receiver not ready", "the peer's queue has no room for a notification"};
    case IBV_WC_REM_ACCESS_ERR:
      return {"remote access error",
              "the peer's device refuses access to the memory that the peer has shared"};
    case IBV_WC_REM_OP_ERR:
      return {"remote operation error", "the peer's device could not carry out a request"};
    case IBV_WC_REM_INV_REQ_ERR:
      return {"invalid request", "the peer's device does not accept a request"};
    case IBV_WC_REM_ABORT_ERR:
      return {"aborted", "the peer's device has ended the connection"};
    case IBV_WC_LOC_PROT_ERR:
      return {"local protection error", "memory of the sender is no longer registered"};
    case IBV_WC_LOC_LEN_ERR:
      return {"local length error", "a request is larger than this device allows"};
    case IBV_WC_LOC_QP_OP_ERR:
      return {"local queue error", "the sender's device does not accept a request"};
    case IBV_WC_LOC_ACCESS_ERR:
      return {"local access error", "the sender's device refuses access to its own memory"};
    case IBV_WC_WR_FLUSH_ERR:
      return {"flushed",
              "the queue has failed before; look for an earlier event of the device "
              "in the kernel's log (dmesg)"};
    case IBV_WC_RESP_TIMEOUT_ERR:
      return {"response timeout", "the peer's device has not answered in time"};
    case IBV_WC_FATAL_ERR:
      return {"fatal error", "the sender's device has failed; see the kernel's log (dmesg)"};
    default:
      return {"general error", "see the kernel's log (dmesg)"};
  }
}

} // namespace

std::string describe_completion(ibv_wc_status status, std::uint32_t vendor_code) {
  const Words words = words_of(status);
  return fmt::format("{} (RDMA status {}, {}, vendor's code {:#x})", words.text,
                     static_cast<int>(status), words.name, vendor_code);
}

std::string describe_registration(std::size_t bytes, int error, const std::string& device) {
  const char* const remedy =
      error == -ENOMEM || error == -EAGAIN || error == -EPERM
          ? "; the limit on locked memory is too small: raise it (`ulimit -l unlimited`, "
            "LimitMEMLOCK=infinity of the service, --ulimit memlock=-1 of the container), or "
            "set WHORL_MEMORY_BUDGET or WHORL_SLOT_BYTES"
          : "";
  return fmt::format("{} bytes of memory cannot be registered with the RDMA device {}: {}{}", bytes,
                     device, errno_text(error), remedy);
}

std::string describe_connecting(int error) {
  const char* remedy = "";
  switch (error) {
    case -ETIMEDOUT:
    case -EHOSTUNREACH:
    case -ENETUNREACH:
      remedy =
          "; the address behind the GID cannot be reached: choose another one by "
          "WHORL_IB_GID_INDEX (show_gids, rdma link), or another device by WHORL_IB_HCA";
      break;
    case -EINVAL:
      remedy = "; check WHORL_IB_GID_INDEX, WHORL_IB_PKEY and WHORL_IB_SL";
      break;
    case -ENODEV:
      remedy = "; the GID's network interface is gone";
      break;
    default:
      break;
  }
  return fmt::format("{}{}", errno_text(error), remedy);
}

} // namespace whorl::verbs
