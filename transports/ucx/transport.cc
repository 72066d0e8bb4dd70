#include "transports/ucx/transport.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/bytes.h"
#include "base/system.h"
#include "transports/control/exchange.h"

namespace whorl {
namespace {

// Costs for the cost model: over UCX's shared memory on one machine (perf/micro/ucx_ratio.py), and,
// assumed, between two machines, over a fabric with 100 Gbit/s and remote DMA.
constexpr double kOverheadUs = 0.4;
constexpr double kAlphaUs = 1.0, kBetaUsPerKib = 0.15;
constexpr double kFarAlphaUs = 3.0, kFarBetaUsPerKib = 0.1;

// Time in which devices deliver what was sent last; UCX's TCP also waits for the processors of
// peers then, which may have other work and do not matter.
constexpr std::uint64_t kFlushNs = 50'000'000;
// Time in which the connections have to be closed at the end.
constexpr std::uint64_t kCloseNs = 50'000'000;

} // namespace

Result<std::vector<std::byte>> UcxTransport::listen(const Identity&) {
  auto worker = UcxWorker::make();
  if (!worker.ok()) return worker.status();
  worker_ = *std::move(worker);
  return ports_.bind();
}

Reach UcxTransport::reach(const PeerInfo& self, const PeerInfo& peer, std::size_t index) const {
  const bool far = self.machine_key != peer.machine_key;
  const double rate = std::min(self.place.nic_gb_per_s, peer.place.nic_gb_per_s);
  const double far_beta = rate > 0 ? 1.024 / rate : kFarBetaUsPerKib;
  return {.reachable = PeerPorts::have_addresses(self, peer, index),
          .alpha_us = far ? kFarAlphaUs : kAlphaUs,
          .overhead_us = kOverheadUs,
          .beta_us_per_kib = far ? far_beta : kBetaUsPerKib,
          .networked = far};
}

std::size_t UcxTransport::endpoint_bytes(int slots, std::size_t slot_bytes) const noexcept {
  return round_up(UcxEndpoint::memory_bytes(slots, slot_bytes), 4096);
}

Status UcxTransport::connect(const Membership& membership, std::span<const int> peers,
                             std::size_t index) {
  membership_ = &membership;
  WHORL_TRY(make_endpoints(peers));
  auto sockets = ports_.connect(membership, peers, index, {});
  if (!sockets.ok()) return sockets.status();
  WHORL_TRY(make_connections(*sockets));
  WHORL_TRY(control_.adopt(membership, *sockets, "UCX, and for control by TCP"));
  return greet();
}

/// Makes links and endpoints, ready to receive.
Status UcxTransport::make_endpoints(std::span<const int> peers) {
  const auto channels = static_cast<std::size_t>(membership_->channels);
  const std::size_t each = endpoint_bytes(membership_->slots, membership_->slot_bytes);
  auto memory = SlotMemory::map(each * channels * peers.size(), SlotMemory::Backing::kOnUse,
                                fmt::format("{} UCX endpoints", channels * peers.size()));
  if (!memory.ok()) return memory.status();
  memory_ = *std::move(memory);
  link_of_rank_.assign(static_cast<std::size_t>(membership_->nranks), -1);
  std::byte* next = memory_.data();
  for (const int peer : peers) {
    link_of_rank_[static_cast<std::size_t>(peer)] = static_cast<int>(links_.size());
    UcxLink& link = *links_.emplace_back(
        std::make_unique<UcxLink>(*worker_, control_, membership_->rank, peer));
    if (sys().random_bytes(std::as_writable_bytes(std::span(&link.token_of_self, 1))) < 0) {
      return Status::error(Code::kSystemError, "the system has no random bytes");
    }
    for (std::size_t channel = 0; channel < channels; ++channel) {
      link.endpoints.push_back(std::make_unique<UcxEndpoint>(
          link, static_cast<std::uint32_t>(channel), membership_->slots, membership_->slot_bytes,
          std::span(next, each)));
      next += each;
    }
  }
  WHORL_TRY(worker_->set_handler(ucx::kData, &on_data, this));
  WHORL_TRY(worker_->set_handler(ucx::kCredit, &on_credit, this));
  return worker_->set_handler(ucx::kHello, &on_hello, this);
}

/// Exchanges tokens and addresses of workers, and makes the connections.
Status UcxTransport::make_connections(std::span<MeshLink> sockets) {
  std::vector<UcxLink*> order;
  std::vector<std::vector<std::byte>> mine;
  for (const MeshLink& socket : sockets) {
    UcxLink& link = *order.emplace_back(find(socket.rank));
    ByteWriter out;
    out.put(ucx::Introduction{.token = link.token_of_self});
    out.put_bytes(worker_->address());
    mine.push_back(out.bytes());
  }
  const auto theirs = exchange_blobs(*membership_, sockets, mine);
  if (!theirs.ok()) return theirs.status();
  for (std::size_t i = 0; i < order.size(); ++i) {
    UcxLink& link = *order[i];
    const auto introduced = ucx::read_introduction((*theirs)[i]);
    if (!introduced) {
      return Status::error(Code::kRemoteError,
                           fmt::format("{} sent no address of UCX: do all ranks use the same "
                                       "release of whorl?",
                                       membership_->describe(link.rank)));
    }
    link.token_of_peer = introduced->token;
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                        UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = reinterpret_cast<const ucp_address_t*>(introduced->address.data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb = [](void* argument, ucp_ep_h, ucs_status_t status) {
      static_cast<UcxLink*>(argument)->fail(status);
    };
    params.err_handler.arg = &link;
    const std::lock_guard lock(worker_->mutex());
    const ucs_status_t status = worker_->api().ep_create(worker_->handle(), &params, &link.ep);
    if (status != UCS_OK) {
      link.ep = nullptr;
      return Status::error(
          Code::kSystemError,
          fmt::format("UCX finds no way from rank {} to {}: {}; both need a device or a transport "
                      "of UCX in common (UCX_NET_DEVICES, UCX_TLS, `ucx_info -d`), and the same "
                      "release of UCX",
                      membership_->rank, membership_->describe(link.rank),
                      worker_->api().status_string(status)));
    }
  }
  return {};
}

/// Waits until the connections work in both directions. UCX connects with the first messages and
/// needs both processors for that; afterwards no rank may wait for the processor of another. So
/// each rank first sends a hello and lets UCX flush it, then says so by a second hello, and serves
/// the others until all have said so.
Status UcxTransport::greet() {
  std::uint32_t round = 1;
  const auto greet_all = [this] {
    const std::lock_guard lock(worker_->mutex());
    for (const std::unique_ptr<UcxLink>& link : links_) link->greet(UcxLink::kGreetingBytes);
  };
  greet_all();
  flush_all();
  const auto finished = [&round](const std::unique_ptr<UcxLink>& link) {
    return link->greetings.load(std::memory_order_acquire) >= round && link->greeted() &&
           !link->flushing.load(std::memory_order_acquire);
  };
  const auto attempt = [&] {
    for (const std::unique_ptr<UcxLink>& link : links_) {
      if (link->failed() && link->lost() == Progress::kFailed) return Progress::kFailed;
    }
    if (std::all_of(links_.begin(), links_.end(), finished)) {
      if (round == 2) return Progress::kDone;
      round = 2;
      greet_all();
      return Progress::kAdvanced;
    }
    return worker_->progress() > 0 ? Progress::kAdvanced : Progress::kIdle;
  };
  const WaitPolicy policy{.timeout_ns = membership_->timeout_ns};
  switch (wait_until(attempt, policy, *membership_->comm_error, *this)) {
    case WaitResult::kReady:
      return {};
    case WaitResult::kFailed:
      return membership_->comm_error->status();
    case WaitResult::kTimedOut:
      break;
  }
  const auto late = std::find_if_not(links_.begin(), links_.end(), finished);
  return Status::error(
      Code::kRemoteError,
      fmt::format("no message has come from {} to rank {} through UCX within {} ms, although it is "
                  "there; a firewall may be between the devices that UCX has chosen "
                  "(UCX_NET_DEVICES), or that rank is stopped",
                  membership_->describe((*late)->rank), membership_->rank,
                  membership_->timeout_ns / 1'000'000));
}

UcxTransport::~UcxTransport() {
  control_.leave([this](int rank) {
    ByteWriter out;
    for (const auto& endpoint : find(rank)->endpoints) out.put(endpoint->sent());
    return out.bytes();
  });
  if (worker_ != nullptr) {
    const auto within = [this](std::uint64_t time_ns, auto&& done) {
      const auto attempt = [&] {
        worker_->progress();
        return done() ? Progress::kDone : Progress::kIdle;
      };
      const CommError none;
      static_cast<void>(wait_until(attempt, {.timeout_ns = time_ns}, none, *this));
    };
    if (membership_ != nullptr && !membership_->comm_error->is_set()) {
      flush_all();
      within(kFlushNs, [this] {
        return std::all_of(links_.begin(), links_.end(),
                           [](const auto& link) { return link->all_delivered(); });
      });
    }
    close_connections();
    within(kCloseNs, [this] { return closed(); });
    const std::lock_guard lock(worker_->mutex());
    for (const auto& link : links_) {
      for (const auto& endpoint : link->endpoints) endpoint->drop_messages();
    }
  }
  worker_.reset();
}

void UcxTransport::flush_all() noexcept {
  const std::lock_guard lock(worker_->mutex());
  for (const std::unique_ptr<UcxLink>& link : links_) link->begin_flush();
}

void UcxTransport::close_connections() noexcept {
  const std::lock_guard lock(worker_->mutex());
  if (closing_) return;
  closing_ = true;
  for (const std::unique_ptr<UcxLink>& link : links_) {
    for (const auto& endpoint : link->endpoints) endpoint->revoke();
    link->close();
  }
}

/// Returns whether the connections are closed, and nothing touches the memory of users any more.
bool UcxTransport::closed() noexcept {
  const std::lock_guard lock(worker_->mutex());
  return std::all_of(links_.begin(), links_.end(), [](const std::unique_ptr<UcxLink>& link) {
    return link->closed() && std::none_of(link->endpoints.begin(), link->endpoints.end(),
                                          [](const auto& endpoint) { return endpoint->busy(); });
  });
}

bool UcxTransport::revoke_access() noexcept {
  if (worker_ == nullptr) return true;
  close_connections();
  worker_->progress();
  return closed();
}

UcxLink* UcxTransport::find(int rank) noexcept {
  if (rank < 0 || static_cast<std::size_t>(rank) >= link_of_rank_.size()) return nullptr;
  const int index = link_of_rank_[static_cast<std::size_t>(rank)];
  return index < 0 ? nullptr : links_[static_cast<std::size_t>(index)].get();
}

Endpoint* UcxTransport::endpoint(int peer, int channel) noexcept {
  UcxLink* const link = find(peer);
  if (link == nullptr || channel < 0 ||
      static_cast<std::size_t>(channel) >= link->endpoints.size()) {
    return nullptr;
  }
  return link->endpoints[static_cast<std::size_t>(channel)].get();
}

// --- messages that arrive, under the worker's mutex ---

/// Returns the link whose peer has sent a message, or null if the message is to be dropped.
UcxLink* UcxTransport::sender_of(const void* header, std::size_t bytes, ucx::Header& out) noexcept {
  if (bytes != sizeof out) return nullptr;
  std::memcpy(&out, header, sizeof out);
  if (out.from >= link_of_rank_.size()) return nullptr;
  UcxLink* const link = find(static_cast<int>(out.from));
  return link != nullptr && link->token_of_self == out.token ? link : nullptr;
}

/// Returns the endpoint for a message, or null if the message is to be dropped.
UcxEndpoint* UcxTransport::receiver_of(const void* header, std::size_t bytes,
                                       ucx::Header& out) noexcept {
  UcxLink* const link = sender_of(header, bytes, out);
  if (link == nullptr) return nullptr;
  if (out.channel < link->endpoints.size()) return link->endpoints[out.channel].get();
  control_.malformed(link->rank, "a message for a channel that there is not");
  return nullptr;
}

ucs_status_t UcxTransport::on_data(void* argument, const void* header, std::size_t header_bytes,
                                   void* data, std::size_t bytes,
                                   const ucp_am_recv_param_t* param) {
  ucx::Header read;
  UcxEndpoint* const endpoint =
      static_cast<UcxTransport*>(argument)->receiver_of(header, header_bytes, read);
  return endpoint == nullptr ? UCS_OK : endpoint->arrive(read, data, bytes, param->recv_attr);
}

ucs_status_t UcxTransport::on_credit(void* argument, const void* header, std::size_t header_bytes,
                                     void*, std::size_t, const ucp_am_recv_param_t*) {
  ucx::Header read;
  UcxEndpoint* const endpoint =
      static_cast<UcxTransport*>(argument)->receiver_of(header, header_bytes, read);
  if (endpoint != nullptr) endpoint->take_counts(read);
  return UCS_OK;
}

ucs_status_t UcxTransport::on_hello(void* argument, const void* header, std::size_t header_bytes,
                                    void*, std::size_t, const ucp_am_recv_param_t*) {
  ucx::Header read;
  UcxLink* const link = static_cast<UcxTransport*>(argument)->sender_of(header, header_bytes, read);
  // Pairs with acquire in greet().
  if (link != nullptr) link->greetings.fetch_add(1, std::memory_order_release);
  return UCS_OK;
}

// --- waiting ---

void UcxTransport::block(std::uint64_t max_ns) noexcept {
  if (worker_ == nullptr) return sys().sleep_ns(std::min<std::uint64_t>(max_ns, 200'000));
  if (worker_->progress() > 0 || !worker_->arm()) return; // something may have come
  std::array<pollfd, 2> polled{{{.fd = worker_->descriptor(), .events = POLLIN, .revents = 0},
                                {.fd = control_.epoll(), .events = POLLIN, .revents = 0}}};
  static_cast<void>(sys().poll(polled, max_ns));
}

void UcxTransport::poll_failures(std::uint64_t waited_ns) noexcept {
  control_.poll([this](int rank, std::span<const std::byte> counts) {
    UcxLink* const link = find(rank);
    ByteReader in(counts);
    for (const auto& endpoint : link->endpoints) endpoint->set_end(in.get<std::uint64_t>());
    link->left.store(true, std::memory_order_release); // pairs with acquire in UcxLink::flushed()
  });
  control_.judge_deaths(waited_ns);
}

TransportMemory UcxTransport::memory() const noexcept {
  if (!memory_) return {};
  TransportMemory now{.reserved = memory_.bytes(), .fifos = memory_.resident()};
  for (const auto& link : links_)
    now.fixed += sizeof *link + link->endpoints.size() * sizeof(UcxEndpoint);
  return now;
}

} // namespace whorl
