#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/membership.h"
#include "base/status.h"
#include "base/verdict.h"

namespace whorl {

/// How the ranks of a communicator talk before they are connected. Used by one thread at a time;
/// every rank makes the same calls in the same order.
class Oob {
 public:
  virtual ~Oob() = default;
  /// Every rank gives `mine` and gets the contributions of all ranks, in rank order, in `all`
  /// (`nranks · mine.size()` bytes). Sizes are equal on all ranks. The error names ranks that are
  /// missing or dead.
  virtual Status allgather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
};

/// Who comes to a rendezvous.
struct Attendant {
  int rank = 0;
  int nranks = 1;
  /// To connect and to see all ranks. All-gathers after that wait twice as long: a rank may use up
  /// a timeout of its own, between two of them, before it reports what went wrong.
  std::uint64_t timeout_ns = 30'000'000'000;
  const Verdict* verdict = nullptr; ///< if raised, give up; may be null; outlives the Oob
};

/// What all ranks have once they have met.
struct Rendezvous {
  std::unique_ptr<Oob> oob;
  /// A job and a secret for the transports, known to these ranks and to nobody else.
  Identity identity;
};

/// The ranks of a communicator to be, ready to exchange what they need to connect.
struct Gathering {
  std::unique_ptr<Oob> oob;
  Identity identity;
  int rank = 0;
  int nranks = 1;
};

/// A key-value store that all ranks reach; as `whorlStore_t`.
struct Store {
  void* context = nullptr;
  std::string prefix;
  int (*set)(void* context, const char* key, const void* value, std::size_t size) = nullptr;
  int (*get)(void* context, const char* key, void* value, std::size_t capacity, std::size_t* size,
             int timeout_ms) = nullptr;
};

/// An all-gather that the ranks can already do; as `whorlOob_t`.
struct Allgather {
  void* context = nullptr;
  int (*allgather)(void* context, const void* in, void* out, std::size_t size) = nullptr;
};

} // namespace whorl
