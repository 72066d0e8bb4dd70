// Runs a target of fuzzing without libFuzzer: PROGRAM CHANGES PATH... runs it over its seeds and
// over files as they are, and over that many changes of them, which follow from a fixed seed. Of a
// folder, all XML files are taken, or all files if there are none; paths that do not exist are left
// out. The input of a failure is saved, to be run by PROGRAM 0 FILE.

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "target.h"

namespace {

constexpr unsigned kSeed = 20260101;

std::string failure_path; // NOLINT: a signal handler has no arguments of its own
std::string input;        // NOLINT

void save_input(int signal) {
  if (std::FILE* const file = std::fopen(failure_path.c_str(), "wb")) {
    std::fwrite(input.data(), 1, input.size(), file);
    std::fclose(file);
    std::fprintf(stderr, "the input is in %s\n", failure_path.c_str());
  }
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void run() {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

/// Changer of a file.
class Changer {
 public:
  Changer(const std::string& file, unsigned seed) : file_(file), random_(seed) {}

  std::string change() {
    std::string text = file_;
    for (std::size_t changes = 1 + below(4); changes > 0; --changes) change(text);
    return text;
  }

 private:
  std::size_t below(std::size_t end) { return end == 0 ? 0 : random_() % end; }

  /// Returns what is between blanks, quotes and the like: a number, an attribute.
  std::string_view word() {
    constexpr std::string_view kEnds = " \t\n\"'<>=,[]";
    const std::string_view file = file_;
    const std::size_t begin = file.find_first_not_of(kEnds, below(file.size()));
    if (begin == std::string_view::npos) return "0";
    return file.substr(begin, file.find_first_of(kEnds, begin) - begin);
  }

  void change(std::string& text) {
    constexpr std::string_view kNumbers[] = {"0",  "-1",   "1", "4294967295", "999999999999",
                                             "0x", "1e99", ""};
    const std::size_t at = below(text.size()), length = below(below(2) == 0 ? 8 : 200);
    switch (below(10)) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(at, file_.substr(below(file_.size()), length));
        break;
      case 2:
        if (!text.empty()) text[at] = static_cast<char>(below(256));
        break;
      case 3:
        text.resize(at);
        break;
      case 4:
      case 5: { // a number of one to eight bytes
        constexpr std::uint64_t kBinary[] = {0, 1, 0x7fffffff, 0x80000000, UINT32_MAX, UINT64_MAX};
        const std::uint64_t number = kBinary[below(6)];
        const std::size_t bytes = std::min(std::size_t{1} << below(4), text.size() - at);
        std::memcpy(text.data() + at, &number, bytes);
        break;
      }
      default: { // a word for another one
        const std::string_view old = word();
        const std::size_t place = text.find(old, at);
        if (place == std::string::npos) break;
        text.replace(place, old.size(), below(3) == 0 ? kNumbers[below(8)] : word());
      }
    }
  }

  const std::string& file_;
  std::mt19937 random_;
};

/// Returns the files that a path of the command line stands for.
std::vector<std::filesystem::path> files_of(const std::filesystem::path& path) {
  std::vector<std::filesystem::path> files;
  std::error_code missing;
  bool any_xml = false;
  for (const auto& entry : std::filesystem::directory_iterator(path, missing)) {
    files.push_back(entry.path());
    any_xml |= entry.path().extension() == ".xml";
  }
  if (any_xml) std::erase_if(files, [](const auto& file) { return file.extension() != ".xml"; });
  std::sort(files.begin(), files.end());
  if (std::filesystem::is_regular_file(path, missing)) files.push_back(path);
  if (files.empty()) std::printf("%s is not there\n", path.c_str());
  return files;
}

} // namespace

int main(int argc, char** argv) {
  std::vector<std::string> files = whorl::fuzz::seeds();
  for (int i = 2; i < argc; ++i) {
    for (const auto& path : files_of(argv[i])) {
      std::ostringstream text;
      text << std::ifstream(path, std::ios::binary).rdbuf();
      files.push_back(std::move(text).str());
    }
  }
  if (files.empty() || argc < 2) {
    std::fprintf(stderr, "usage: %s CHANGES PATH...\n", argv[0]);
    return 2;
  }
  failure_path = argv[0] + std::string(".failure");
  for (const int signal : {SIGABRT, SIGSEGV, SIGFPE, SIGBUS, SIGILL}) {
    std::signal(signal, save_input);
  }
  for (const std::string& file : files) {
    input = file;
    run();
  }
  const auto changes = static_cast<unsigned>(std::strtoul(argv[1], nullptr, 10));
  for (unsigned i = 0; i < changes; ++i) {
    input = Changer(files[i % files.size()], kSeed + i).change();
    run();
  }
  std::printf("%zu inputs and %u changes of them, seed %u\n", files.size(), changes, kSeed);
  return 0;
}
