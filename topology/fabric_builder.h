#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "topology/fabric.h"

namespace whorl::topology {

/// Collector of what a file says of hosts and switches, in any order, and of what is odd about it.
class FabricBuilder {
 public:
  /// Most hosts of a file, counted as often as the file names them; the same of switches.
  static constexpr std::size_t kMaxNames = 1'000'000;
  /// Most switches above each other.
  static constexpr int kMaxLevels = 32;

  /// Makes an empty collector; errors and notes begin with the name of the file.
  explicit FabricBuilder(std::string file) : file_(std::move(file)) {}

  /// Returns "FILE, line 12: WHY" as an error.
  Status error(int line, std::string_view why) const;
  void note(int line, std::string_view what);
  void note(std::string_view what);

  /// Returns the index of a switch that a line defines; an error if another line has done so.
  Result<int> define(std::string_view name, int line);
  /// Returns the index of a new switch, which lists cannot name.
  int add(std::string_view name, int line);
  /// Puts hosts below a switch, all of a list in Slurm's notation.
  Status add_hosts(int parent, std::string_view list, int line);
  /// Puts switches below a switch, all of a list in Slurm's notation. Others may define them later.
  Status add_switches(int parent, std::string_view list, int line);

  /// Puts one host below a switch. Of a host that is added again, the bandwidth is that of all
  /// times together.
  void add_host(int parent, std::string_view name, const Bandwidth& up);
  /// Puts one switch below another.
  void add_switch(int parent, int child) { switches_[at(child)].parents.push_back(parent); }
  void set_up(int index, const Bandwidth& up) { switches_[at(index)].up = up; }

  /// Returns the tree of all that was added, which leaves the builder empty. Hosts and switches
  /// below several others come below one of them, and a note says so.
  Result<Fabric> finish(FabricFormat format);

 private:
  struct Switch {
    std::string name;
    int line = 0;      ///< line that defines the switch; 0: none so far
    int mentioned = 0; ///< line that first names the switch
    std::vector<int> parents;
    Bandwidth up;
  };
  struct Host {
    std::string name;
    Bandwidth up;
  };

  static std::size_t at(int index) { return static_cast<std::size_t>(index); }
  const std::string& name(int index) const { return switches_[at(index)].name; }
  int switch_named(std::string_view name, int line);
  Result<std::vector<std::string>> expand(std::string_view list, int line, std::size_t& named);
  void sort_by_name(std::vector<int>& some) const;
  Status check_cycles() const;
  Status cycle_error(int start, const std::vector<bool>& left) const;
  std::vector<int> choose_leaves();
  std::vector<int> choose_parents();
  Status check_depth(const std::vector<int>& parents) const;
  std::vector<int> order(const std::vector<int>& parents) const;

  std::string file_;
  std::vector<Switch> switches_;
  std::vector<Host> hosts_;
  std::unordered_map<std::string, int> switch_by_name_, host_by_name_;
  std::vector<std::pair<int, int>> below_; ///< host and switch, for each time that a file says so
  std::size_t named_hosts_ = 0, named_switches_ = 0;
  std::vector<std::string> notes_;
};

} // namespace whorl::topology
