/* Processes that end while a thread of theirs still waits for the other ranks: in the creation of a
 * communicator, in a split, in an operation. They end with their own code. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { kRanks = 2, kCode = 3 };
static const char* const cases[] = {"creation", "split", "operation"};
static ncclUniqueId id;
static int at;

static void* run_rank(void* argument) {
  ncclComm_t comm, part;
  const int rank = (int)(long)argument;
  if (at == 0 && rank == 1) return NULL; /* rank 0 waits for it in the creation */
  float value = 1;
  if (ncclCommInitRank(&comm, kRanks, id, rank) != ncclSuccess) return NULL;
  if (rank == 1) return NULL;
  if (at == 1) {
    (void)!ncclCommSplit(comm, 0, 0, &part, NULL);
  } else {
    (void)!ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, comm, NULL);
  }
  return NULL;
}

static void end_early(void) {
  pthread_t threads[kRanks];
  NCCLCHECK(ncclGetUniqueId(&id));
  for (long r = 0; r < kRanks; ++r) pthread_create(&threads[r], NULL, run_rank, (void*)r);
  pthread_join(threads[1], NULL);
  usleep(100000); /* rank 0 waits by now */
  exit(kCode);
}

int main(void) {
  for (; at < 3; ++at) {
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) end_early();
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != kCode) {
      fprintf(stderr, "in %s: status %#x\n", cases[at], (unsigned)status);
      return 1;
    }
    printf("ended in %s\n", cases[at]);
  }
  return 0;
}
