// Uses the C API from C++: the header needs no `extern "C"` around it.
#include <whorl.h> // as programs ported from NCCL include it

#include <cstdio>
#include <vector>

int main() {
  int version = 0;
  whorlComm_t comm = nullptr;
  const std::vector<double> in{1, 2, 3};
  std::vector<double> out(3);
  if (whorlGetVersion(&version) != whorlSuccess ||
      whorlCommInitAll(&comm, 1, nullptr) != whorlSuccess ||
      whorlAllReduce(in.data(), out.data(), in.size(), whorlFloat64, whorlSum, comm, nullptr) !=
          whorlSuccess) {
    std::fprintf(stderr, "%s\n", whorlGetLastError(nullptr));
    return 1;
  }
  whorlCommDestroy(comm);
  std::printf("version %d\n", version);
  return version == WHORL_VERSION_CODE && out == in ? 0 : 1;
}
