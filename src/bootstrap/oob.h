#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/comm_error.h"
#include "base/membership.h"
#include "base/status.h"

namespace whorl {

/// Communication between the ranks of a communicator before they are connected. Used by one thread
/// at a time; every rank makes the same calls in the same order.
class Oob {
 public:
  virtual ~Oob() = default;
  /// Gathers `mine` of every rank, in rank order, in `all` of every rank (`nranks · mine.size()`
  /// bytes). Sizes are equal on all ranks. The error names ranks that are missing or dead.
  virtual Status allgather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
  /// Tells the other ranks at once that this rank does not go on, and why; they see it in check()
  /// or in the next all-gather. Returns the reason; if it is another rank's failure, that of the
  /// rank which was first. Takes up to kTellNs. Returns success where ranks cannot be told, so that
  /// this rank has to take part in the next all-gather.
  virtual Status give_up(const Status&) { return {}; }
  /// Returns the reason if another rank is known to have given up or died. To be called between
  /// all-gathers, in long waits.
  virtual Status check() { return {}; }
  /// Whether an all-gather has failed by the end of a connection, of which nobody has said the
  /// reason.
  virtual bool was_cut_off() const { return false; }
};

/// Time that a rank which does not go on may take in order to tell the others why.
inline constexpr std::uint64_t kTellNs = 1'000'000'000;
/// Time for that of a rank whose call is refused, and may block: longer than most pauses of the
/// process with the root, since the others wait until their timeout otherwise.
inline constexpr std::uint64_t kTellRefusedNs = 5'000'000'000;

/// Rank that takes part in a rendezvous.
struct Attendant {
  int rank = 0;
  int nranks = 1;
  /// Timeout for connecting and until all ranks have joined. Later all-gathers wait twice as long,
  /// because a rank may use up a timeout of its own between two of them before it reports an error.
  std::uint64_t timeout_ns = 30'000'000'000;
  /// Error that ends waits; may be null; outlives the Oob.
  const CommError* comm_error = nullptr;
  /// Asked now and then until all ranks have met: an error ends the rendezvous. May be empty.
  std::function<Status()> check;

  /// Returns whether this rank comes only in order to tell the others why it does not take part:
  /// the error is set before they can hear of it. The fields `rank` and `nranks` may be what is
  /// wrong.
  bool excused() const noexcept { return comm_error != nullptr && comm_error->is_set(); }
  /// Returns the time for connecting. A refused call comes with a short timeout; a creation that is
  /// aborted before it begins is excused, too, and has no more time than any rank that gives up.
  std::uint64_t connect_ns() const noexcept {
    return excused() && timeout_ns > kTellRefusedNs ? kTellNs : timeout_ns;
  }
};

/// Result of a rendezvous, which every rank gets.
struct Rendezvous {
  std::unique_ptr<Oob> oob;
  /// Job and secret for the transports, known to these ranks only.
  Identity identity;
};

/// Rank of a future communicator that has met the others and can exchange data with them.
struct Gathering {
  std::unique_ptr<Oob> oob;
  Identity identity;
  int rank = 0;
  int nranks = 1;
};

/// Key-value store that all ranks reach, with the fields of `whorlStore_t`.
struct Store {
  void* context = nullptr;
  std::string prefix;
  int (*set)(void* context, const char* key, const void* value, std::size_t size) = nullptr;
  int (*get)(void* context, const char* key, void* value, std::size_t capacity, std::size_t* size,
             int timeout_ms) = nullptr;
};

/// All-gather function of the caller, with the fields of `whorlOob_t`.
struct Allgather {
  void* context = nullptr;
  int (*allgather)(void* context, const void* in, void* out, std::size_t size) = nullptr;
};

} // namespace whorl
