// Lets a program with libFuzzer write the seeds of its target: PROGRAM --seeds FOLDER.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "target.h"

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  if (*argc != 3 || std::string_view((*argv)[1]) != "--seeds") return 0;
  int number = 0;
  for (const std::string& seed : whorl::fuzz::seeds()) {
    const auto name = "seed-" + std::to_string(number++);
    std::ofstream(std::filesystem::path((*argv)[2]) / name, std::ios::binary) << seed;
  }
  std::exit(0);
}
