#pragma once

#include <cstddef>
#include <string>

namespace perf {

/// The CUDA driver as far as buffers on a device need it; loaded at run time, so that the programs
/// run without one. Every function throws Failure with a sentence.
class Device {
 public:
  /// Loads and initialises the driver at the first call. Any thread.
  static const Device& driver();

  /// Makes a device the calling thread's: number `index` modulo how many there are, which is
  /// returned.
  int attach(int index) const; // NOLINT(modernize-use-nodiscard)
  /// What the driver calls the thread's device number `index`.
  [[nodiscard]] std::string name(int index) const;
  [[nodiscard]] std::byte* allocate(std::size_t bytes) const;
  void free(std::byte* memory) const noexcept;
  /// Either way between host and device; complete when it returns.
  void copy(void* to, const void* from, std::size_t bytes) const;
  /// A stream that does not wait for the default stream.
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
