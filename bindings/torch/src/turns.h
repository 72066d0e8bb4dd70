#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>

namespace whorl_torch {

/// Makes callbacks of the operations of one queue run one after the other, in the order of the
/// queue, although several threads complete operations. Any thread.
class Turns {
 public:
  /// The number of the next operation, from 1; in the order of the queue.
  std::uint64_t take();
  /// The callbacks of an operation have run.
  void over(std::uint64_t number);
  /// Waits until those of all operations up to this one have run, or nothing is kept in order.
  void wait_for(std::uint64_t number);
  /// Waits until no operation that has been issued has callbacks to run; gives up at the deadline.
  void wait_for_all(std::chrono::steady_clock::time_point deadline);
  /// From now on nobody waits: the operations have been interrupted.
  void end();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t taken_ = 0;
  std::uint64_t over_ = 0;         ///< all up to here are over
  std::set<std::uint64_t> beyond_; ///< and these
  bool ended_ = false;
};

/// An operation whose future has callbacks.
struct Origin {
  std::shared_ptr<Turns> turns; ///< null: of no queue, in no order
  std::uint64_t number = 0;
  int depth = 0; ///< 0: it was issued by the program, 1: by a callback of one of depth 0, …
};

/// Around a callback of `origin`: waits for its turn. What the thread issues meanwhile is one
/// deeper.
class CallbackScope {
 public:
  explicit CallbackScope(const Origin& origin);
  ~CallbackScope();
  CallbackScope(const CallbackScope&) = delete;
  CallbackScope& operator=(const CallbackScope&) = delete;

  /// Of an operation that the calling thread issues now.
  static int depth();
  /// Whether the calling thread runs a callback of an operation of this queue.
  static bool within(const Turns& turns);

 private:
  Origin origin_;
  CallbackScope* outer_;
};

/// Around the completion of an operation, which runs the callbacks that its future has.
class CompletionScope {
 public:
  explicit CompletionScope(const Origin& origin);
  ~CompletionScope();
  CompletionScope(const CompletionScope&) = delete;
  CompletionScope& operator=(const CompletionScope&) = delete;

 private:
  friend class CallbackScope;
  Origin origin_;
  CompletionScope* outer_;
};

} // namespace whorl_torch
