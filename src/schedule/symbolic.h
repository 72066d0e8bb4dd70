#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "schedule/access.h"
#include "schedule/machine.h"
#include "schedule/placement.h"

namespace whorl {

/// Sets of ranks. Up to 64 ranks a set is its bit mask; above, the number of a stored bit vector
/// that no other set has, so that equal numbers are equal sets in both cases.
class RankSets {
 public:
  using Set = std::uint64_t;
  explicit RankSets(int nranks);
  Set single(int rank) const noexcept { return small_ ? Set{1} << rank : static_cast<Set>(rank); }
  /// Stores the union in `*both` and returns true, or returns false if the sets overlap.
  bool unite(Set a, Set b, Set* both) {
    if (!small_) return unite_large(a, b, both);
    *both = a | b;
    return (a & b) == 0;
  }
  Set all() const noexcept { return all_; }
  /// Returns the number of ranks and the lowest one.
  std::pair<int, int> summary(Set set) const;
  /// Returns "0, 1, 3".
  std::string text(Set set) const;

 private:
  bool unite_large(Set a, Set b, Set* both);
  Set store(const std::vector<std::uint64_t>& bits);
  const std::uint64_t* bits(Set set) const { return stored_.data() + set * words_; }

  int nranks_;
  bool small_;
  std::size_t words_;
  Set all_;
  std::vector<std::uint64_t> stored_;
  std::unordered_multimap<std::uint64_t, Set> by_hash_;
  std::unordered_map<std::uint64_t, Set> unions_;
};

/// Content of a chunk: chunk `tag` of the input of each rank of `from`, combined.
struct Value {
  static constexpr std::uint32_t kUnwritten = ~std::uint32_t{0};
  RankSets::Set from = 0;
  std::uint32_t tag = kUnwritten;
  friend bool operator==(const Value&, const Value&) = default;
};

/// Data of a Machine: executes steps on symbolic values, and finds every way in which a single step
/// can be wrong.
class SymbolicData : public MachineObserver {
 public:
  struct Options {
    int windows = 1;
    bool keep_messages = false;
    bool published = false, placed = false; ///< options as in VerifyOptions
  };

  /// Messages of one FIFO: those on the way, or with `keep_messages` all that ever were.
  struct Messages {
    struct Header {
      std::uint16_t count;
      std::uint16_t window;
      std::int32_t depth;   ///< number of messages on the longest chain that ends with this one
      std::uint32_t source; ///< first cell that the receiver reads the message from, or kCopied
    };
    std::vector<Header> headers;
    std::vector<Value> values;
    std::size_t next_header = 0, next_value = 0;
  };

  static constexpr std::uint32_t kCopied = ~std::uint32_t{0};

  /// Starts with the inputs' values. All arguments must outlive this.
  SymbolicData(std::span<const Schedule> schedules, const Machine& machine,
               const ChunkLayout& layout, const CollectiveSpec& spec, const Options& options);

  bool on_step(const StepEvent& event) override;

  /// Returns the reason for which on_step() has returned false.
  const std::string& error() const noexcept { return error_; }
  /// Returns what is still wrong after a finished run; empty if nothing is.
  std::string check_result() const;

  const Value& value(int rank, int window, Buffer buffer, int chunk) const {
    return cells_[layout_.cell(rank, window, buffer, chunk)];
  }
  std::span<const Messages> messages() const noexcept { return messages_; }
  std::string text(const Value& value) const;
  RankSets& sets() noexcept { return sets_; }

  /// Returns a count of window 0, as do the two functions that follow, for VerifyReport.
  int message_count() const noexcept { return message_count_; }
  int rounds() const noexcept { return rounds_; }
  int max_sent_chunks() const;

 private:
  bool fail(const StepEvent& event, const std::string& what);
  bool combine(const StepEvent& event, Value& value, const Value& other);
  bool conflict(const StepEvent& event, Buffer buffer, int chunk, int lane);
  bool receive_headers(const StepEvent& event);
  bool place(const StepEvent& event, std::uint32_t fifo);
  bool move_chunk(const StepEvent& event, int index);
  void send_header(const StepEvent& event, std::uint32_t fifo, std::int32_t depth);
  Value expected(int rank, int chunk) const;

  std::span<const Schedule> schedules_;
  const Machine& machine_;
  const ChunkLayout& layout_;
  CollectiveSpec spec_;
  Options options_;
  mutable RankSets sets_;
  AccessOrder access_;
  std::optional<Placement> placement_; ///< placement; only with Options::placed
  std::vector<Value> cells_;
  std::vector<Messages> messages_;
  std::vector<std::int32_t> depth_; ///< longest chain of messages received, of each lane
  std::vector<int> sent_chunks_;    ///< number of chunks sent by each rank in window 0
  int message_count_ = 0, rounds_ = 0;
  std::string error_;
};

} // namespace whorl
