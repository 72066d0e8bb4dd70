#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace whorl {

/// Returns the calling thread's object of type T; `Tag` tells objects of the same type apart. The
/// object may be used until the thread is gone, empty at first and again when the thread's
/// `thread_local` objects have ended: destructors of static objects, and of keys of pthreads, run
/// after that, and may call the library. Memory that the object gets then is never freed.
template <class T, class Tag>
T& lasting_of_thread() noexcept {
  alignas(T) static thread_local std::byte memory[sizeof(T)];
  static thread_local T* const object = new (memory) T; // allocates nothing
  struct End {
    ~End() {
      std::destroy_at(object);
      std::construct_at(object);
    }
  };
  static thread_local const End end;
  return *object;
}

} // namespace whorl
