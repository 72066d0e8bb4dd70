#include "tests/support/fake_verbs/fabric.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

namespace whorl::test {
namespace {

FakeFabric* fabric = nullptr;

constexpr std::size_t kLineBytes = 64, kCreditBytes = 16;

} // namespace

struct FakeFabric::Queue {
  ibv_qp pair{};
  Completions* completions = nullptr;
  std::uint32_t remote = 0;
  std::deque<std::uint64_t> receives; ///< identifiers of the receive requests
  bool failed = false;
};

struct FakeFabric::Completions {
  ibv_cq queue{};
  ibv_comp_channel* channel = nullptr;
  std::deque<ibv_wc> found;
  bool armed = false;
};

/// Functions behind the table; each has the fabric's lock.
struct FakeCalls {
  using Lock = std::lock_guard<std::recursive_mutex>;
  struct Context {
    ibv_context context{};
    FakeFabric::Device* device = nullptr;
  };

  static FakeFabric::Device& device_of(ibv_context* context) {
    return *reinterpret_cast<Context*>(context)->device;
  }
  static int fork_init() { return 0; }
  static ibv_device** get_device_list(int* count) {
    *count = static_cast<int>(fabric->list_.size());
    return fabric->list_.data();
  }
  static void free_device_list(ibv_device**) {}
  static const char* get_device_name(ibv_device* device) { return device->name; }
  static ibv_context* open_device(ibv_device* device) {
    const Lock lock(fabric->mutex_);
    const auto at =
        std::find(fabric->list_.begin(), fabric->list_.end(), device) - fabric->list_.begin();
    FakeFabric::Device& known = fabric->devices_[static_cast<std::size_t>(at)];
    if (known.open_error != 0) {
      errno = known.open_error;
      return nullptr;
    }
    auto* const context = new Context;
    context->device = &known;
    context->context.device = device;
    context->context.ops.post_send = post_send;
    context->context.ops.post_recv = post_recv;
    context->context.ops.poll_cq = poll_cq;
    context->context.ops.req_notify_cq = req_notify_cq;
    ++fabric->objects_;
    return &context->context;
  }
  static int close_device(ibv_context* context) {
    delete reinterpret_cast<Context*>(context);
    --fabric->objects_;
    return 0;
  }
  static int query_device(ibv_context* context, ibv_device_attr* out) {
    *out = {};
    out->phys_port_cnt = 1;
    out->max_qp_wr = device_of(context).max_requests;
    out->max_cqe = device_of(context).max_completions;
    return 0;
  }
  static int query_port(ibv_context* context, std::uint8_t, _compat_ibv_port_attr* out) {
    const Lock lock(fabric->mutex_);
    const FakeFabric::Device& device = device_of(context);
    auto& port = *reinterpret_cast<ibv_port_attr*>(out);
    port = {};
    port.state = device.state;
    port.active_mtu = IBV_MTU_4096;
    port.gid_tbl_len = static_cast<int>(device.gids.size());
    port.lid = device.lid;
    port.active_width = device.width;
    port.active_speed = device.speed;
    port.flags = device.port_flags;
    port.link_layer = static_cast<std::uint8_t>(device.link_layer);
    return 0;
  }
  static ssize_t query_gid_table(ibv_context* context, ibv_gid_entry* out, std::size_t most,
                                 std::uint32_t, std::size_t) {
    const auto& gids = device_of(context).gids;
    std::copy_n(gids.begin(), std::min(most, gids.size()), out);
    return static_cast<ssize_t>(std::min(most, gids.size()));
  }
  static ibv_pd* alloc_pd(ibv_context* context) {
    ++fabric->objects_;
    auto* const domain = new ibv_pd{};
    domain->context = context;
    return domain;
  }
  static int dealloc_pd(ibv_pd* domain) {
    delete domain;
    --fabric->objects_;
    return 0;
  }
  static ibv_mr* reg_mr(ibv_pd* domain, void* memory, std::size_t size, int) {
    const Lock lock(fabric->mutex_);
    if (fabric->registered_bytes_ + size > device_of(domain->context).memory_bytes) {
      errno = ENOMEM;
      return nullptr;
    }
    if (device_of(domain->context).hides_from_children) {
      ::madvise(memory, size, MADV_DONTFORK);
    }
    auto* const region = new ibv_mr{};
    region->addr = memory;
    region->length = size;
    region->lkey = region->rkey = fabric->next_number_++;
    fabric->registered_bytes_ += size;
    fabric->regions_[region->rkey] = {reinterpret_cast<std::uint64_t>(memory), size};
    ++fabric->objects_;
    return region;
  }
  static int dereg_mr(ibv_mr* region) {
    const Lock lock(fabric->mutex_);
    fabric->regions_.erase(region->rkey);
    fabric->registered_bytes_ -= region->length;
    delete region;
    --fabric->objects_;
    return 0;
  }
  static ibv_comp_channel* create_comp_channel(ibv_context* context) {
    auto* const channel = new ibv_comp_channel{};
    channel->context = context;
    channel->fd = ::eventfd(0, EFD_SEMAPHORE);
    ++fabric->objects_;
    return channel;
  }
  static int destroy_comp_channel(ibv_comp_channel* channel) {
    ::close(channel->fd);
    delete channel;
    --fabric->objects_;
    return 0;
  }
  static int get_cq_event(ibv_comp_channel* channel, ibv_cq** queue, void**) {
    std::uint64_t count = 0;
    if (::read(channel->fd, &count, sizeof count) < 0) return -1;
    *queue = nullptr; // ack_cq_events() does not ask for it
    return 0;
  }
  static void ack_cq_events(ibv_cq*, unsigned) {}
  static int req_notify_cq(ibv_cq* queue, int) {
    const Lock lock(fabric->mutex_);
    reinterpret_cast<FakeFabric::Completions*>(queue)->armed = true;
    return 0;
  }
  static ibv_cq* create_cq(ibv_context* context, int entries, void*, ibv_comp_channel* channel,
                           int) {
    auto* const completions = new FakeFabric::Completions;
    completions->channel = channel;
    completions->queue.context = context;
    completions->queue.cqe = entries;
    ++fabric->objects_;
    return &completions->queue;
  }
  static int destroy_cq(ibv_cq* queue) {
    delete reinterpret_cast<FakeFabric::Completions*>(queue);
    --fabric->objects_;
    return 0;
  }
  static ibv_qp* create_qp(ibv_pd* domain, ibv_qp_init_attr* wanted) {
    const Lock lock(fabric->mutex_);
    FakeFabric::Device& device = device_of(domain->context);
    if (wanted->cap.max_inline_data > device.inline_bytes || device.queues == 0) {
      errno = device.queues == 0 ? ENOMEM : EINVAL;
      return nullptr;
    }
    --device.queues;
    auto* const queue = new FakeFabric::Queue;
    queue->pair.context = domain->context;
    queue->pair.qp_num = fabric->next_number_++;
    queue->completions = reinterpret_cast<FakeFabric::Completions*>(wanted->send_cq);
    fabric->queues_[queue->pair.qp_num] = queue;
    ++fabric->objects_;
    return &queue->pair;
  }
  static int modify_qp(ibv_qp* pair, ibv_qp_attr* attributes, int) {
    const Lock lock(fabric->mutex_);
    const auto refused = fabric->refused_states_.find(attributes->qp_state);
    if (refused != fabric->refused_states_.end() && refused->second != 0) return refused->second;
    auto& queue = *reinterpret_cast<FakeFabric::Queue*>(pair);
    FakeFabric::Device& device = device_of(pair->context);
    if (attributes->qp_state == IBV_QPS_RTR && attributes->ah_attr.is_global == 0) {
      const auto peer = fabric->queues_.find(attributes->dest_qp_num);
      int flags = device.port_flags;
      if (peer != fabric->queues_.end()) {
        flags |= device_of(peer->second->pair.context).port_flags;
      }
      if ((flags & IBV_QPF_GRH_REQUIRED) != 0) return EINVAL;
    }
    if (attributes->qp_state == IBV_QPS_RTR && device.connect_error != 0 &&
        device.failing_connects > 0) {
      --device.failing_connects;
      return device.connect_error;
    }
    if (attributes->qp_state == IBV_QPS_RTR) queue.remote = attributes->dest_qp_num;
    if (attributes->qp_state == IBV_QPS_ERR) fabric->fail(queue);
    fabric->attributes_ = *attributes;
    return 0;
  }
  static int destroy_qp(ibv_qp* pair) {
    const Lock lock(fabric->mutex_);
    auto* const queue = reinterpret_cast<FakeFabric::Queue*>(pair);
    fabric->queues_.erase(pair->qp_num);
    std::erase_if(fabric->held_, [queue](const auto& write) { return write.queue == queue; });
    delete queue;
    --fabric->objects_;
    return 0;
  }

  static int post_send(ibv_qp* pair, ibv_send_wr* request, ibv_send_wr** bad) {
    const Lock lock(fabric->mutex_);
    auto& queue = *reinterpret_cast<FakeFabric::Queue*>(pair);
    for (; request != nullptr; request = request->next) {
      if (fabric->refuse_posts_ != 0) {
        *bad = request;
        return fabric->refuse_posts_;
      }
      FakeFabric::Write write{.queue = &queue, .id = request->wr_id};
      write.to = request->wr.rdma.remote_addr;
      write.key = request->wr.rdma.rkey;
      write.signaled = (request->send_flags & IBV_SEND_SIGNALED) != 0;
      write.in_line = (request->send_flags & IBV_SEND_INLINE) != 0;
      if (request->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) write.notice = request->imm_data;
      for (int i = 0; i < request->num_sge; ++i) {
        const ibv_sge& piece = request->sg_list[i];
        write.from.emplace_back(reinterpret_cast<const std::byte*>(piece.addr), piece.length);
        if (!write.in_line && !fabric->registered(piece.lkey, piece.addr, piece.length)) {
          write.failure = IBV_WC_LOC_PROT_ERR;
        }
      }
      if (write.in_line) write.bytes = FakeFabric::contents(write.from);
      fabric->held_.push_back(std::move(write));
    }
    if (!fabric->hold_writes_) fabric->carry_out(static_cast<int>(fabric->held_.size()));
    return 0;
  }
  static int post_recv(ibv_qp* pair, ibv_recv_wr* request, ibv_recv_wr**) {
    const Lock lock(fabric->mutex_);
    auto& queue = *reinterpret_cast<FakeFabric::Queue*>(pair);
    for (; request != nullptr; request = request->next) queue.receives.push_back(request->wr_id);
    return 0;
  }
  static int poll_cq(ibv_cq* queue, int most, ibv_wc* out) {
    const Lock lock(fabric->mutex_);
    auto& found = reinterpret_cast<FakeFabric::Completions*>(queue)->found;
    int count = 0;
    for (auto at = found.begin(); at != found.end() && count < most;) {
      const bool notice = at->opcode == IBV_WC_RECV_RDMA_WITH_IMM;
      const bool held_success = fabric->hold_successes_ && at->status == IBV_WC_SUCCESS;
      if (notice ? fabric->hold_notices_ : fabric->hold_completions_ || held_success) {
        ++at;
        continue;
      }
      out[count++] = *at;
      at = found.erase(at);
    }
    return count;
  }
};

FakeFabric::FakeFabric(std::vector<Device> devices) : devices_(std::move(devices)) {
  fabric = this;
#define WHORL_FAKE_SET(name, symbol) api_.name = FakeCalls::name;
  WHORL_VERBS_FUNCTIONS(WHORL_FAKE_SET)
#undef WHORL_FAKE_SET
  for (const Device& device : devices_) {
    auto handle = std::make_unique<ibv_device>();
    *handle = {};
    handle->transport_type = device.kind;
    std::strncpy(handle->name, device.name.c_str(), sizeof handle->name - 1);
    list_.push_back(handle.get());
    handles_.push_back(std::move(handle));
  }
}

FakeFabric::~FakeFabric() { fabric = nullptr; }

void FakeFabric::fail_write(int n, const Failure& failure) {
  const std::lock_guard lock(mutex_);
  fail_in_ = n;
  failure_ = failure;
}
void FakeFabric::refuse_posts(int error) {
  const std::lock_guard lock(mutex_);
  refuse_posts_ = error;
}
void FakeFabric::refuse_state(ibv_qp_state state, int error) {
  const std::lock_guard lock(mutex_);
  refused_states_[state] = error;
}
void FakeFabric::hold_completions(bool hold) {
  const std::lock_guard lock(mutex_);
  hold_completions_ = hold;
}
void FakeFabric::hold_successes(bool hold) {
  const std::lock_guard lock(mutex_);
  hold_successes_ = hold;
}
void FakeFabric::hold_notices(bool hold) {
  const std::lock_guard lock(mutex_);
  hold_notices_ = hold;
}
void FakeFabric::hold_writes(bool hold) {
  const std::lock_guard lock(mutex_);
  hold_writes_ = hold;
  if (!hold) carry_out(static_cast<int>(held_.size()));
}
void FakeFabric::tear_lines(std::vector<int> order, std::function<void()> between) {
  const std::lock_guard lock(mutex_);
  tear_order_ = std::move(order);
  between_ = std::move(between);
}

void FakeFabric::hold_device(std::size_t index, bool hold) {
  const std::lock_guard lock(mutex_);
  held_devices_.resize(devices_.size());
  held_devices_[index] = hold;
  if (!hold && !hold_writes_) carry_out(static_cast<int>(held_.size()));
}

void FakeFabric::fail_device(std::size_t index, const Failure& failure) {
  const std::lock_guard lock(mutex_);
  for (const auto& [number, queue] : queues_) {
    if (&FakeCalls::device_of(queue->pair.context) != &devices_[index]) continue;
    const auto is_of_queue = [mine = queue](const Write& write) { return write.queue == mine; };
    const auto first = std::find_if(held_.begin(), held_.end(), is_of_queue);
    if (first != held_.end()) complete(*queue, first->id, failure, true);
    std::erase_if(held_, is_of_queue);
    fail(*queue);
  }
}

void FakeFabric::carry_out(int writes) {
  const std::lock_guard lock(mutex_);
  for (auto at = held_.begin(); writes > 0 && at != held_.end(); --writes) {
    const auto device =
        static_cast<std::size_t>(&FakeCalls::device_of(at->queue->pair.context) - devices_.data());
    if (device < held_devices_.size() && held_devices_[device]) {
      ++at;
      continue;
    }
    const Write write = std::move(*at);
    at = held_.erase(at);
    execute(write);
  }
}

void FakeFabric::execute(const Write& write) {
  Queue& queue = *write.queue;
  ++writes_;
  ++writes_of_[&FakeCalls::device_of(queue.pair.context) - devices_.data()];
  if (write.in_line) ++inlined_;
  if (queue.failed) return complete(queue, write.id, {IBV_WC_WR_FLUSH_ERR, 0}, true);
  const auto refuse = [&](ibv_wc_status status, std::uint32_t vendor_code) {
    complete(queue, write.id, {status, vendor_code}, true);
    fail(queue);
  };
  if (failure_ && --fail_in_ == 0) {
    const Failure failure = *failure_;
    failure_.reset();
    return refuse(failure.status, failure.vendor_code);
  }
  if (write.failure != IBV_WC_SUCCESS) return refuse(write.failure, 0x80);
  const auto found = queues_.find(queue.remote);
  if (found == queues_.end() || found->second->failed) { // the peer is gone
    return refuse(IBV_WC_RETRY_EXC_ERR, 0x81);
  }
  Queue& peer = *found->second;
  if (write.notice && peer.receives.empty()) return refuse(IBV_WC_RNR_RETRY_EXC_ERR, 0x87);
  const std::vector<std::byte> bytes = write.in_line ? write.bytes : contents(write.from);
  if (!bytes.empty()) {
    if (!registered(write.key, write.to, bytes.size())) return refuse(IBV_WC_REM_ACCESS_ERR, 0x88);
    copy(reinterpret_cast<std::byte*>(write.to), bytes);
  }
  if (write.notice) {
    ibv_wc notice{};
    notice.wr_id = peer.receives.front();
    notice.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
    notice.imm_data = *write.notice;
    peer.receives.pop_front();
    report(*peer.completions, notice);
  }
  complete(queue, write.id, {}, write.signaled);
}

std::vector<std::byte> FakeFabric::contents(
    const std::vector<std::pair<const std::byte*, std::size_t>>& pieces) {
  std::vector<std::byte> bytes;
  for (const auto& [data, size] : pieces) bytes.insert(bytes.end(), data, data + size);
  return bytes;
}

bool FakeFabric::registered(std::uint32_t key, std::uint64_t address, std::size_t size) const {
  const auto region = regions_.find(key);
  return region != regions_.end() && address >= region->second.first &&
         address + size <= region->second.first + region->second.second;
}

void FakeFabric::copy(std::byte* to, const std::vector<std::byte>& bytes) {
  const auto copy_word = [&](std::size_t word) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data() + 8 * word, 8);
    std::atomic_ref(*reinterpret_cast<std::uint64_t*>(to + 8 * word))
        .store(value, std::memory_order_release); // pairs with acquire in VerbsEndpoint
  };
  if (bytes.size() == kCreditBytes) {
    for (std::size_t word = 0; word < kCreditBytes / 8; ++word) copy_word(word);
    return;
  }
  // Lines are aligned; buffers of users need not be.
  const bool aligned = reinterpret_cast<std::uintptr_t>(to) % kLineBytes == 0;
  const std::size_t line = aligned ? std::min(bytes.size() / 8 * 8, kLineBytes) : 0;
  for (std::size_t i = 0; i < line / 8; ++i) {
    if (!tear_order_.empty()) between_();
    copy_word(tear_order_.empty() ? i : static_cast<std::size_t>(tear_order_[i]));
  }
  if (bytes.size() == line) return;
  if (!tear_order_.empty()) between_();
  std::memcpy(to + line, bytes.data() + line, bytes.size() - line);
  if (!tear_order_.empty()) between_();
}

void FakeFabric::complete(Queue& queue, std::uint64_t id, const Failure& failure, bool signaled) {
  if (!signaled) return;
  ibv_wc completion{};
  completion.wr_id = id;
  completion.status = failure.status;
  completion.vendor_err = failure.vendor_code;
  completion.qp_num = queue.pair.qp_num;
  report(*queue.completions, completion);
  ++completions_;
}

void FakeFabric::fail(Queue& queue) {
  queue.failed = true;
  for (; !queue.receives.empty(); queue.receives.pop_front()) {
    complete(queue, queue.receives.front(), {IBV_WC_WR_FLUSH_ERR, 0}, true);
  }
}

void FakeFabric::report(Completions& completions, const ibv_wc& completion) {
  completions.found.push_back(completion);
  if (!std::exchange(completions.armed, false) || completions.channel == nullptr) return;
  const std::uint64_t one = 1;
  static_cast<void>(::write(completions.channel->fd, &one, sizeof one));
}

ibv_gid_entry make_gid(std::uint32_t index, ibv_gid_type type, const std::string& address) {
  ibv_gid_entry entry{};
  entry.gid_index = index;
  entry.port_num = 1;
  entry.gid_type = type;
  inet_pton(AF_INET6, address.c_str(), entry.gid.raw);
  return entry;
}

} // namespace whorl::test
