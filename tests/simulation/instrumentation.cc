// The functions that a compiler calls at each access to memory in sources compiled with
// -fsanitize=thread, as the simulation has them: in place of the sanitizer's library, which is not
// linked. So sources of whorl run in the simulation as they are. Copies by memcpy(), memmove() and
// memset() come here by the linker's --wrap.

#include <fmt/format.h>
#include <pthread.h>
#include <sys/types.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "simulation/world.h"

using whorl::simulation::Order;
using whorl::simulation::World;

namespace {

/// Returns the world if the access is one of a fibre to the arena, otherwise null.
World* world_of(const volatile void* at) {
  World* const world = World::running();
  return world != nullptr && world->simulates(at) ? world : nullptr;
}

void read(const volatile void* at, std::size_t bytes) {
  if (World* const world = world_of(at)) world->read(at, bytes);
}
void write(const volatile void* at, std::size_t bytes) {
  if (World* const world = world_of(at)) world->write(at, bytes);
}

/// Accesses an atomic object of the arena as the memory model says, and others as they are.
template <class T>
T load(const volatile T* at, int order) {
  World* const world = world_of(at);
  if (world == nullptr) return __atomic_load_n(at, __ATOMIC_SEQ_CST);
  return static_cast<T>(world->load(at, sizeof(T), Order{order}));
}
template <class T>
void store(volatile T* at, T value, int order) {
  World* const world = world_of(at);
  if (world == nullptr) return __atomic_store_n(at, value, __ATOMIC_SEQ_CST);
  world->store(at, sizeof(T), value, Order{order});
}
template <class T, class Change>
T modify(volatile T* at, int order, const char* what, Change&& change) {
  World* const world = world_of(at);
  if (world == nullptr) {
    const T old = *at; // one thread
    *at = change(old);
    return old;
  }
  return static_cast<T>(world->modify(
      at, sizeof(T), Order{order}, what,
      [&](std::uint64_t old) -> std::uint64_t { return change(static_cast<T>(old)); }));
}
template <class T>
bool compare_exchange(volatile T* at, T* expected, T desired, int order, int failure) {
  const T wanted = *expected;
  World* const world = world_of(at);
  if (world == nullptr) {
    *expected = *at;
    if (*at == wanted) *at = desired;
  } else {
    *expected = static_cast<T>(
        world->compare_exchange(at, sizeof(T), wanted, desired, Order{order}, Order{failure}));
  }
  return *expected == wanted;
}

} // namespace

extern "C" {

// NOLINTBEGIN: the names are the compiler's

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

#define PLAIN(bytes)                                                             \
  void __tsan_read##bytes(void* at) { read(at, bytes); }                         \
  void __tsan_write##bytes(void* at) { write(at, bytes); }                       \
  void __tsan_unaligned_read##bytes(void* at) { read(at, bytes); }               \
  void __tsan_unaligned_write##bytes(void* at) { write(at, bytes); }             \
  void __tsan_read_write##bytes(void* at) { read(at, bytes), write(at, bytes); } \
  void __tsan_unaligned_read_write##bytes(void* at) { read(at, bytes), write(at, bytes); }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)
void __tsan_read_range(void* at, std::size_t bytes) { read(at, bytes); }
void __tsan_write_range(void* at, std::size_t bytes) { write(at, bytes); }

#define ATOMIC(bits)                                                                           \
  using u##bits = std::uint##bits##_t;                                                         \
  u##bits __tsan_atomic##bits##_load(const volatile u##bits* at, int order) {                  \
    return load(at, order);                                                                    \
  }                                                                                            \
  void __tsan_atomic##bits##_store(volatile u##bits* at, u##bits value, int order) {           \
    store(at, value, order);                                                                   \
  }                                                                                            \
  u##bits __tsan_atomic##bits##_exchange(volatile u##bits* at, u##bits value, int order) {     \
    return modify(at, order, "exchange", [=](u##bits) { return value; });                      \
  }                                                                                            \
  u##bits __tsan_atomic##bits##_fetch_add(volatile u##bits* at, u##bits value, int order) {    \
    return modify(at, order, "add",                                                            \
                  [=](u##bits old) { return static_cast<u##bits>(old + value); });             \
  }                                                                                            \
  u##bits __tsan_atomic##bits##_fetch_sub(volatile u##bits* at, u##bits value, int order) {    \
    return modify(at, order, "sub",                                                            \
                  [=](u##bits old) { return static_cast<u##bits>(old - value); });             \
  }                                                                                            \
  u##bits __tsan_atomic##bits##_fetch_or(volatile u##bits* at, u##bits value, int order) {     \
    return modify(at, order, "or",                                                             \
                  [=](u##bits old) { return static_cast<u##bits>(old | value); });             \
  }                                                                                            \
  u##bits __tsan_atomic##bits##_fetch_and(volatile u##bits* at, u##bits value, int order) {    \
    return modify(at, order, "and",                                                            \
                  [=](u##bits old) { return static_cast<u##bits>(old & value); });             \
  }                                                                                            \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile u##bits* at, u##bits* expected,   \
                                                    u##bits desired, int order, int failure) { \
    return compare_exchange(at, expected, desired, order, failure);                            \
  }                                                                                            \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile u##bits* at, u##bits* expected,     \
                                                  u##bits desired, int order, int failure) {   \
    return compare_exchange(at, expected, desired, order, failure);                            \
  }
ATOMIC(8)
ATOMIC(16)
ATOMIC(32)
ATOMIC(64)

void __tsan_atomic_thread_fence(int order) {
  if (World* const world = World::running()) world->fence(Order{order});
}
void __tsan_atomic_signal_fence(int) {}

void* __real_memcpy(void* to, const void* from, std::size_t bytes);
void* __real_memmove(void* to, const void* from, std::size_t bytes);
void* __real_memset(void* to, int value, std::size_t bytes);

void* __wrap_memcpy(void* to, const void* from, std::size_t bytes) {
  read(from, bytes);
  write(to, bytes);
  return __real_memcpy(to, from, bytes);
}
void* __wrap_memmove(void* to, const void* from, std::size_t bytes) {
  read(from, bytes);
  write(to, bytes);
  return __real_memmove(to, from, bytes);
}
void* __wrap_memset(void* to, int value, std::size_t bytes) {
  write(to, bytes);
  return __real_memset(to, value, bytes);
}
// A fibre that waits for a mutex of its process lets the others run.
int __real_pthread_mutex_lock(pthread_mutex_t* mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t* mutex) {
  World* const world = World::running();
  if (world == nullptr) return __real_pthread_mutex_lock(mutex);
  int result = 0;
  while ((result = pthread_mutex_trylock(mutex)) == EBUSY) {
    world->system_call();
    world->scheduler().sleep(world->scheduler().now_ns() + 1'000);
  }
  return result;
}

// Names that are the same in each run, since they are in texts whose lengths matter.
pid_t __wrap_getpid() { return 4242; }
int __wrap_gethostname(char* name, std::size_t size) {
  *fmt::format_to_n(name, size - 1, "host").out = '\0';
  return 0;
}

// Clang calls these for copies that it would do in place.
void* __tsan_memcpy(void* to, const void* from, std::size_t bytes) {
  return __wrap_memcpy(to, from, bytes);
}
void* __tsan_memmove(void* to, const void* from, std::size_t bytes) {
  return __wrap_memmove(to, from, bytes);
}
void* __tsan_memset(void* to, int value, std::size_t bytes) {
  return __wrap_memset(to, value, bytes);
}

// NOLINTEND
}
