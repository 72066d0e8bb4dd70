#include "perf/common/output.h"

#include <sys/wait.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "perf/common/api.h"

namespace perf {
namespace {

/// Returns the program that draws, which lies beside this one.
std::string plotter() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / "plot.py";
}

/// Returns a word as the shell reads it.
std::string quoted(const std::string& word) {
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

/// Runs the program that draws, with `input` as its standard input. The program prints its own
/// errors.
void draw(const std::string& arguments, const std::string& input) {
  const std::string command = "python3 " + quoted(plotter()) + " " + arguments;
  std::FILE* const program = ::popen(command.c_str(), "w");
  if (program == nullptr) throw Failure(std::string("--plot: no shell: ") + std::strerror(errno));
  std::fwrite(input.data(), 1, input.size(), program);
  const int status = ::pclose(program);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw Failure("--plot: " + command + " failed; its message is above.");
  }
}

} // namespace

void require_outputs(const Options& options, std::size_t curves) try {
  if (!options.json_file.empty()) {
    std::error_code error;
    const bool existed = // a link, too
        std::filesystem::exists(std::filesystem::symlink_status(options.json_file, error));
    const std::ofstream file(options.json_file, std::ios::app);
    if (!file) {
      throw Failure("Cannot write -J " + options.json_file + ": " + std::strerror(errno) + ".");
    }
    // A run that fails leaves no empty file, which is no JSON.
    if (!existed) std::filesystem::remove(options.json_file, error);
  }
  if (!options.plot_file.empty())
    draw("--check --curves " + std::to_string(curves) + " " + quoted(options.plot_file), "");
} catch (const Failure& failure) {
  throw BadCommand(failure.what());
}

void write_outputs(const Options& options, const std::string& json) {
  if (!options.json_file.empty()) {
    std::ofstream file(options.json_file);
    file << json;
    file.close();
    if (!file) {
      throw Failure("Cannot write -J " + options.json_file + ": " + std::strerror(errno) + ".");
    }
  }
  if (!options.plot_file.empty()) draw(quoted(options.plot_file), json);
}

} // namespace perf
