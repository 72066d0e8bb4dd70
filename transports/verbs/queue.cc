#include "transports/verbs/queue.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "net/address.h"
#include "transports/verbs/errors.h"

namespace whorl {
namespace {

// Wait of a device before it sends again to a receiver that was not ready, as the code of 0.64 ms.
constexpr std::uint8_t kNotReadyTimer = 12;
constexpr std::uint8_t kHopLimit = 64;
// Sizes of writes whose bytes travel in the request, the best first: then the device need not read
// them from memory. The last has room for a line.
constexpr std::array<std::uint32_t, 3> kInlineBytes{128, 64, 0};

} // namespace

VerbsQueue::~VerbsQueue() {
  if (pair_ != nullptr) device_.api->destroy_qp(pair_);
}

Status VerbsQueue::create(ibv_cq* completions, std::uint32_t index, std::uint32_t depth,
                          const VerbsPort& port, const VerbsSettings& settings) {
  index_ = index;
  port_ = port.number;
  const auto most = static_cast<std::uint32_t>(std::max(device_.limits.max_qp_wr, 1));
  ibv_qp_init_attr wanted{};
  for (const std::uint32_t inline_bytes : kInlineBytes) {
    wanted = {};
    wanted.send_cq = wanted.recv_cq = completions;
    wanted.qp_type = IBV_QPT_RC;
    wanted.cap.max_send_wr = std::min(depth, most);
    wanted.cap.max_recv_wr = 1;
    wanted.cap.max_send_sge = wanted.cap.max_recv_sge = 1;
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
  depth_ = std::min<std::uint64_t>(depth, wanted.cap.max_send_wr);
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

int VerbsQueue::connect(const verbs::EndpointAddress& own, const verbs::EndpointAddress& remote,
                        const verbs::PortAddress& peer, const VerbsPort& port,
                        const VerbsSettings& settings) noexcept {
  remote_key_ = remote.key;
  remote_memory_ = remote.memory;
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
  if (port.address.fabric != verbs::Fabric::kInfiniBand) {
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
  send.rnr_retry = 6;
  send.sq_psn = own.first & 0xffffff;
  send.max_rd_atomic = 1;
  result = device_.api->modify_qp(pair_, &send,
                                  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                      IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  return -std::abs(result);
}

void VerbsQueue::post(std::span<const VerbsWrite> writes) noexcept {
  constexpr std::size_t kMost = 2;
  std::array<ibv_send_wr, kMost> requests;
  std::array<ibv_sge, kMost> pieces;
  const std::size_t count = std::min(writes.size(), kMost);
  if (failed_) return;
  for (std::size_t i = 0; i < count; ++i) {
    const VerbsWrite& write = writes[i];
    ibv_send_wr& request = requests[i];
    pieces[i] = {reinterpret_cast<std::uint64_t>(write.from), write.bytes, key_};
    request = {};
    request.wr_id = label(posted_ + i + 1);
    request.next = i + 1 < count ? &requests[i + 1] : nullptr;
    request.sg_list = &pieces[i];
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_WRITE;
    request.send_flags = write.bytes <= inline_bytes_ ? static_cast<unsigned>(IBV_SEND_INLINE) : 0U;
    request.wr.rdma = {write.to, remote_key_};
  }
  posted_ += count;
  if (posted_ - signaled_ >= stride_) {
    requests[count - 1].send_flags |= IBV_SEND_SIGNALED;
    signaled_ = posted_;
  }
  post(requests.data());
}

void VerbsQueue::request_completion() noexcept {
  if (failed_ || signaled_ == posted_ || !room(1)) return;
  ibv_send_wr request{}; // a write of nothing
  request.wr_id = label(++posted_);
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma = {remote_memory_, remote_key_};
  signaled_ = posted_;
  post(&request);
}

int VerbsQueue::post(ibv_send_wr* first) noexcept {
  ibv_send_wr* refused = nullptr;
  const int result = pair_->context->ops.post_send(pair_, first, &refused);
  if (result != 0) {
    failed_ = true;
    error_ = -std::abs(result);
  }
  return result;
}

void VerbsQueue::complete(const ibv_wc& completion) noexcept {
  const std::uint64_t position = completion.wr_id & ((std::uint64_t{1} << kPositionBits) - 1);
  if (completion.status == IBV_WC_SUCCESS) {
    completed_ = std::max(completed_, position);
    return;
  }
  // The first error is the reason; the rest of the requests are flushed.
  if (status_ == IBV_WC_SUCCESS ||
      (status_ == IBV_WC_WR_FLUSH_ERR && completion.status != IBV_WC_WR_FLUSH_ERR)) {
    status_ = completion.status;
    vendor_code_ = completion.vendor_err;
  }
  failed_ = true;
}

std::string VerbsQueue::failure() const {
  std::string text = status_ != IBV_WC_SUCCESS
                         ? verbs::describe_completion(status_, vendor_code_)
                         : fmt::format("requests are refused ({})", errno_text(error_));
  ibv_port_attr port{};
  if (device_.query(port_, &port) == 0 && port.state != IBV_PORT_ACTIVE) {
    text += fmt::format("; the sender's port {}:{} has no link", device_.name, port_);
  }
  return text;
}

VerbsCompletions::~VerbsCompletions() {
  if (queue_ != nullptr) device_.api->destroy_cq(queue_);
}

Status VerbsCompletions::create(std::size_t entries) {
  const auto most = static_cast<std::size_t>(std::max(device_.limits.max_cqe, 1));
  if (entries <= most) {
    queue_ =
        device_.api->create_cq(device_.context, static_cast<int>(entries), nullptr, nullptr, 0);
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

bool VerbsCompletions::poll() noexcept {
  constexpr int kAtOnce = 16;
  std::array<ibv_wc, kAtOnce> found;
  bool any = false;
  for (;;) {
    const int count = queue_->context->ops.poll_cq(queue_, kAtOnce, found.data());
    for (int i = 0; i < count; ++i) {
      const ibv_wc& completion = found[static_cast<std::size_t>(i)];
      const std::uint64_t index = completion.wr_id >> VerbsQueue::kPositionBits;
      if (index < queues_.size()) queues_[index]->complete(completion);
    }
    any |= count > 0;
    if (count < kAtOnce) return any;
  }
}

} // namespace whorl
