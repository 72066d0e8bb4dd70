#include "bindings/torch/src/store.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "bindings/torch/src/signals.h"

namespace whorl_torch {

std::string sentence_of(const std::exception& error) {
  const auto* const from_torch = dynamic_cast<const c10::Error*>(&error);
  std::string text = from_torch != nullptr ? from_torch->what_without_backtrace() : error.what();
  return text.substr(0, text.find("\nException raised from"));
}

bool wait_for_key(c10d::Store& store, const std::string& key, Deadline deadline,
                  const std::atomic<bool>& interrupted) {
  using namespace std::chrono_literals;
  for (Backoff backoff(100us, 10ms); !store.check({key}); backoff.sleep()) {
    if (interrupted.load() || has_passed(deadline) || interrupt_check() != 0) return false;
  }
  return true;
}

whorlStore_t StoreAdapter::callbacks(const std::string& prefix) {
  return {.context = this, .prefix = prefix.c_str(), .set = &set, .get = &get};
}

int StoreAdapter::set(void* self, const char* key, const void* value, std::size_t size) {
  auto& adapter = *static_cast<StoreAdapter*>(self);
  try {
    const auto* bytes = static_cast<const std::uint8_t*>(value);
    adapter.store_->set(key, std::vector<std::uint8_t>(bytes, bytes + size));
    // A set is not answered, so one to a store that has just ended succeeds.
    if (adapter.store_->check({key})) return 0;
    adapter.error_ = "the store has not kept what was set";
    return 1;
  } catch (const std::exception& error) {
    adapter.error_ = sentence_of(error);
    return 1;
  }
}

int StoreAdapter::get(void* self, const char* key, void* value, std::size_t capacity,
                      std::size_t* size, int timeout_ms) {
  auto& adapter = *static_cast<StoreAdapter*>(self);
  try {
    const Deadline deadline = deadline_in(std::chrono::milliseconds(timeout_ms));
    if (!wait_for_key(*adapter.store_, key, deadline, adapter.interrupted_)) {
      if (!adapter.interrupted_.load()) {
        adapter.error_ = c10::str("nothing came within the timeout of ", timeout_ms, " ms");
      }
      return 1;
    }
    const std::vector<std::uint8_t> bytes = adapter.store_->get(key);
    *size = bytes.size();
    std::memcpy(value, bytes.data(), std::min(capacity, bytes.size()));
    return 0;
  } catch (const std::exception& error) {
    adapter.error_ = sentence_of(error);
    return 1;
  }
}

} // namespace whorl_torch
