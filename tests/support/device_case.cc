#include "tests/support/device_case.h"

#include "tests/support/thread_world.h"

namespace whorl::test {

DeviceCase::DeviceCase(const CollectiveCase& c, int rank, int nranks, whorlComm_t comm,
                       CUstream stream)
    : name_(c.text()),
      buffers_(c, rank, nranks),
      copy_(buffers_.memory(), stream),
      stream_(stream),
      error_(failure(buffers_.run_on(copy_.data(), comm, stream), comm)) {}

std::string DeviceCase::check() {
  if (!error_.empty()) return name_ + ": " + error_;
  copy_.read(buffers_.memory(), stream_);
  EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  const std::string difference = buffers_.check();
  return difference.empty() ? "" : name_ + ": " + difference;
}

std::string run_case(const CollectiveCase& c, int rank, int nranks, whorlComm_t comm,
                     CUstream stream, bool on_device) {
  if (on_device) return DeviceCase(c, rank, nranks, comm, stream).check();
  Buffers buffers(c, rank, nranks);
  if (const auto text = failure(buffers.run(comm, stream), comm); !text.empty()) {
    return c.text() + ": " + text;
  }
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  return buffers.check();
}

std::string run_every_collective(int rank, int nranks, whorlComm_t comm, CUstream stream,
                                 const std::vector<std::size_t>& counts) {
  for (CollectiveCase c : every_case(counts)) {
    c.type = c.count == 1 ? whorlFloat16 : whorlInt32;
    c.root = nranks - 1;
    if (auto text = run_case(c, rank, nranks, comm, stream); !text.empty()) return text;
  }
  return {};
}

long cases_of_every_collective(const std::vector<std::size_t>& counts) {
  return static_cast<long>(every_case(counts).size());
}

void run_on_device(int nranks, const DeviceBody& body, int devices) {
  const DeviceContext context;
  ThreadWorld world(nranks);
  const KeepMemory until_all_are_joined;
  world.each([&](int rank, whorlComm_t comm) {
    const DeviceContext own(rank % devices);
    const DeviceQueue stream;
    return body(rank, comm, stream);
  });
}

} // namespace whorl::test
