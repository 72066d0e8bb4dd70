#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace whorl::topology {

/// Copy of /sys that a test writes, removed at its end.
class Sysfs {
 public:
  Sysfs() {
    std::string name = (std::filesystem::temp_directory_path() / "whorl-sysfs-XXXXXX").string();
    root_ = ::mkdtemp(name.data());
  }
  ~Sysfs() { std::filesystem::remove_all(root_); }
  Sysfs(const Sysfs&) = delete;
  Sysfs& operator=(const Sysfs&) = delete;

  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path, std::ios::binary) << text << '\n';
  }
  /// Makes a symbolic link to another path of the copy.
  void link(const std::string& path, const std::string& target) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::filesystem::create_directory_symlink(root_ / target, root_ / path);
  }
  std::string root() const { return root_.string(); }

 private:
  std::filesystem::path root_;
};

} // namespace whorl::topology
