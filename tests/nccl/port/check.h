/* What the programs of this folder, which are written for NCCL, share. */
#pragma once
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NCCLCHECK(call)                                                                       \
  do {                                                                                        \
    ncclResult_t res = (call);                                                                \
    if (res != ncclSuccess && res != ncclInProgress) {                                        \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, ncclGetErrorString(res)); \
      exit(1);                                                                                \
    }                                                                                         \
  } while (0)

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 10, 0)
#define AVERAGE ncclAvg
#else
#error this program takes the side of an old release
#endif

#if NCCL_MAJOR < 2 || (NCCL_MAJOR == 2 && NCCL_MINOR < 28)
#error this program takes the side of an old release
#endif
