#include "tests/conformance/rig.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace whorl::test {

Rig::Rig(RankContext& context, const TransportKind& kind, std::uint64_t job,
         const RigOptions& options)
    : options_(options), transport_(kind.make()) {
  membership_.rank = context.rank;
  membership_.nranks = context.nranks;
  std::memcpy(membership_.identity.job.data(), &job, sizeof job);
  membership_.identity.secret.fill(std::byte{0x5a});
  membership_.channels = options.channels;
  membership_.slots = options.slots;
  membership_.slot_bytes = options.slot_bytes;
  membership_.timeout_ns = options.timeout_ns;
  membership_.comm_error = &comm_error_;

  PeerInfo info;
  info.rank = static_cast<std::uint32_t>(context.rank);
  info.process_id = static_cast<std::uint32_t>(::getpid());
  info.host_key = 77;
  info.process_key = kind.one_process ? job : job * 1000 + info.rank;
  std::strcpy(info.host_name.data(), "testhost");
  info.slots = static_cast<std::uint32_t>(options.slots);
  info.slot_bytes = static_cast<std::uint32_t>(options.slot_bytes);
  info.channels = static_cast<std::uint32_t>(options.channels);
  info.device_peers = options.shares_devices ? 1 : 0;
  auto address = transport_->listen(membership_.identity);
  if (!address.ok()) throw std::runtime_error(address.status().message());
  info.addresses[0].size = static_cast<std::uint32_t>(address->size());
  std::copy(address->begin(), address->end(), info.addresses[0].bytes.begin());
  for (const auto& bytes : context.allgather(std::as_bytes(std::span(&info, 1)))) {
    PeerInfo& other = membership_.peers.emplace_back();
    std::memcpy(&other, bytes.data(), sizeof other);
  }
}

Status Rig::connect() {
  std::vector<int> peers;
  for (int peer = 0; peer < membership_.nranks; ++peer) {
    if (peer == membership_.rank) continue;
    const auto self = static_cast<std::size_t>(membership_.rank);
    if (!transport_
             ->reach(membership_.peers[self], membership_.peers[static_cast<std::size_t>(peer)], 0)
             .reachable) {
      return Status::error(Code::kInternalError, "the transport does not reach a peer");
    }
    peers.push_back(peer);
  }
  return transport_->connect(membership_, peers, 0);
}

WaitResult Rig::wait(const std::function<bool()>& done, std::uint64_t timeout_ns) {
  const auto attempt = [&] {
    if (done()) return Progress::kDone;
    bool advanced = false;
    for (int peer = 0; peer < membership_.nranks; ++peer) {
      for (int channel = 0; channel < membership_.channels; ++channel) {
        Endpoint* const endpoint = transport_->endpoint(peer, channel);
        if (endpoint == nullptr) continue;
        const Progress progress = endpoint->progress();
        if (progress == Progress::kFailed) return progress;
        advanced |= progress == Progress::kAdvanced;
      }
    }
    if (!advanced) return Progress::kIdle;
    return done() ? Progress::kDone : Progress::kAdvanced;
  };
  const WaitPolicy policy{.timeout_ns = timeout_ns != 0 ? timeout_ns : options_.timeout_ns,
                          .spins = options_.spins,
                          .yield_ns = options_.yield_ns};
  return wait_until(attempt, policy, comm_error_, *transport_);
}

bool Rig::send(int peer, std::span<const std::byte> bytes, const Fingerprint& fingerprint,
               int channel) {
  Endpoint& endpoint = to(peer, channel);
  std::span<std::byte> slot;
  if (wait([&] { return !(slot = endpoint.try_reserve()).empty(); }) != WaitResult::kReady) {
    return false;
  }
  if (slot.size() < bytes.size()) return false;
  if (!bytes.empty()) std::memcpy(slot.data(), bytes.data(), bytes.size());
  endpoint.commit(bytes.size(), fingerprint);
  return true;
}

Message Rig::receive(int peer, int channel) {
  Endpoint& endpoint = to(peer, channel);
  Message message;
  wait([&] { return static_cast<bool>(message = endpoint.try_peek()); });
  return message;
}

bool Rig::flush() {
  const auto flushed = [&] {
    bool all = true;
    for (int peer = 0; peer < membership_.nranks; ++peer) {
      for (int channel = 0; channel < membership_.channels; ++channel) {
        Endpoint* const endpoint = transport_->endpoint(peer, channel);
        if (endpoint != nullptr) all &= endpoint->flushed();
      }
    }
    return all;
  };
  return wait(flushed) == WaitResult::kReady;
}

std::uint64_t fresh_job() {
  static std::uint64_t last = 0;
  return ++last;
}

std::vector<std::byte> pattern(std::size_t size, std::uint64_t seed) {
  std::vector<std::byte> bytes(size);
  std::uint64_t state = seed * 0x9e3779b97f4a7c15ULL + 1;
  for (std::size_t at = 0; at < size; at += sizeof state) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const std::uint64_t mixed = state ^ state >> 32; // the low bits of the state repeat soon
    std::memcpy(&bytes[at], &mixed, std::min(sizeof mixed, size - at));
  }
  return bytes;
}

bool matches(const Message& message, std::size_t bytes, std::uint64_t seed) {
  const std::vector<std::byte> expected = pattern(bytes, seed);
  return message && message.bytes == bytes &&
         (bytes == 0 || std::memcmp(message.data, expected.data(), bytes) == 0);
}

} // namespace whorl::test
