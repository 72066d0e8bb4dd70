#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/system.h"
#include "launchers/key_value.h"

namespace whorl {

/// A client of the PMI-1 text protocol, which MPICH's mpiexec (Hydra) and Slurm's PMI plugin speak
/// over an inherited socket: lines of `key=value` words that begin with `cmd=`, each answered by
/// one line. Values are sent as hexadecimal text in segments, because a line has about 1 KiB.
class Pmi1 final : public KeyValue {
 public:
  /// Greets the server at the other end of `socket` and asks for the name of the job's space.
  static Result<std::unique_ptr<Pmi1>> connect(Fd socket, std::int64_t timeout_ms);
  /// Sends the last command, so that the server does not take the end of this process for a crash.
  ~Pmi1() override;

  Status set(const std::string& key, std::span<const std::byte> value) override;
  Status fence(std::int64_t timeout_ms) override;
  Result<std::vector<std::byte>> get(int rank, const std::string& key,
                                     std::int64_t timeout_ms) override;

 private:
  using Words = std::map<std::string, std::string, std::less<>>;

  explicit Pmi1(Fd socket) : socket_(std::move(socket)) {}
  /// Sends `line` and reads the answer, which must be the command `answer` with rc=0 or without rc.
  Result<Words> ask(const std::string& line, std::string_view answer, std::int64_t timeout_ms);
  Status send(std::string_view line, std::int64_t timeout_ms);
  Result<std::string> receive(std::int64_t timeout_ms);

  Fd socket_;
  std::string space_;    ///< the job's key-value space
  std::string received_; ///< bytes after the last whole line
  bool broken_ = false;  ///< whether an answer is missing
};

/// Returns the connection of this process through `fd` (PMI_FD), which the first call makes and
/// which ends with the process. May be called by any thread.
Result<KeyValue*> open_pmi1(int fd);

} // namespace whorl
