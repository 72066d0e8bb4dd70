#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/fingerprint.h"
#include "base/wait.h"
#include "transports/endpoint.h"
#include "transports/fifo/layout.h"

namespace whorl::simulation {

/// Messages of one direction between two ranks: sizes and contents follow from the seed of the run,
/// so that the receiver knows what must come.
struct Stream {
  std::uint64_t salt = 0; ///< makes the contents of this direction differ from all others
  std::uint64_t messages = 0;
  std::vector<std::size_t> sizes; ///< sizes to choose from

  std::size_t bytes(std::uint64_t number) const noexcept;
  /// Returns the contents of message `number`, from 1.
  std::span<const std::byte> payload(std::uint64_t number) const noexcept;
  Fingerprint fingerprint(std::uint64_t number) const noexcept;
};

/// Copies in pieces, between which the copying rank may die.
void copy_in_pieces(std::byte* to, const std::byte* from, std::size_t bytes);

/// Sender of a stream over an endpoint, by all the ways that the endpoint offers, as an Execution
/// does it.
class Sender {
 public:
  /// `sources`: memory for messages without a copy, cut into several sources; empty: none.
  Sender(Endpoint& endpoint, const Stream& stream, std::span<std::byte> sources);
  /// Sends a message if it can. kDone: all messages are sent, and their sources free again.
  Progress step();
  std::uint64_t sent() const noexcept { return sent_; }
  /// Writes to all sources, which nobody may read any more.
  void spoil_sources();

 private:
  enum class Way { kCopy, kCopyIntoWholeSlot, kPut, kDescriptor };
  static constexpr std::size_t kSources = 3;

  void choose_way();
  bool send_descriptor();
  bool copy(std::size_t reserved);

  Endpoint& endpoint_;
  const Stream stream_;
  const std::span<std::byte> sources_;
  std::array<std::uint64_t, kSources> needed_until_{}; ///< number of the last message of a source
  std::uint64_t sent_ = 0;
  Way way_ = Way::kCopy;
  bool chosen_ = false;
  std::size_t source_ = 0;
  bool source_filled_ = false;
};

/// Receiver of a stream: requires each message once, in order, with its contents.
class Receiver {
 public:
  /// `buffers`: memory to expose to the sender, kRecvBuffersAhead of the largest message; empty:
  /// none.
  Receiver(Endpoint& endpoint, const Stream& stream, std::span<std::byte> buffers);
  /// Receives a message if there is one. kDone: all have come.
  Progress step();
  std::uint64_t received() const noexcept { return received_; }
  /// Writes to all buffers, which nobody may write to any more.
  void spoil_buffers();

 private:
  std::span<std::byte> buffer(std::uint64_t number) const noexcept;
  void expose();

  Endpoint& endpoint_;
  const Stream stream_;
  const std::span<std::byte> buffers_;
  std::uint64_t received_ = 0;
  std::uint64_t held_for_ = 0; ///< steps until the message that was found is used, plus 1
  std::uint64_t next_exposed_ = 2;
  /// Number of the message for which a buffer is exposed in agreement with the sender.
  std::array<std::uint64_t, kRecvBuffersAhead> agreed_{};
};

} // namespace whorl::simulation
