// P5: IPC handles and ids: what memory of another process shows after it has been freed, and what
// new contexts and default streams are called.
#include <cuda.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "tests/gpu/facts.h"

namespace whorl::facts {
namespace {

struct Exported {
  CUipcMemHandle handle;
  CUdeviceptr address;
  unsigned long long id;
};

Exported exported(std::size_t bytes, unsigned char value) {
  Exported one{};
  one.address = device_memory(bytes);
  NEED(cuMemsetD8Async(one.address, value, bytes, nullptr));
  NEED(cuCtxSynchronize());
  NEED(cuIpcGetMemHandle(&one.handle, one.address));
  NEED(cuPointerGetAttribute(&one.id, CU_POINTER_ATTRIBUTE_BUFFER_ID, one.address));
  return one;
}

int first_byte(CUdeviceptr address) {
  static unsigned char byte = 0;
  const CUstream stream = new_stream();
  NEED(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(&byte), address, 1, stream));
  NEED(cuStreamSynchronize(stream));
  return byte;
}

/// Maps memory of another process, which then frees it.
void freed_while_mapped(std::size_t bytes) {
  int to[2], from[2];
  if (pipe(to) != 0 || pipe(from) != 0) return;
  char go = 0;
  if (fork() == 0) {
    alarm(10);
    enter();
    const Exported first = exported(bytes, 1);
    if (write(to[1], &first, sizeof first) < 0 || read(from[0], &go, 1) != 1) std::_Exit(1);
    NEED(cuMemFree(first.address));
    const Exported second = exported(bytes, 2);
    if (write(to[1], &second, sizeof second) < 0) std::_Exit(1);
    static_cast<void>(!read(from[0], &go, 1));
    std::_Exit(0);
  }
  enter();
  Exported first{}, second{};
  CUdeviceptr old = 0, twice = 0, fresh = 0;
  if (read(to[0], &first, sizeof first) != sizeof first) return;
  const auto open = [](CUdeviceptr* at, const Exported& one) {
    return static_cast<int>(cuIpcOpenMemHandle(at, one.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  };
  const int once = open(&old, first), again = open(&twice, first);
  std::printf("opened %d, once more %d (%s pointer)", once, again,
              old == twice ? "the same" : "another");
  if (again == 0) cuIpcCloseMemHandle(twice);
  if (write(from[1], &go, 1) < 0 || read(to[0], &second, sizeof second) != sizeof second) return;
  std::printf("; allocated anew at %s address, id %s",
              first.address == second.address ? "the same" : "another",
              second.id > first.id ? "grows" : "does not grow");
  const int opened = open(&fresh, second);
  std::printf("; opened beside the old mapping: %d", opened);
  if (opened == 0) std::printf(", shows %s memory", first_byte(fresh) == 2 ? "the new" : "the OLD");
  const int closed = static_cast<int>(cuIpcCloseMemHandle(old));
  const int after = opened == 0 ? 0 : open(&fresh, second);
  std::printf("; the old one closed: %d", closed);
  if (opened != 0) std::printf(", then the new one opened: %d", after);
  if (after == 0) std::printf(", shows %s memory", first_byte(fresh) == 2 ? "the new" : "the OLD");
  std::puts("");
  static_cast<void>(!write(from[1], &go, 1));
}

void contexts_across_release() {
  unsigned long long ids[2] = {};
  const CUcontext first = enter();
  NEED(cuCtxGetId(first, &ids[0]));
  NEED(cuDevicePrimaryCtxRelease(0));
  const CUcontext second = enter();
  NEED(cuCtxGetId(second, &ids[1]));
  std::printf("%s CUcontext, %s id\n", first == second ? "the same" : "another",
              ids[0] == ids[1] ? "the SAME" : "another");
}

void ids_of_default_streams() {
  const CUcontext context = enter();
  const auto print = [context](const char* thread) {
    cuCtxSetCurrent(context);
    for (std::uintptr_t handle = 0; handle < 3; ++handle) {
      unsigned long long id = 0;
      NEED(cuStreamGetId(reinterpret_cast<CUstream>(handle), &id));
      std::printf("%s%llu", handle == 0 ? thread : ", ", id);
    }
  };
  print("of 0, 1, 2 in one thread ");
  std::thread([&] { print("; in another "); }).join();
  cuCtxSetCurrent(nullptr);
  CUcontext none = nullptr;
  std::printf("; without a context cuStreamGetCtx gives %d\n",
              static_cast<int>(cuStreamGetCtx(nullptr, &none)));
}

} // namespace

void map_while_a_stream_waits(bool close) {
  int to[2];
  if (pipe(to) != 0) return;
  if (fork() == 0) {
    alarm(10);
    enter();
    const Exported one = exported(4 << 20, 1);
    if (write(to[1], &one, sizeof one) < 0) std::_Exit(1);
    pause();
  }
  const CUcontext context = enter();
  Exported one{};
  if (read(to[0], &one, sizeof one) != sizeof one) return;
  static CUdeviceptr at = 0;
  const auto open = [one] {
    return cuIpcOpenMemHandle(&at, one.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  };
  if (close) NEED(open());
  const Word word;
  word.hold(new_stream());
  time_it(context, [close, open] { return close ? cuIpcCloseMemHandle(at) : open(); });
}

void ask_about_handles() {
  for (const std::size_t bytes : {std::size_t{512}, std::size_t{4} << 20}) {
    ask("P5 memory of " + std::to_string(bytes) + " bytes that is freed while mapped elsewhere",
        [=] { freed_while_mapped(bytes); });
  }
  ask("P5 the primary context, released and retained", contexts_across_release);
  ask("P5 ids of the default streams", ids_of_default_streams);
}

} // namespace whorl::facts
