/// @file profiler.h
/// The interface of profiler plug-ins, in the shape of NCCL's: shared libraries that whorl tells of
/// the begin and end of each operation on host memory. `WHORL_PROFILER_PLUGIN` names the library's
/// file, or is `STATIC` for a plug-in in the program itself, linked with `-rdynamic`. The library
/// defines the variable ::whorlProfiler_v1. Without a plug-in an operation costs one test of a
/// flag.
///
/// Calls for one communicator come one after the other, from whichever thread drives it: the
/// caller's, or whorl's own for streams. Calls for several communicators come at the same time. A
/// plug-in must not call whorl. Operations that CUDA kernels carry out are not told; tools for CUDA
/// show these.
#ifndef WHORL_PROFILER_H_
#define WHORL_PROFILER_H_

#include <stddef.h>
#include <stdint.h>

#include "whorl/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Kinds of events, as bits of a mask; the values are NCCL's.
typedef enum {
  whorlProfileColl = 1 << 1, ///< collectives
  whorlProfileP2p = 1 << 2   ///< sends and receives
} whorlProfilerEventType_t;

/// An operation that begins. The event is valid during the call; its texts stay valid as long as
/// the communicator.
typedef struct {
  size_t size;          ///< bytes of this struct in the library; later releases append fields
  int type;             ///< kind, of ::whorlProfilerEventType_t
  int rank;             ///< number of this rank
  const char* func;     ///< "allreduce", "alltoall", "send", "recv", …
  const char* algo;     ///< name of the algorithm, for WHORL_ALGO; "" for sends and receives
  const char* datatype; ///< "float32", …
  const char* redOp;    ///< "sum", …; "" where nothing is reduced
  uint64_t seqNumber;   ///< number of the collective, the same on all ranks; of a send or receive,
                        ///< the number between the two ranks
  size_t count;         ///< count argument, in elements; 0 where blocks have different sizes
  size_t bytes; ///< bytes of the larger side of this rank; 0 where blocks have different sizes
  int root;     ///< root; −1 if the operation has none
  int peer;     ///< the other rank of a send or receive; −1 for collectives
} whorlProfilerEvent_v1_t;

/// A plug-in. All functions return ::whorlSuccess or an error; an error of init() fails the
/// creation of the communicator, other errors end the events of the communicator.
typedef struct {
  const char* name; ///< name for messages
  /// Called when the creation of a communicator begins, before ranks meet. `*context` is passed to
  /// the other functions. The plug-in sets bits of ::whorlProfilerEventType_t in `*eventMask`,
  /// which starts as 0, and may change it at any time from any thread by an atomic store; whorl
  /// reads it before each operation. `commName` is that of whorlConfig_t, or ""; `commId` is the
  /// same on all ranks.
  whorlResult_t (*init)(void** context, int* eventMask, const char* commName, uint64_t commId,
                        int nRanks, int rank);
  /// Called before an operation sends or receives anything. `*handle` is passed to stopEvent().
  whorlResult_t (*startEvent)(void* context, void** handle, const whorlProfilerEvent_v1_t* event);
  /// Called when the operation is complete on this rank. Not called for one that fails.
  whorlResult_t (*stopEvent)(void* context, void* handle);
  /// Called when the communicator is destroyed or aborted, or its creation has failed, if init()
  /// has succeeded. Operations that failed have not been stopped.
  whorlResult_t (*finalize)(void* context);
} whorlProfiler_v1_t;

/// The plug-in, which its library defines.
extern WHORL_API const whorlProfiler_v1_t whorlProfiler_v1;
/// Name of that variable.
#define WHORL_PROFILER_SYMBOL "whorlProfiler_v1"

#ifdef __cplusplus
}
#endif

#endif // WHORL_PROFILER_H_
