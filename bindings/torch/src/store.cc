#include "bindings/torch/src/store.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "bindings/torch/src/signals.h"

namespace whorl_torch {

std::string sentence_of(const std::exception& error) {
  const auto* const from_torch = dynamic_cast<const c10::Error*>(&error);
  std::string text = from_torch != nullptr ? from_torch->what_without_backtrace() : error.what();
  return text.substr(0, text.find("\nException raised from"));
}

bool wait_for_key(c10d::Store& store, const std::string& key, std::chrono::milliseconds timeout,
                  const std::atomic<bool>& interrupted) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  auto pause = std::chrono::microseconds(100);
  while (!store.check({key})) {
    if (interrupted.load() || std::chrono::steady_clock::now() >= deadline) return false;
    if (interrupt_check() != 0) return false;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(10'000));
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
    if (!wait_for_key(*adapter.store_, key, std::chrono::milliseconds(timeout_ms),
                      adapter.interrupted_)) {
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
