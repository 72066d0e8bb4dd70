// gloo::allreduce with its default algorithm over loopback TCP, measured as all_reduce_perf
// measures whorl. One process per rank; the environment says which: GLOO_RANK, GLOO_SIZE, and
// GLOO_STORE, an empty directory in which the ranks find each other.

#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <memory>

#include "perf/compare/peer.h"

namespace {

class Ranks {
 public:
  Ranks(int rank, int nranks, const char* store_path) {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = "127.0.0.1";
    gloo::rendezvous::FileStore store(store_path);
    const auto context = std::make_shared<gloo::rendezvous::Context>(rank, nranks);
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    context->connectFullMesh(store, device);
    context_ = context;
  }
  [[nodiscard]] int rank() const { return context_->rank; }
  [[nodiscard]] int nranks() const { return context_->size; }
  void barrier() {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  }
  void all_reduce(const float* in, float* out, std::size_t count) {
    gloo::AllreduceOptions options(context_);
    options.setInput(const_cast<float*>(in), count); // reads it only
    options.setOutput(out, count);
    add<float>(options);
  }
  double sum(double value) {
    gloo::AllreduceOptions options(context_);
    options.setOutput(&value, 1);
    add<double>(options);
    return value;
  }

 private:
  template <class T>
  static void add(gloo::AllreduceOptions& options) {
    options.setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<T>));
    gloo::allreduce(options);
  }

  std::shared_ptr<gloo::Context> context_;
};

} // namespace

int main(int argc, char** argv) {
  return peer::main(argc, argv, "gloo_allreduce", [](const perf::Options& options) {
    const char* rank = std::getenv("GLOO_RANK");
    const char* size = std::getenv("GLOO_SIZE");
    const char* store = std::getenv("GLOO_STORE");
    if (rank == nullptr || size == nullptr || store == nullptr) {
      throw perf::Failure("GLOO_RANK, GLOO_SIZE and GLOO_STORE must be set.");
    }
    Ranks ranks(std::atoi(rank), std::atoi(size), store);
    return peer::run(ranks, "gloo_allreduce", options);
  });
}
