#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/fingerprint.h"
#include "base/membership.h"
#include "base/status.h"
#include "base/system.h"
#include "monitor/layout.h"

namespace whorl::monitor {

/// One operation of a Snapshot.
struct RecordedOperation {
  std::uint64_t number = 0; ///< number among all operations and transfers of this rank
  Fingerprint fingerprint;
  int peer = -1; ///< partner of a transfer; −1: collective
  bool sends = false;
  bool under_way = false;
  std::uint64_t began_ns = 0,
                ended_ns = 0; ///< times by the monotonic clock; `ended_ns` 0: not known
};

/// One rank's part of a communicator, as its page showed it at one moment.
struct Snapshot {
  std::uint32_t process_id = 0;
  int rank = 0, nranks = 1;
  decltype(Identity::job) job{};
  std::uint64_t host_key = 0;
  std::string host, name; ///< `name`: of the communicator; may be empty
  Phase phase = Phase::kCreating;
  std::string error;          ///< error that has ended the communicator; else empty
  std::uint64_t taken_ns = 0; ///< time of the snapshot

  std::uint64_t begun = 0;                   ///< number of operations so far
  std::vector<RecordedOperation> operations; ///< the last ones, oldest first
  struct Wait {
    bool under_way = false;
    std::uint64_t since_ns = 0, looked_ns = 0; ///< `looked_ns`: when the rank last looked
    int peer = -1;                             ///< rank; −1: none, or any
    std::string text;                          ///< the wait in words
  } wait;                                      ///< last wait of more than a millisecond
  std::vector<std::uint64_t> waited_ns;        ///< time waited for each rank, in waits of over 1 ms
};

/// Reads a page, which may belong to another process and change meanwhile. Nothing in it is
/// trusted: texts are printable, and sizes are checked. `page` is 128-byte aligned.
Result<Snapshot> read_page(std::span<const std::byte> page);

/// Reads all pages in blocks that follow one another, with the same assurances. `all` is 4096-byte
/// aligned.
std::vector<Snapshot> read_blocks(std::span<const std::byte> all);
/// Reads all pages of the memory of a process, a PageFile, opened for reading.
Result<std::vector<Snapshot>> read_pages(Fd fd);

/// Describes an operation: "allreduce number 7 of …", "send number 3 of … to rank 2".
std::string describe(const RecordedOperation& operation);

/// Returns the public name of a communicator as hexadecimal digits.
std::string hex(const decltype(Identity::job)& job);
/// Returns a snapshot as JSON, which docs/monitoring.md describes.
std::string to_json(const Snapshot& snapshot);

} // namespace whorl::monitor
