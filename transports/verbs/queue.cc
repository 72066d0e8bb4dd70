#include "transports/verbs/queue.h"

#include <endian.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "net/address.h"
#include "transports/verbs/errors.h"

namespace whorl {
namespace {

// Wait of a device before it sends again to a receiver that was not ready, as the code of 0.64 ms.
constexpr std::uint8_t kNotReadyTimer = 12;
// A device that waits for a receive request is alive, and so is its queue.
constexpr std::uint8_t kRetryForEver = 7;
constexpr std::uint8_t kHopLimit = 64;
// Sizes of writes whose bytes travel in the request, the best first: then the device need not read
// them from memory. 64 has room for a line.
constexpr std::array<std::uint32_t, 4> kInlineBytes{256, 128, 64, 0};
// Number of receive requests that are posted together.
constexpr std::uint32_t kReceivesAtOnce = 8;

} // namespace

VerbsQueue::~VerbsQueue() {
  if (pair_ != nullptr) device_.api->destroy_qp(pair_);
}

Status VerbsQueue::create(ibv_cq* completions, std::uint32_t index, const Depth& depth,
                          const VerbsPort& port, const VerbsSettings& settings) {
  index_ = index;
  port_ = port.number;
  const auto most = static_cast<std::uint32_t>(std::max(device_.limits.max_qp_wr, 1));
  ibv_qp_init_attr wanted{};
  for (const std::uint32_t inline_bytes : kInlineBytes) {
    wanted = {};
    wanted.send_cq = wanted.recv_cq = completions;
    wanted.qp_type = IBV_QPT_RC;
    wanted.cap.max_send_wr = std::min(depth.sends, most);
    wanted.cap.max_recv_wr = std::min(depth.receives, most);
    wanted.cap.max_send_sge = std::tuple_size_v<decltype(VerbsWrite::from)>;
    wanted.cap.max_recv_sge = 1;
    wanted.cap.max_inline_data = inline_bytes;
    pair_ = device_.api->create_qp(device_.domain, &wanted);
    if (pair_ != nullptr) break;
  }
  if (pair_ == nullptr) {
    return Status::error(
        Code::kSystemError,
        fmt::format("the RDMA device {} has no queue pair left ({}); fewer channels "
                    "(WHORL_MAX_CHANNELS) or communicators need fewer",
                    device_.name, errno_text(-errno)));
  }
  inline_bytes_ = wanted.cap.max_inline_data;
  depth_ = std::min<std::uint64_t>(depth.sends, wanted.cap.max_send_wr);
  missing_receives_ = std::min(depth.receives, wanted.cap.max_recv_wr);
  stride_ = std::max<std::uint64_t>(depth_ / 4, 1);

  ibv_qp_attr start{};
  start.qp_state = IBV_QPS_INIT;
  start.pkey_index = settings.pkey_index;
  start.port_num = static_cast<std::uint8_t>(port.number);
  start.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  const int result = device_.api->modify_qp(
      pair_, &start, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (result == 0) return {};
  return Status::error(Code::kSystemError,
                       fmt::format("a queue of the RDMA device {} cannot be used: {}; is "
                                   "WHORL_IB_PKEY={} in the port's table?",
                                   device_.name, errno_text(-result), settings.pkey_index));
}

int VerbsQueue::connect(VerbsReceiver& receiver, const verbs::RailAddress& own,
                        const verbs::RailAddress& remote, std::uint64_t remote_memory,
                        const verbs::PortAddress& peer, const VerbsPort& port,
                        const VerbsSettings& settings) noexcept {
  receiver_ = &receiver;
  post_receives(); // before the first notice may come
  if (failed_) return error_;
  remote_key_ = remote.key;
  remote_memory_ = remote_memory;
  ibv_qp_attr receive{};
  receive.qp_state = IBV_QPS_RTR;
  receive.path_mtu = static_cast<ibv_mtu>(std::min(port.address.mtu, peer.mtu));
  receive.dest_qp_num = remote.queue;
  receive.rq_psn = remote.first & 0xffffff;
  receive.max_dest_rd_atomic = 1;
  receive.min_rnr_timer = kNotReadyTimer;
  receive.ah_attr.dlid = peer.lid;
  receive.ah_attr.sl = settings.service_level;
  receive.ah_attr.port_num = static_cast<std::uint8_t>(port.number);
  if (port.address.fabric != verbs::Fabric::kInfiniBand || port.address.needs_grh != 0 ||
      peer.needs_grh != 0) {
    receive.ah_attr.is_global = 1;
    std::memcpy(receive.ah_attr.grh.dgid.raw, peer.gid.data(), peer.gid.size());
    receive.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(port.gid_index);
    receive.ah_attr.grh.hop_limit = kHopLimit;
    receive.ah_attr.grh.traffic_class = settings.traffic_class;
  }
  int result =
      device_.api->modify_qp(pair_, &receive,
                             IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (result != 0) return -std::abs(result);
  ibv_qp_attr send{};
  send.qp_state = IBV_QPS_RTS;
  send.timeout = settings.timeout;
  send.retry_cnt = settings.retry_count;
  send.rnr_retry = kRetryForEver;
  send.sq_psn = own.first & 0xffffff;
  send.max_rd_atomic = 1;
  result = device_.api->modify_qp(pair_, &send,
                                  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                      IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  return -std::abs(result);
}

void VerbsQueue::post(const VerbsWrite& write) noexcept {
  if (failed_) {
    ++posted_; // never completes
    return;
  }
  std::array<ibv_sge, std::tuple_size_v<decltype(write.from)>> pieces;
  ibv_send_wr request{};
  request.sg_list = pieces.data();
  std::size_t bytes = 0;
  for (const VerbsPiece& piece : write.from) {
    if (piece.bytes == 0) continue;
    pieces[static_cast<std::size_t>(request.num_sge++)] = {
        reinterpret_cast<std::uint64_t>(piece.data), piece.bytes, piece.key};
    bytes += piece.bytes;
  }
  request.wr_id = label(++posted_);
  request.opcode = IBV_WR_RDMA_WRITE;
  if (write.notice) {
    request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    request.imm_data = htobe32(write.notice->word());
  }
  if (bytes <= inline_bytes_) request.send_flags |= IBV_SEND_INLINE;
  if (write.completion || posted_ - signaled_ >= stride_) {
    request.send_flags |= IBV_SEND_SIGNALED;
    signaled_ = posted_;
  }
  request.wr.rdma = {write.to, write.key};
  post(&request);
}

void VerbsQueue::request_completion(std::uint64_t number) noexcept {
  if (failed_ || signaled_ >= number || !room(1)) return;
  ibv_send_wr request{}; // a write of nothing
  request.wr_id = label(++posted_);
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma = {remote_memory_, remote_key_};
  signaled_ = posted_;
  post(&request);
}

void VerbsQueue::post(ibv_send_wr* request) noexcept {
  ibv_send_wr* refused = nullptr;
  const int result = pair_->context->ops.post_send(pair_, request, &refused);
  if (result != 0) fail(-std::abs(result));
}

/// Notes that the device does not take requests; `error` is −errno.
void VerbsQueue::fail(int error) noexcept {
  failed_ = true;
  error_ = error;
  if (receiver_ != nullptr) receiver_->queue_failed();
}

/// Posts the receive requests that are missing: each takes a notice.
void VerbsQueue::post_receives() noexcept {
  std::array<ibv_recv_wr, kReceivesAtOnce> requests{};
  for (std::uint32_t i = 0; i < kReceivesAtOnce; ++i) {
    requests[i].wr_id = label(0) | kReceive;
    if (i > 0) requests[i - 1].next = &requests[i];
  }
  while (missing_receives_ > 0 && !failed_) {
    const std::uint32_t count = std::min(missing_receives_, kReceivesAtOnce);
    requests[count - 1].next = nullptr;
    ibv_recv_wr* refused = nullptr;
    const int result = pair_->context->ops.post_recv(pair_, requests.data(), &refused);
    missing_receives_ -= count;
    waiting_receives_ += count;
    if (result == 0) continue;
    waiting_receives_ -= count;
    fail(-std::abs(result));
  }
}

void VerbsQueue::close() noexcept {
  if (std::exchange(ended_, true)) return;
  closed_ = !failed_;
  failed_ = true;
  ibv_qp_attr error{};
  error.qp_state = IBV_QPS_ERR;
  if (pair_ != nullptr && device_.api->modify_qp(pair_, &error, IBV_QP_STATE) == 0) return;
  waiting_receives_ = 0; // of a device that is lost nothing comes any more
}

void VerbsQueue::complete(const ibv_wc& completion) noexcept {
  const bool receive = (completion.wr_id & kReceive) != 0;
  if (receive && waiting_receives_ > 0) --waiting_receives_;
  if (completion.status == IBV_WC_SUCCESS) {
    if (!receive) {
      const std::uint64_t ahead = (completion.wr_id - completed_) & kPosition;
      if (ahead <= posted_ - completed_) completed_ += ahead;
    } else if (receiver_ != nullptr) {
      receiver_->take(verbs::Notice(be32toh(completion.imm_data)));
      if (++missing_receives_ == kReceivesAtOnce) post_receives();
    }
    return;
  }
  // The first error is the reason; the rest of the requests are flushed.
  if (status_ == IBV_WC_SUCCESS ||
      (status_ == IBV_WC_WR_FLUSH_ERR && completion.status != IBV_WC_WR_FLUSH_ERR)) {
    status_ = completion.status;
    vendor_code_ = completion.vendor_err;
  }
  if (!std::exchange(failed_, true) && receiver_ != nullptr) receiver_->queue_failed();
}

std::string VerbsQueue::port_name() const { return fmt::format("{}:{}", device_.name, port_); }

std::string VerbsQueue::failure() const {
  std::string text;
  if (closed_) {
    text = "it was given up, because the other end had failed or a port had no link";
  } else if (status_ != IBV_WC_SUCCESS) {
    text = verbs::describe_completion(status_, vendor_code_);
  } else {
    text = fmt::format("requests are refused ({})", errno_text(error_));
  }
  ibv_port_attr port{};
  if (device_.query(port_, &port) == 0 && port.state != IBV_PORT_ACTIVE) {
    text += fmt::format("; the sender's port {} has no link", port_name());
  }
  return text;
}

VerbsCompletions::~VerbsCompletions() {
  if (queue_ != nullptr) device_.api->destroy_cq(queue_);
}

Status VerbsCompletions::create(std::size_t entries, ibv_comp_channel* wakeup) {
  const auto most = static_cast<std::size_t>(std::max(device_.limits.max_cqe, 1));
  if (entries <= most) {
    queue_ = device_.api->create_cq(device_.context, static_cast<int>(entries), nullptr, wakeup, 0);
    if (queue_ != nullptr) return {};
  }
  return Status::error(
      Code::kSystemError,
      fmt::format("the RDMA device {} has no room for {} completions at a time ({}); fewer slots "
                  "(WHORL_SLOTS) need fewer",
                  device_.name, entries,
                  entries <= most ? errno_text(-errno) : fmt::format("it has {}", most)));
}

std::uint32_t VerbsCompletions::add(VerbsQueue* queue) {
  queues_.push_back(queue);
  return static_cast<std::uint32_t>(queues_.size() - 1);
}

void VerbsCompletions::poll() noexcept {
  constexpr int kAtOnce = 16;
  std::array<ibv_wc, kAtOnce> found;
  for (;;) {
    const int count = queue_->context->ops.poll_cq(queue_, kAtOnce, found.data());
    for (int i = 0; i < count; ++i) {
      const ibv_wc& completion = found[static_cast<std::size_t>(i)];
      const std::uint64_t index = VerbsQueue::index_of(completion);
      if (index < queues_.size()) queues_[index]->complete(completion);
    }
    if (count < kAtOnce) return;
  }
}

} // namespace whorl
