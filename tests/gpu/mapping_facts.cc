// P7: memory of the driver's virtual memory management. What the driver reports of mappings,
// whether new memory at an old place has a new identity, and what other processes see of it.
#include <cuda.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/gpu/facts.h"

namespace whorl::facts {
namespace {

CUmemAllocationProp properties() {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return prop;
}

std::size_t unit() {
  const CUmemAllocationProp prop = properties();
  std::size_t bytes = 0;
  NEED(cuMemGetAllocationGranularity(&bytes, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  return bytes;
}

CUmemGenericAllocationHandle new_memory() {
  const CUmemAllocationProp prop = properties();
  CUmemGenericAllocationHandle handle = 0;
  NEED(cuMemCreate(&handle, unit(), &prop, 0));
  return handle;
}

CUdeviceptr reserve(std::size_t units) {
  CUdeviceptr begin = 0;
  NEED(cuMemAddressReserve(&begin, units * unit(), 0, 0, 0));
  return begin;
}

void map(CUdeviceptr at, CUmemGenericAllocationHandle handle) {
  const CUmemAccessDesc access{.location = properties().location,
                               .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  NEED(cuMemMap(at, unit(), 0, handle, 0));
  NEED(cuMemSetAccess(at, unit(), &access, 1));
}

unsigned long long id_at(CUdeviceptr address) {
  unsigned long long id = 0;
  NEED(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address));
  return id;
}

int byte_at(CUdeviceptr address) {
  static unsigned char byte = 0;
  NEED(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(&byte), address, 1, nullptr));
  NEED(cuCtxSynchronize());
  return byte;
}

void fill(CUdeviceptr address, unsigned char value) {
  NEED(cuMemsetD8Async(address, value, unit(), nullptr));
  NEED(cuCtxSynchronize());
}

/// Reserves three units, maps two, and prints what the driver reports of the second.
void what_is_said() {
  enter();
  const CUdeviceptr begin = reserve(3), second = begin + unit();
  const CUmemGenericAllocationHandle handles[] = {new_memory(), new_memory()};
  map(begin, handles[0]);
  map(second, handles[1]);
  CUdeviceptr base = 0, range = 0;
  std::size_t bytes = 0, ranged = 0;
  bool legacy = false;
  CUmemGenericAllocationHandle handle = 0;
  NEED(cuMemGetAddressRange(&base, &bytes, second + 8));
  NEED(cuPointerGetAttribute(&range, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, second + 8));
  NEED(cuPointerGetAttribute(&ranged, CU_POINTER_ATTRIBUTE_RANGE_SIZE, second + 8));
  NEED(cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, second));
  NEED(cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(second)));
  std::printf("cuMemGetAddressRange tells of %s, RANGE_START_ADDR and _SIZE of %s",
              base == second && bytes == unit() ? "the mapping" : "ANOTHER RANGE",
              range == second && ranged == unit()      ? "the mapping"
              : range == begin && ranged == 3 * unit() ? "the reservation"
                                                       : "another range");
  std::printf("; a unit is %zu bytes, legacy IPC %d, ids %s, the handle is %s\n", unit(), legacy,
              id_at(begin) == id_at(second) ? "the same" : "apart",
              handle == handles[1] ? "that of cuMemMap" : "ANOTHER ONE");
}

/// Maps new memory at the place of old memory; with `hold`, while a reference to the old memory
/// exists.
void mapped_anew(bool hold) {
  enter();
  const CUdeviceptr begin = reserve(1);
  const CUmemGenericAllocationHandle first = new_memory();
  map(begin, first);
  const unsigned long long id = id_at(begin);
  CUmemGenericAllocationHandle held = 0;
  if (hold) NEED(cuMemRetainAllocationHandle(&held, reinterpret_cast<void*>(begin)));
  NEED(cuMemUnmap(begin, unit()));
  NEED(cuMemRelease(first));
  const CUmemGenericAllocationHandle second = new_memory();
  map(begin, second);
  std::printf("%s id, %s handle\n", id_at(begin) == id ? "the same" : "another",
              second != first ? "another"
              : hold          ? "THE SAME"
                              : "the same");
}

void send(int socket, int fd) {
  char byte = 0;
  iovec piece{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
  if (sendmsg(socket, &message, 0) < 0) std::_Exit(1);
}

int receive(int socket) {
  char byte = 0;
  int fd = -1;
  iovec piece{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(socket, &message, 0) <= 0 || CMSG_FIRSTHDR(&message) == nullptr) std::_Exit(1);
  std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
  return fd;
}

/// Maps memory of another process by its descriptor.
void mapped_elsewhere() {
  int pair[2];
  char go = 0;
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) return;
  if (fork() == 0) {
    alarm(10);
    enter();
    const CUdeviceptr begin = reserve(1);
    const CUmemGenericAllocationHandle handle = new_memory();
    map(begin, handle);
    fill(begin, 1);
    int fd = -1;
    NEED(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    send(pair[1], fd);
    close(fd);
    if (read(pair[1], &go, 1) != 1) std::_Exit(1);
    NEED(cuMemUnmap(begin, unit()));
    NEED(cuMemRelease(handle));
    const CUmemGenericAllocationHandle next = new_memory();
    map(begin, next);
    fill(begin, 2);
    if (write(pair[1], &go, 1) != 1) std::_Exit(1);
    static_cast<void>(!read(pair[1], &go, 1));
    std::_Exit(0);
  }
  enter();
  const int fd = receive(pair[0]);
  void* const shareable = reinterpret_cast<void*>(static_cast<std::intptr_t>(fd));
  CUmemGenericAllocationHandle handle = 0, twice = 0;
  const auto import = [&](CUmemGenericAllocationHandle* to) {
    return static_cast<int>(
        cuMemImportFromShareableHandle(to, shareable, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  };
  const int once = import(&handle), again = import(&twice);
  close(fd);
  std::printf("imported %d, once more %d (%s handle)", once, again,
              handle == twice ? "the same" : "another");
  if (once != 0) {
    std::puts("");
    return;
  }
  const CUdeviceptr at = reserve(1);
  map(at, handle);
  NEED(cuMemRelease(handle));
  std::printf("; mapped, shows %s", byte_at(at) == 1 ? "the memory" : "SOMETHING ELSE");
  if (write(pair[0], &go, 1) != 1 || read(pair[0], &go, 1) != 1) return;
  std::printf("; after it was released there and its place mapped anew: %s\n",
              byte_at(at) == 1 ? "the old memory" : "THE NEW MEMORY");
  static_cast<void>(!write(pair[0], &go, 1));
}

} // namespace

std::vector<Question> mapping_questions() {
  return {
      {"cuMemCreate", [] { return [] { return (new_memory(), CUDA_SUCCESS); }; }},
      {"cuMemMap",
       [] {
         return [at = reserve(1), handle = new_memory()] {
           return cuMemMap(at, unit(), 0, handle, 0);
         };
       }},
      {"cuMemSetAccess",
       [] {
         const CUdeviceptr at = reserve(1);
         NEED(cuMemMap(at, unit(), 0, new_memory(), 0));
         return [at] {
           const CUmemAccessDesc access{.location = properties().location,
                                        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
           return cuMemSetAccess(at, unit(), &access, 1);
         };
       }},
      {"cuMemUnmap",
       [] {
         const CUdeviceptr at = reserve(1);
         map(at, new_memory());
         return [at] { return cuMemUnmap(at, unit()); };
       }},
      {"cuMemRetainAllocationHandle",
       [] {
         const CUdeviceptr at = reserve(1);
         map(at, new_memory());
         return [at] {
           CUmemGenericAllocationHandle handle = 0;
           return cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(at));
         };
       }},
  };
}

void ask_about_mappings() {
  ask("P7 what is said of mappings", what_is_said);
  ask("P7 other memory at the same addresses", [] { mapped_anew(false); });
  ask("P7 … while there is a reference to the old one", [] { mapped_anew(true); });
  ask("P7 memory that another process has exported by a descriptor", mapped_elsewhere);
}

} // namespace whorl::facts
