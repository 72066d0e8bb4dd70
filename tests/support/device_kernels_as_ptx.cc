// WHORL_PTX_FOLDER names a folder with files like combine_float8e4m3.ptx, which are run instead of
// the PTX in the library's images. WHORL_PTX_SEED begins other turns of the threads.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>

#include "gpu/fatbins.h"
#include "tests/support/device_image/fatbin.h"
#include "tests/support/device_kernels.h"
#include "tests/support/ptx/launch.h"

namespace whorl::testing {
namespace {

/// Memory of the host, which these kernels use.
class HostMemory final : public ptx::AddressSpace {
 public:
  std::byte* reach(std::uint64_t address, std::size_t) override {
    return reinterpret_cast<std::byte*>(address);
  }
};

/// Returns the PTX of an image, like combine_float32.
std::string load_ptx(const std::string& image) {
  static const std::map<std::string, const char*> images = [] {
    std::map<std::string, const char*> all{{"interpret_copy", whorl_fatbin_interpret_copy}};
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
  // whorl_combine_float32_sum_few is in the image combine_float32.
  const std::size_t begin = name.find('_') + 1, type = name.find('_', begin) + 1;
  const std::string image = name.substr(begin, name.find('_', type) - begin);
  if (texts.count(image) == 0) texts[image] = load_ptx(image);
  return kernels[name] = ptx::read_kernel(texts[image], name);
}

template <class Parameter>
void run(const std::string& kernel, ptx::Launch launch, const Parameter& parameter) {
  static ptx::Memory memory;
  static HostMemory space;
  static std::uint64_t seed = [] {
    const char* const text = std::getenv("WHORL_PTX_SEED");
    return text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
  }();
  launch.parameter = reinterpret_cast<const std::byte*>(&parameter);
  launch.seed = seed++;
  const ptx::Kernel& found = find_kernel(kernel);
  if (found.parameter_bytes != sizeof parameter) {
    throw std::runtime_error(kernel + " has another parameter");
  }
  ptx::run(found, launch, memory, space);
}

} // namespace

void run_combine(const std::string& kernel, const gpu::Work& work, unsigned blocks,
                 unsigned threads) {
  run(kernel, {.x = blocks, .y = static_cast<unsigned>(work.n_segments), .threads = threads}, work);
}

void run_interpreter(const std::string& kernel, const gpu::Launch& launch, unsigned threads,
                     int absent) {
  run(kernel,
      {.x = launch.lanes * launch.instances,
       .y = launch.n_ranks,
       .threads = threads,
       .absent = absent},
      launch);
}

} // namespace whorl::testing
