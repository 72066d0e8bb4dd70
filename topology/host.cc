#include "topology/host.h"

#include <unistd.h>

#include <array>
#include <fstream>
#include <mutex>
#include <span>
#include <string>

#include "base/params.h"
#include "base/system.h"

namespace whorl {
namespace {

std::uint64_t hash(const std::string& text) {
  std::uint64_t value = 0xcbf29ce484222325; // FNV-1a
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return value;
}

/// Returns the boot id or, without one, the name of the host.
std::string machine() {
  std::string text;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> text;
  std::array<char, 64> name{};
  if (text.empty() && ::gethostname(name.data(), name.size() - 1) == 0) text = name.data();
  return text;
}

/// Returns the hash of WHORL_HOST_ID, or of machine and network namespace: containers of one
/// machine in different namespaces cannot reach each other's unix sockets.
std::uint64_t host_key() {
  if (const std::string forced = param_text(Param::kHostId); !forced.empty()) {
    return hash("id " + forced);
  }
  std::string text = machine();
  std::array<char, 64> space{};
  if (::readlink("/proc/self/ns/net", space.data(), space.size() - 1) > 0) text += space.data();
  return hash(text);
}

/// Returns a random number that is made once for each process: a forked child has its own.
std::uint64_t process_key() {
  static std::mutex mutex;
  static int owner = 0;
  static std::uint64_t key = 0;
  const std::lock_guard lock(mutex);
  const int self = ::getpid();
  if (owner != self) {
    if (sys().random_bytes(std::as_writable_bytes(std::span(&key, 1))) != 0) {
      key = sys().now_ns() ^ static_cast<std::uint64_t>(self) << 32U;
    }
    owner = self;
  }
  return key;
}

} // namespace

void describe_local_host(PeerInfo& info) {
  info.process_id = static_cast<std::uint32_t>(::getpid());
  info.host_key = host_key();
  info.machine_key = hash(machine());
  info.process_key = process_key();
  ::gethostname(info.host_name.data(), info.host_name.size() - 1);
}

} // namespace whorl
