#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>

#include "bindings/torch/src/deadline.h"

namespace whorl_torch {

/// Order of the callbacks of one queue's operations: they run one after the other, in the order of
/// the operations, although several threads complete these. Any thread.
class CallbackOrder {
 public:
  /// Returns the number of the next operation, from 1. Called in the order of the queue.
  std::uint64_t issue();
  /// Notes that the callbacks of an operation have run.
  void complete(std::uint64_t number);
  /// Waits until the callbacks of all operations up to this one have run, or until release().
  void wait_for(std::uint64_t number);
  /// Waits until the callbacks of all operations that have a number have run, or until release() or
  /// the deadline.
  void wait_for_all(Deadline deadline);
  /// Ends all waits, also later ones: the operations have been interrupted.
  void release();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t issued_ = 0;
  std::uint64_t completed_ = 0;             ///< last operation up to which all callbacks have run
  std::set<std::uint64_t> completed_ahead_; ///< later operations whose callbacks have run
  bool ended_ = false;
};

/// Place of an operation in the order of callbacks.
struct Origin {
  std::shared_ptr<CallbackOrder> order; ///< order of its queue; null: none
  std::uint64_t number = 0;
  int depth = 0; ///< depth: 0 if the program issued it, 1 in a callback of depth 0, …
};

/// Time in which the calling thread runs a callback of `origin`, whose turn the constructor waits
/// for. An operation that the thread issues meanwhile is one deeper.
class CallbackScope {
 public:
  explicit CallbackScope(const Origin& origin);
  ~CallbackScope();
  CallbackScope(const CallbackScope&) = delete;
  CallbackScope& operator=(const CallbackScope&) = delete;

  /// Returns the depth of an operation that the calling thread issues now.
  static int depth();
  /// Returns whether the calling thread runs a callback of an operation of this order.
  static bool within(const CallbackOrder& order);

 private:
  Origin origin_;
  CallbackScope* outer_;
};

/// Time in which the calling thread completes an operation, which runs the callbacks of its future.
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
