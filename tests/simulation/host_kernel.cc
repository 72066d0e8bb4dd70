#include "simulation/host_kernel.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "simulation/world.h"

namespace whorl::simulation {
namespace {

bool has_died(std::size_t process) noexcept {
  return world().scheduler().process_died_ns(process) != Scheduler::kForEver;
}

} // namespace

/// Returns the error of a call of the running process; 0: it is not refused.
int HostKernel::refusal_of(Call call) noexcept {
  enter();
  if (!refusal_ || refusal_->call != call || refusal_->process != world().scheduler().process()) {
    return 0;
  }
  refused_ = true;
  return std::exchange(refusal_, std::nullopt)->error;
}

/// Whether the running process may have one more descriptor.
bool HostKernel::has_room() const noexcept {
  const std::size_t process = world().scheduler().process();
  return process != limited_ || open_descriptors(process) < most_descriptors_;
}

/// Gives the running process a descriptor of an object.
int HostKernel::open(std::shared_ptr<Object> object) {
  if (!has_room()) {
    refused_ = true;
    return -EMFILE;
  }
  descriptors_.push_back({.owner = world().scheduler().process(), .object = std::move(object)});
  return kFirstObject + static_cast<int>(descriptors_.size()) - 1;
}

/// Closes the descriptors of processes that have died.
void HostKernel::forget_dead() noexcept {
  for (Descriptor& one : descriptors_) {
    if (has_died(one.owner)) one.object.reset();
  }
}

std::byte* HostKernel::memory_of(int fd) const noexcept {
  return is_object(fd) && object(fd) != nullptr ? object(fd)->memory : nullptr;
}

std::optional<std::size_t> HostKernel::process_of(int fd) const noexcept {
  return is_object(fd) && object(fd) != nullptr ? object(fd)->process : std::nullopt;
}

std::size_t HostKernel::open_descriptors(std::size_t process) const noexcept {
  const auto open = std::count_if(
      descriptors_.begin(), descriptors_.end(),
      [process](const Descriptor& one) { return one.owner == process && one.object != nullptr; });
  return static_cast<std::size_t>(open) + open_sockets(process);
}

int HostKernel::close(int fd) noexcept {
  if (!is_object(fd)) return Network::close(fd);
  forget_dead();
  Descriptor& closed = descriptors_[static_cast<std::size_t>(fd - kFirstObject)];
  world().require(closed.object != nullptr || has_died(closed.owner),
                  "descriptor {} is closed twice", fd - kFirstObject);
  closed.object.reset();
  return 0;
}

int HostKernel::memfd_create(const char*) noexcept {
  if (const int error = refusal_of(Call::kMemory); error < 0) return error;
  auto made = std::make_shared<Object>();
  made->is_memory = true;
  return open(std::move(made));
}

int HostKernel::ftruncate(int fd, std::size_t size) noexcept {
  if (const int error = refusal_of(Call::kSize); error < 0) return error;
  Object& file = *object(fd);
  const std::size_t pages = (size + Arena::kPageBytes - 1) / Arena::kPageBytes;
  file.memory = arena().allocate(size);
  file.size = size;
  arena().unback(file.memory, pages * Arena::kPageBytes);
  return 0;
}

int HostKernel::seal_size(int fd) noexcept {
  object(fd)->sealed = true;
  return 0;
}

int HostKernel::size_sealed(int fd) noexcept {
  return object(fd)->is_memory ? static_cast<int>(object(fd)->sealed) : -EINVAL;
}

int HostKernel::file_size(int fd, std::size_t* size) noexcept {
  *size = object(fd)->size;
  return 0;
}

int HostKernel::fallocate(int fd, std::size_t offset, std::size_t size) noexcept {
  if (const int error = refusal_of(Call::kBack); error < 0) return error;
  arena().back(object(fd)->memory + offset, size);
  return 0;
}

int HostKernel::mmap(void* hint, std::size_t size, int protection, int flags, int fd,
                     std::size_t offset, void** address) noexcept {
  if (!is_object(fd)) {
    return SimulatedSystem::mmap(hint, size, protection, flags, fd, offset, address);
  }
  if (const int error = refusal_of(Call::kMap); error < 0) return error;
  const Object& file = *object(fd);
  if (!file.is_memory || offset + size > file.size) return -EINVAL;
  ++mappings_;
  *address = file.memory + offset;
  return 0;
}

int HostKernel::munmap(void* address, std::size_t size) noexcept {
  if (!arena().holds(address)) return SimulatedSystem::munmap(address, size);
  --mappings_;
  return 0;
}

int HostKernel::pidfd_open(int pid) noexcept {
  if (const int error = refusal_of(Call::kPidfd); error < 0) return error;
  if (pidfds_forbidden_ || world().scheduler().process() == without_pidfds_) return -EPERM;
  const auto process = static_cast<std::size_t>(static_cast<std::uint32_t>(pid) - pid_of(0));
  if (has_died(process)) return -ESRCH;
  auto made = std::make_shared<Object>();
  made->process = process;
  return open(std::move(made));
}

int HostKernel::socket_pair(int, std::span<int, 2> fds) noexcept {
  if (const int error = refusal_of(Call::kDatagrams); error < 0) return error;
  auto first = std::make_shared<Object>(), second = std::make_shared<Object>();
  first->outgoing = second;
  second->outgoing = first;
  fds[0] = open(std::move(first));
  if (fds[0] < 0) return fds[0];
  fds[1] = open(std::move(second));
  if (fds[1] >= 0) return 0;
  close(fds[0]);
  return fds[1];
}

int HostKernel::getsockopt(int fd, int level, int option, void* value, socklen_t* size) noexcept {
  if (option != SO_PEERCRED) return Network::getsockopt(fd, level, option, value, size);
  enter();
  const std::size_t process = led_to(fd);
  const ucred peer{.pid = static_cast<pid_t>(pid_of(process)),
                   .uid = process == stranger_ ? 1001U : 1000U,
                   .gid = 1000};
  std::memcpy(value, &peer, sizeof peer);
  return 0;
}

std::uint32_t HostKernel::user_id() noexcept {
  return world().scheduler().process() == stranger_ ? 1001 : 1000;
}

Network::Rights HostKernel::rights_in(const msghdr& message) noexcept {
  Rights rights;
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header == nullptr) return rights;
  for (std::size_t at = CMSG_LEN(0); at < header->cmsg_len; at += sizeof(int)) {
    int fd = -1;
    std::memcpy(&fd, reinterpret_cast<const std::byte*>(header) + at, sizeof fd);
    world().require(is_object(fd) && object(fd) != nullptr,
                    "a descriptor is passed that is closed, or that nobody passes");
    rights.push_back(object(fd));
  }
  return rights;
}

void HostKernel::grant(const Rights& rights, msghdr* message) noexcept {
  std::vector<int> fds;
  for (const auto& one : rights) {
    const int fd = open(std::static_pointer_cast<Object>(one));
    if (fd < 0) {
      message->msg_flags |= MSG_CTRUNC;
      break;
    }
    fds.push_back(fd);
  }
  message->msg_controllen = fds.empty() ? 0 : CMSG_SPACE(fds.size() * sizeof(int));
  if (fds.empty()) return;
  cmsghdr* const header = CMSG_FIRSTHDR(message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
  std::memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
}

::ssize_t HostKernel::sendmsg(int fd, const msghdr* message) noexcept {
  const bool passes = message->msg_controllen > 0;
  if (passes) {
    if (const int error = refusal_of(Call::kPass); error < 0) return error;
    // Now and then too many descriptors of the user are under way.
    if (world().random().chance(5)) return -ETOOMANYREFS;
  }
  if (!is_object(fd)) return Network::sendmsg(fd, message);
  enter();
  forget_dead();
  const std::shared_ptr<Object> to = object(fd)->outgoing.lock();
  if (to == nullptr) return -ECONNREFUSED;
  if (world().random().chance(10)) return -EAGAIN;
  const auto* const begin = static_cast<const std::byte*>(message->msg_iov->iov_base);
  to->arrived.push_back({.bytes = {begin, begin + message->msg_iov->iov_len},
                         .sender_view = world().publish(),
                         .rights = rights_in(*message)});
  return static_cast<::ssize_t>(message->msg_iov->iov_len);
}

::ssize_t HostKernel::recvmsg(int fd, msghdr* message) noexcept {
  if (!is_object(fd)) return Network::recvmsg(fd, message);
  enter();
  Object& from = *object(fd);
  message->msg_controllen = 0;
  message->msg_flags = 0;
  if (from.arrived.empty()) return -EAGAIN;
  const Datagram datagram = std::move(from.arrived.front());
  from.arrived.pop_front();
  world().observe(datagram.sender_view);
  const std::size_t size = std::min(datagram.bytes.size(), message->msg_iov->iov_len);
  std::copy_n(datagram.bytes.begin(), size, static_cast<std::byte*>(message->msg_iov->iov_base));
  if (!datagram.rights.empty()) grant(datagram.rights, message);
  return static_cast<::ssize_t>(size);
}

} // namespace whorl::simulation
