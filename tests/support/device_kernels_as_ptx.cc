// Variables of the environment: WHORL_PTX_FOLDER names a folder with files like
// combine_float8e4m3.ptx, which are run instead of the PTX in the library's images. WHORL_PTX_SEED
// begins other turns of the threads. WHORL_PTX_CLOCK is a factor by which clocks of devices are
// faster than those of the host. WHORL_PTX_EDIT is an image, a regular expression and what its
// matches are replaced by, in three lines: planted_faults.py makes kernels wrong with it.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <sstream>
#include <stdexcept>

#include "gpu/fatbins.h"
#include "tests/support/device_image/fatbin.h"
#include "tests/support/device_kernels.h"
#include "tests/support/ptx/launch.h"

namespace whorl::test {
namespace {

/// Memory of the host, which these kernels use.
class HostMemory final : public ptx::AddressSpace {
 public:
  std::byte* reach(std::uint64_t address, std::size_t) override {
    return reinterpret_cast<std::byte*>(address);
  }
};

/// Returns the value of a variable of the environment.
std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

/// Returns the PTX of an image after the edit of WHORL_PTX_EDIT.
std::string edited(const std::string& image, const std::string& text) {
  const char* const edit = std::getenv("WHORL_PTX_EDIT");
  if (edit == nullptr) return text;
  std::istringstream lines(edit);
  std::string wanted, pattern, replacement;
  std::getline(lines, wanted);
  std::getline(lines, pattern);
  std::getline(lines, replacement);
  if (image != wanted) return text;
  std::string result = std::regex_replace(text, std::regex(pattern), replacement);
  if (result != text) std::fputs("WHORL_PTX_EDIT has changed the kernels\n", stderr);
  return result;
}

/// Returns the PTX of an image, like combine_float32.
std::string load_ptx(const std::string& image) {
  static const std::map<std::string, const char*> images = [] {
    std::map<std::string, const char*> all{{"exchange", whorl_fatbin_exchange},
                                           {"interpret_copy", whorl_fatbin_interpret_copy}};
#define WHORL_IMAGES(type)                             \
  all["combine_" #type] = whorl_fatbin_combine_##type; \
  all["interpret_" #type] = whorl_fatbin_interpret_##type;
    WHORL_FATBINS(WHORL_IMAGES)
#undef WHORL_IMAGES
    return all;
  }();
  if (const char* const folder = std::getenv("WHORL_PTX_FOLDER"); folder != nullptr) {
    std::ifstream file(std::filesystem::path(folder) / (image + ".ptx"));
    if (file) return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  return ptx_of(images.at(image));
}

const ptx::Kernel& find_kernel(const std::string& name) {
  static std::map<std::string, std::string> texts;
  static std::map<std::string, ptx::Kernel> kernels;
  if (const auto known = kernels.find(name); known != kernels.end()) return known->second;
  // whorl_combine_float32_sum_few is in the image combine_float32, whorl_exchange in exchange.
  const std::size_t begin = name.find('_') + 1, behind = name.find('_', begin);
  const std::size_t end = behind == std::string::npos ? behind : name.find('_', behind + 1);
  const std::string image = name.substr(begin, end == std::string::npos ? end : end - begin);
  if (texts.count(image) == 0) texts[image] = edited(image, load_ptx(image));
  return kernels[name] = ptx::read_kernel(texts[image], name);
}

template <class Parameter>
void run(const std::string& kernel, ptx::Launch launch, const Parameter& parameter) {
  static ptx::Memory memory;
  static HostMemory space;
  static std::uint64_t seed = setting("WHORL_PTX_SEED", 0);
  launch.parameter = reinterpret_cast<const std::byte*>(&parameter);
  launch.seed = seed++;
  launch.clock_rate = static_cast<unsigned>(setting("WHORL_PTX_CLOCK", 1));
  const ptx::Kernel& found = find_kernel(kernel);
  if (found.parameter_bytes != sizeof parameter) {
    throw std::runtime_error(kernel + " has another parameter");
  }
  ptx::run(found, launch, memory, space);
}

} // namespace

void run_combine(const std::string& kernel, const gpu::Work& work, const gpu::Grid& grid) {
  run(kernel, {.x = grid.blocks, .y = grid.rows, .threads = grid.threads}, work);
}

void run_interpreter(const std::string& kernel, const gpu::Launch& launch, unsigned threads,
                     int absent) {
  run(kernel,
      {.x = launch.lanes * launch.instances,
       .y = launch.n_ranks,
       .threads = threads,
       .absent = absent,
       .spread = true},
      launch);
}

} // namespace whorl::test
