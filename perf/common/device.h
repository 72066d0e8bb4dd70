#pragma once

#include <cstddef>
#include <string>

namespace perf {

/// Functions of the CUDA driver that buffers on a device need; the driver is loaded at run time, so
/// that the programs run without one. Every function throws Failure with a sentence.
class Device {
 public:
  /// Returns the driver, which the first call loads and initialises. Thread-safe.
  static const Device& driver();

  /// Makes device `index` modulo the number of devices current on the calling thread, and returns
  /// its number.
  int attach(int index) const; // NOLINT(modernize-use-nodiscard)
  /// Returns the driver's name of device number `index`.
  [[nodiscard]] std::string name(int index) const;
  [[nodiscard]] std::byte* allocate(std::size_t bytes) const;
  void free(std::byte* memory) const noexcept;
  /// Copies between host and device in either direction; complete on return.
  void copy(void* to, const void* from, std::size_t bytes) const;
  /// Creates a stream that does not wait for the default stream.
  [[nodiscard]] void* make_stream() const;
  void synchronize(void* stream) const;
  void destroy(void* stream) const noexcept;

 private:
  Device();
  void check(int result, const char* call) const;

  using Address = unsigned long long;
  int (*init_)(unsigned);
  int (*error_name_)(int, const char**);
  int (*count_)(int*);
  int (*get_)(int*, int);
  int (*name_)(char*, int, int);
  int (*retain_)(void**, int);
  int (*set_current_)(void*);
  int (*allocate_)(Address*, std::size_t);
  int (*free_)(Address);
  int (*copy_)(Address, Address, std::size_t);
  int (*stream_create_)(void**, unsigned);
  int (*stream_synchronize_)(void*);
  int (*stream_destroy_)(void*);
};

} // namespace perf
