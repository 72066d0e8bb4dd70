// MPI_Allreduce, measured as all_reduce_perf measures whorl. Built once for each MPI found; to be
// started by that MPI's mpirun, on one thread per process.

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include "perf/compare/peer.h"

namespace {

// An MPI error ends the job with MPI's own message: its default.
class World {
 public:
  World() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks_);
  }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int nranks() const { return nranks_; }
  void barrier() { MPI_Barrier(MPI_COMM_WORLD); }
  void all_reduce(const float* in, float* out, std::size_t count) {
    MPI_Allreduce(in, out, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  double sum(double value) {
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return value;
  }

 private:
  int rank_ = 0;
  int nranks_ = 0;
};

} // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int code = peer::main(argc, argv, "mpi_allreduce", [](const perf::Options& options) {
    World world;
    return peer::run(world, "mpi_allreduce", options);
  });
  if (code != 0) MPI_Abort(MPI_COMM_WORLD, code); // the others may be waiting for this rank
  MPI_Finalize();
  return code;
}
