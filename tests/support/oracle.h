#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "whorl/whorl.h"

namespace whorl::test {

/// Collective with all arguments that determine its result.
struct CollectiveCase {
  enum Kind {
    kAllReduce,
    kReduce,
    kBroadcast,
    kAllGather,
    kReduceScatter,
    kAllToAll,
    kGather,
    kScatter
  };
  static constexpr std::array kKinds{kAllReduce,     kReduce,   kBroadcast, kAllGather,
                                     kReduceScatter, kAllToAll, kGather,    kScatter};
  Kind kind = kAllReduce;
  std::size_t count = 0;
  whorlDataType_t type = whorlFloat32;
  whorlRedOp_t op = whorlSum;
  int root = 0;
  bool in_place = false;

  std::string text() const;
};

std::size_t size_of(whorlDataType_t type);

/// Returns a case of every collective with each of `counts`, out of place and, where there is such
/// a form, in place. The other members are those of CollectiveCase until the caller sets them.
std::vector<CollectiveCase> every_case(const std::vector<std::size_t>& counts);

/// Buffers of a rank for a case, filled so that every order of summation gives the same bits, with
/// guard bytes on both sides. In place, `send` and `recv` lie in one allocation.
class Buffers {
 public:
  Buffers(const CollectiveCase& c, int rank, int nranks);
  void* send() { return send_; }
  void* recv() { return recv_; }
  /// Calls the collective of the case.
  whorlResult_t run(whorlComm_t comm, void* stream = nullptr);
  /// Calls the collective on a copy of memory(), which the host need not be able to access.
  whorlResult_t run_on(std::byte* copy, whorlComm_t comm, void* stream) const;
  std::span<std::byte> memory() { return memory_; }
  /// Compares the result with the expected one; guards and, out of place, the input must be
  /// unchanged. Returns "", or a sentence about the first difference.
  std::string check() const;

 private:
  CollectiveCase c_;
  int rank_, nranks_;
  std::vector<std::byte> memory_, before_;
  std::byte* send_ = nullptr;
  std::byte* recv_ = nullptr;
  std::size_t in_bytes_ = 0, out_bytes_ = 0;
};

/// Carries out every_case() and compares the results. Returns the first error, or "". All ranks
/// must call it.
std::string run_all_kinds(int rank, int nranks, whorlComm_t comm,
                          const std::vector<std::size_t>& counts);

/// Sends the next rank a vector while the previous one sends its own, and compares that. Returns
/// the first error, or "". All ranks must call it.
std::string pass_around(int rank, int nranks, whorlComm_t comm);

} // namespace whorl::test
