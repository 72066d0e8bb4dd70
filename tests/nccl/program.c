// A C program written for NCCL: ranks as processes, as communicators of one thread, as threads. It
// intercepts its own calls as profilers do, by defining a function of the library and calling the
// one with a p in front.
#define _GNU_SOURCE
#ifdef WHORL_NCCL_REFERENCE
#include <nccl.h>
#else
#include "bindings/nccl/abi.h"
#endif

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define NCCL_CHECK(call)                                                 \
  do {                                                                   \
    ncclResult_t result_ = (call);                                       \
    if (result_ != ncclSuccess) {                                        \
      fprintf(stderr, "%s:%d: %s: %s (%s)\n", __FILE__, __LINE__, #call, \
              ncclGetErrorString(result_), ncclGetLastError(NULL));      \
      exit(1);                                                           \
    }                                                                    \
  } while (0)
#define REQUIRE(condition)                                                          \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                      \
    }                                                                               \
  } while (0)

enum { kRanks = 4, kCount = 1000 };

static atomic_int watched;
ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
  ++watched;
  return pncclAllReduce(sendbuff, recvbuff, count, datatype, op, comm, stream);
}

static void check_sum(const float* out) {
  for (int i = 0; i < kCount; ++i)
    REQUIRE(out[i] == (float)(kRanks * i + kRanks * (kRanks - 1) / 2));
}

static void fill(float* in, int rank) {
  for (int i = 0; i < kCount; ++i) in[i] = (float)(i + rank);
}

// Shared memory of the ranks of a job with one process each, as a launcher starts them.
struct meeting {
  ncclUniqueId id;
  atomic_int ready;
};

static void one_of_many_processes(struct meeting* meeting, int rank) {
  if (rank == 0 && !atomic_load(&meeting->ready)) {
    NCCL_CHECK(ncclGetUniqueId(&meeting->id));
    atomic_store(&meeting->ready, 1);
  }
  for (int tries = 0; !atomic_load(&meeting->ready); ++tries) {
    REQUIRE(tries < 30000);
    usleep(1000);
  }
  ncclComm_t comm;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.commName = "processes";
  NCCL_CHECK(ncclCommInitRankConfig(&comm, kRanks, meeting->id, rank, &config));
  int count = 0, user_rank = -1;
  NCCL_CHECK(ncclCommCount(comm, &count));
  NCCL_CHECK(ncclCommUserRank(comm, &user_rank));
  REQUIRE(count == kRanks && user_rank == rank);

  float in[kCount], out[kCount];
  fill(in, rank);
  NCCL_CHECK(ncclAllReduce(in, out, kCount, ncclFloat, ncclSum, comm, NULL));
  check_sum(out);
  // Reduce-scatter and all-gather, each in place, give the same.
  const size_t block = kCount / kRanks;
  NCCL_CHECK(
      ncclReduceScatter(in, in + (size_t)rank * block, block, ncclFloat, ncclSum, comm, NULL));
  NCCL_CHECK(ncclAllGather(in + (size_t)rank * block, in, block, ncclFloat, comm, NULL));
  check_sum(in);

  // Each rank sends to each rank.
  int sent[kRanks], received[kRanks];
  NCCL_CHECK(ncclGroupStart());
  for (int peer = 0; peer < kRanks; ++peer) {
    sent[peer] = 10 * rank + peer;
    NCCL_CHECK(ncclSend(&sent[peer], 1, ncclInt, peer, comm, NULL));
    NCCL_CHECK(ncclRecv(&received[peer], 1, ncclInt, peer, comm, NULL));
  }
  NCCL_CHECK(ncclGroupEnd());
  for (int peer = 0; peer < kRanks; ++peer) REQUIRE(received[peer] == 10 * peer + rank);
  NCCL_CHECK(ncclCommFinalize(comm));
  NCCL_CHECK(ncclCommDestroy(comm));
  REQUIRE(watched == 1);
}

// Runs ranks as processes; rank 0 makes the id, or the parent before it forks.
static void processes(int by_parent) {
  struct meeting* meeting =
      mmap(NULL, sizeof *meeting, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(meeting != MAP_FAILED);
  if (by_parent) NCCL_CHECK(ncclGetUniqueId(&meeting->id));
  atomic_store(&meeting->ready, by_parent);
  for (int rank = 0; rank < kRanks; ++rank) {
    if (fork() == 0) {
      alarm(60);
      one_of_many_processes(meeting, rank);
      exit(0);
    }
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    int status = 1;
    REQUIRE(wait(&status) > 0);
    REQUIRE(status == 0);
  }
  munmap(meeting, sizeof *meeting);
}

// Runs all ranks in this thread; groups let their calls meet.
static void one_thread(int by_id) {
  static float in[kRanks][kCount], out[kRanks][kCount];
  ncclComm_t comms[kRanks];
  if (by_id) {
    ncclUniqueId id;
    NCCL_CHECK(ncclGetUniqueId(&id));
    NCCL_CHECK(ncclGroupStart());
    for (int rank = 0; rank < kRanks; ++rank) {
      NCCL_CHECK(ncclCommInitRank(&comms[rank], kRanks, id, rank));
    }
    NCCL_CHECK(ncclGroupEnd());
  } else {
    const int devices[kRanks] = {0, 1, 2, 3};
    NCCL_CHECK(ncclCommInitAll(comms, kRanks, devices));
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    fill(in[rank], rank);
    memset(out[rank], 0, sizeof out[rank]);
  }
  NCCL_CHECK(ncclGroupStart());
  for (int rank = 0; rank < kRanks; ++rank) {
    NCCL_CHECK(ncclAllReduce(in[rank], out[rank], kCount, ncclFloat32, ncclSum, comms[rank], NULL));
  }
  NCCL_CHECK(ncclGroupEnd());
  for (int rank = 0; rank < kRanks; ++rank) check_sum(out[rank]);

  // A part of the ranks continues alone.
  ncclComm_t smaller[kRanks - 1];
  int leaves[] = {1};
  NCCL_CHECK(ncclGroupStart());
  for (int rank = 0, next = 0; rank < kRanks; ++rank) {
    if (rank == 1) continue;
    NCCL_CHECK(ncclCommShrink(comms[rank], leaves, 1, &smaller[next++], NULL, NCCL_SHRINK_DEFAULT));
  }
  NCCL_CHECK(ncclGroupEnd());
  int rank_in_smaller = -1;
  NCCL_CHECK(ncclCommUserRank(smaller[1], &rank_in_smaller));
  REQUIRE(rank_in_smaller == 1);
  for (int i = 0; i < kRanks - 1; ++i) NCCL_CHECK(ncclCommDestroy(smaller[i]));
  for (int rank = 0; rank < kRanks; ++rank) NCCL_CHECK(ncclCommDestroy(comms[rank]));
  REQUIRE(ncclCommDestroy(comms[0]) == ncclInvalidArgument);
}

struct thread {
  pthread_t handle;
  ncclUniqueId id;
  int rank;
};

static void* one_of_many_threads(void* argument) {
  const struct thread* self = argument;
  ncclComm_t comm;
  NCCL_CHECK(ncclCommInitRank(&comm, kRanks, self->id, self->rank));
  float in[kCount], out[kCount];
  fill(in, self->rank);
  for (int step = 0; step < 20; ++step) {
    memset(out, 0, sizeof out);
    NCCL_CHECK(ncclAllReduce(in, out, kCount, ncclFloat32, ncclSum, comm, NULL));
    check_sum(out);
  }
  NCCL_CHECK(ncclCommDestroy(comm));
  return NULL;
}

static void threads(void) {
  struct thread all[kRanks];
  NCCL_CHECK(ncclGetUniqueId(&all[0].id));
  for (int rank = 0; rank < kRanks; ++rank) {
    all[rank].id = all[0].id;
    all[rank].rank = rank;
    REQUIRE(pthread_create(&all[rank].handle, NULL, one_of_many_threads, &all[rank]) == 0);
  }
  for (int rank = 0; rank < kRanks; ++rank) pthread_join(all[rank].handle, NULL);
}

int main(void) {
  int version = 0;
  // Processes first: a child forked after there was a communicator could not use the library.
  processes(0);
  processes(1);
  NCCL_CHECK(ncclGetVersion(&version));
  REQUIRE(version == 22809);
  one_thread(0);
  one_thread(1);
  threads();
  REQUIRE(watched == 2 * kRanks + 20 * kRanks);
  puts("ok");
  return 0;
}
