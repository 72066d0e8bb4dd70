#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "simulation/network.h"
#include "simulation/ranks.h"

namespace whorl::simulation {

/// Transport that carries the messages of simulated communicators.
enum class Fabric : std::uint8_t {
  kMemory, ///< memory of one host
  kTcp,    ///< connections between hosts, one for each rank
};

/// A rank with its communicator, and how its program ended.
struct CommRank {
  int number = 0;
  std::shared_ptr<CommError> comm_error = std::make_shared<CommError>();
  std::unique_ptr<Communicator> comm;
  Status error;               ///< error that ended its program
  int failed_step = -1;       ///< step of the program with that error; −1: the creation, or none
  std::uint64_t began_ns = 0; ///< time at which the last step began
  std::uint64_t ended_ns = 0; ///< time of that error, or of the end of its program
  bool aborts = false;        ///< whether another thread of the rank is in abort()
  std::size_t fibre = 0;
  bool died() const noexcept { return world().scheduler().died(fibre); }
};

/// Limits of the waits of a communicator.
struct CommLimits {
  std::uint64_t timeout_ns = 1'000'000'000; ///< timeout of operations
  std::uint64_t block_ns = 1'000'000;       ///< longest sleep of a wait
  bool links_stall = true; ///< whether a link between hosts may lose everything for a moment
};

/// Whether a text contains a part.
inline bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

/// The ranks of one communicator as fibres: each makes its communicator as set_up() does after the
/// ranks have met, and runs a program on it.
class CommWorld {
 public:
  static constexpr std::uint64_t kTimeoutNs = CommLimits{}.timeout_ns;

  CommWorld(int ranks, Fabric fabric, const CommLimits& limits = {});
  ~CommWorld();
  CommWorld(const CommWorld&) = delete;
  CommWorld& operator=(const CommWorld&) = delete;

  int nranks() const noexcept { return static_cast<int>(ranks_.size()); }
  CommRank& rank(int number) noexcept { return ranks_[static_cast<std::size_t>(number)]; }
  std::vector<CommRank>& ranks() noexcept { return ranks_; }
  Network& network() noexcept { return network_; }
  /// Returns whether an error may be the limit of ControlLinks that a link which stalls meets: the
  /// end of a connection overtakes the words that explain it by so much that it counts as a death.
  bool may_be_unexplained(const std::string& error) const {
    return stalled_ && error.find(" died: its connections were closed") != std::string::npos;
  }
  /// Returns "rank 2 (host h2, pid 2000000002)".
  std::string describe(int number) const;
  /// Runs `body(rank)` on a fibre for each rank, after its communicator has been made; the
  /// communicator is destroyed afterwards. `before(rank)` is run first. Requires that each rank
  /// that has not died comes to its end.
  void run(const std::function<void(CommRank&)>& body,
           const std::function<void(CommRank&)>& before = {});

 private:
  PeerInfo info_of(int number) const;
  Status wait_for_infos();
  void stall_a_link();
  Status connect(CommRank& rank);

  Fabric fabric_;
  CommLimits limits_;
  Network network_;
  ScopedSystem replaced_{&network_};
  std::optional<Host> host_; ///< memory of the ranks, if they share any
  std::vector<PeerInfo> infos_;
  int met_ = 0;       ///< number of ranks whose infos are known
  int connected_ = 0; ///< number of ranks that have connected
  bool stalled_ = false;
  std::vector<CommRank> ranks_;
};

} // namespace whorl::simulation
