#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "net/stream_socket.h"
#include "transports/control/judge.h"
#include "transports/endpoint.h"
#include "transports/tcp/wire.h"

namespace whorl {

/// Endpoint over a connected, nonblocking stream socket.
///
/// Sending. The slots are staging memory of this side: a message takes one from commit() (or
/// try_send_descriptor(), which queues the user's memory itself) until its last byte has been
/// handed to the kernel. commit(), try_send_descriptor() and progress() write as much of the queue
/// as the socket takes, several messages with one system call.
///
/// Receiving. try_peek() reads the header first, with some read-ahead where messages are small, so
/// that a small message costs one system call. The payload then goes straight to the posted
/// destination if fingerprint and size are the expected ones, else to a buffer of one slot.
///
/// A sender never waits longer than over a transport with `slots` shared slots: messages not yet in
/// the kernel are a subset of the messages not yet released by the peer. So a schedule that is free
/// of deadlock with that many slots is so over TCP.
class TcpEndpoint final : public Endpoint {
 public:
  /// Returns the bytes of memory, 64-byte aligned, that an endpoint needs. Untouched pages cost
  /// nothing.
  static std::size_t memory_bytes(int slots, std::size_t slot_bytes) noexcept;

  /// Makes an endpoint over `socket`; `memory` and `judge` outlive the endpoint.
  TcpEndpoint(StreamSocket socket, int peer, int slots, std::size_t slot_bytes,
              std::span<std::byte> memory, FailureJudge& judge);

  std::span<std::byte> try_reserve(std::size_t bytes = kWholeSlot) noexcept override;
  void commit(std::size_t bytes, const Fingerprint& fingerprint) noexcept override;
  bool can_send_descriptor(std::span<const std::byte> source) const noexcept override {
    return source.size() <= slot_bytes_;
  }
  DescriptorSend try_send_descriptor(std::span<const std::byte> source,
                                     const Fingerprint& fingerprint) noexcept override;
  std::uint64_t released() noexcept override { return written_; }
  bool flushed() noexcept override { return written_ == sent_; }
  bool acknowledged() noexcept override { return true; } // receivers tell nothing

  void post_recv(std::span<std::byte> destination, const Fingerprint& expected) noexcept override;
  Message try_peek() noexcept override;
  bool try_hear(Fingerprint& fingerprint) noexcept override;
  bool has_ended() noexcept override { return ended_; }
  Message peek_arrived() noexcept override;
  void release() noexcept override;

  Progress progress() noexcept override;

  int fd() const noexcept { return socket_.get(); }
  /// Calls close_gently() and closes the socket; afterwards every call fails.
  void close() noexcept;

 private:
  /// Bytes of read-ahead, header included. Larger: more small messages for one system call.
  /// Smaller: less of a large message is copied.
  static constexpr std::size_t kStageBytes = 4096;
  /// Largest payload of a small message.
  static constexpr std::size_t kSmallBytes = 2048;
  /// Largest number of messages written by one system call.
  static constexpr int kBatch = 16;

  /// Bytes in front of each slot, which end with its header, so that a message in a slot is one
  /// piece of memory.
  static constexpr std::size_t kLead = 64;

  std::byte* slot(std::uint64_t message) const noexcept {
    return slots_memory_ + (message % slots_) * (kLead + slot_bytes_) + kLead;
  }
  tcp::MessageHeader* header(std::uint64_t message) const noexcept {
    return reinterpret_cast<tcp::MessageHeader*>(slot(message) - sizeof(tcp::MessageHeader));
  }
  void enqueue(const std::byte* payload, std::size_t bytes,
               const Fingerprint& fingerprint) noexcept;
  /// Writes as much as the socket takes. Returns whether it took anything.
  bool flush() noexcept;
  bool receive_header() noexcept;
  void receive() noexcept;
  /// Reads into the two places, in this order. Returns the number of bytes, 0 for none.
  std::size_t read(std::span<std::byte> first, std::span<std::byte> second) noexcept;
  bool accept_header() noexcept;
  void lost(int error) noexcept;
  std::size_t staged() const noexcept { return stage_end_ - stage_begin_; }
  std::size_t read_ahead() const noexcept {
    return expected_bytes_ <= kSmallBytes ? kStageBytes : sizeof(tcp::MessageHeader);
  }

  StreamSocket socket_;
  int peer_;
  bool failed_ = false;
  bool ended_ = false; ///< whether peek_arrived() has found that the peer has left
  bool needed_ = true; ///< whether the end of the socket is a failure
  std::size_t slots_;
  std::size_t slot_bytes_;
  FailureJudge& judge_;

  // Sending: messages written_ … sent_ − 1 are queued.
  std::byte* slots_memory_;
  std::unique_ptr<const std::byte*[]>
      payloads_; ///< payloads of the queued messages, by number % slots_
  std::uint64_t written_ = 0;
  std::size_t head_written_ = 0; ///< written bytes of message written_, header included

  // Receiving.
  std::byte* buffer_; ///< slot_bytes_, for payloads without a fitting posted buffer
  std::byte* stage_;  ///< kStageBytes; [stage_begin_, stage_end_) is read, not parsed
  std::size_t stage_begin_ = 0;
  std::size_t stage_end_ = 0;
  std::size_t expected_bytes_ = 0; ///< estimated size of the next message
  std::span<std::byte> posted_;
  Fingerprint expected_;
  bool has_header_ = false;
  bool ready_ = false;
  tcp::MessageHeader header_;
  std::byte* target_ = nullptr; ///< destination of the payload
  std::size_t got_ = 0;         ///< bytes of the payload that are at target_
};

} // namespace whorl
