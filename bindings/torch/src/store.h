#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <string>

#include "bindings/torch/src/deadline.h"
#include "whorl/whorl.h"

namespace whorl_torch {

/// Adapter of a c10d store to a whorlStore_t. The adapter waits by asking again and again, because
/// a waiting client of a c10d store blocks other threads that use the store, and so that waits can
/// be interrupted.
class StoreAdapter {
 public:
  /// Adapts `store`; waits end soon after `interrupted` becomes true.
  StoreAdapter(c10::intrusive_ptr<c10d::Store> store, const std::atomic<bool>& interrupted)
      : store_(std::move(store)), interrupted_(interrupted) {}
  /// Returns the whorlStore_t, which is valid as long as this object and `prefix` exist.
  whorlStore_t callbacks(const std::string& prefix);
  /// Returns the text of the last exception of the store; empty if there was none.
  const std::string& error() const { return error_; }

 private:
  static int set(void* self, const char* key, const void* value, std::size_t size);
  static int get(void* self, const char* key, void* value, std::size_t capacity, std::size_t* size,
                 int timeout_ms);

  c10::intrusive_ptr<c10d::Store> store_;
  const std::atomic<bool>& interrupted_;
  std::string error_;
};

/// Returns the sentence of an exception of a store, without the frames of the stack.
std::string sentence_of(const std::exception& error);

/// Waits until the store has `key`. Returns false at the deadline, once `interrupted` is true, or
/// after the handler of a signal has raised an exception (see signals.h). Throws what the store
/// throws.
bool wait_for_key(c10d::Store& store, const std::string& key, Deadline deadline,
                  const std::atomic<bool>& interrupted);

} // namespace whorl_torch
