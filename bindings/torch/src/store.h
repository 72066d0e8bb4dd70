#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <string>

#include "whorl/whorl.h"

namespace whorl_torch {

/// A c10d store as a whorlStore_t. Waits by asking again and again, because a waiting client of a
/// c10d store blocks the other threads that use it, and so that it can be interrupted.
class StoreAdapter {
 public:
  /// Waits end soon after `interrupted` becomes true.
  StoreAdapter(c10::intrusive_ptr<c10d::Store> store, const std::atomic<bool>& interrupted)
      : store_(std::move(store)), interrupted_(interrupted) {}
  /// Valid as long as this object and `prefix` are.
  whorlStore_t callbacks(const std::string& prefix);
  /// What the store threw last; empty if nothing.
  const std::string& error() const { return error_; }

 private:
  static int set(void* self, const char* key, const void* value, std::size_t size);
  static int get(void* self, const char* key, void* value, std::size_t capacity, std::size_t* size,
                 int timeout_ms);

  c10::intrusive_ptr<c10d::Store> store_;
  const std::atomic<bool>& interrupted_;
  std::string error_;
};

/// Gives what a store has thrown in one sentence, without the frames of the stack.
std::string sentence_of(const std::exception& error);

/// Waits until `key` is there; false when the time is up or `interrupted`, or the handler of a
/// signal has raised (see signals.h). Throws what the store throws.
bool wait_for_key(c10d::Store& store, const std::string& key, std::chrono::milliseconds timeout,
                  const std::atomic<bool>& interrupted);

} // namespace whorl_torch
