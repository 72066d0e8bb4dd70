#pragma once

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace whorl::test {

inline bool shell(const std::string& command) {
  return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
}

/// Namespaces w<pid>a (10.77.0.1) and w<pid>b (10.77.0.2), with a cable between them.
class Cable {
 public:
  Cable() {
    ready_ =
        shell("ip netns add " + name(0)) && shell("ip netns add " + name(1)) &&
        shell("ip -n " + name(0) + " link add cable0 type veth peer name cable1 netns " + name(1));
    for (int side = 0; side < 2 && ready_; ++side) {
      const std::string cable = "cable" + std::to_string(side);
      ready_ = shell("ip -n " + name(side) + " link set " + cable + " address " + hardware(side)) &&
               shell("ip -n " + name(side) + " addr add " + address(side) + "/24 dev " + cable) &&
               shell("ip -n " + name(side) + " link set " + cable + " up") &&
               shell("ip -n " + name(side) + " link set lo up");
    }
  }
  ~Cable() {
    for (int side = 0; side < 2; ++side) shell("ip netns del " + name(side));
  }
  bool ready() const { return ready_; }
  static std::string name(int side) {
    static const std::string prefix = "w" + std::to_string(::getpid());
    return prefix + (side == 0 ? "a" : "b");
  }
  /// Moves this process into a namespace. Returns whether it has.
  static bool enter(int side) {
    const int space = ::open(("/run/netns/" + name(side)).c_str(), O_RDONLY | O_CLOEXEC);
    return space >= 0 && ::setns(space, CLONE_NEWNET) == 0;
  }
  bool cut() { return shell("ip -n " + name(0) + " link set cable0 down"); }
  bool mend() { return shell("ip -n " + name(0) + " link set cable0 up"); }
  /// Loses everything that the sides send, while the cable stays connected: each side sends to a
  /// hardware address that the other does not have.
  bool lose() { return direct(0, hardware(2)) && direct(1, hardware(2)); }
  /// Lets packets arrive again. Both sides know the other's hardware address from then on, even if
  /// they have not asked for it.
  bool pass() { return direct(0, hardware(1)) && direct(1, hardware(0)); }

 private:
  static std::string address(int side) { return "10.77.0." + std::to_string(side + 1); }
  static std::string hardware(int side) { return "02:00:0a:4d:00:0" + std::to_string(side + 1); }
  /// Lets a side send what is for the other one to a hardware address.
  static bool direct(int side, const std::string& hardware) {
    return shell("ip -n " + name(side) + " neigh replace " + address(1 - side) + " lladdr " +
                 hardware + " nud permanent dev cable" + std::to_string(side));
  }

  bool ready_ = false;
};

} // namespace whorl::test
