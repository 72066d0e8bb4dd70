/// @file whorl.h
/// The C API of whorl: collective communication over host memory, with NCCL's names and rules.
///
/// What NCCL also has is spelt as in NCCL with `nccl` replaced by `whorl`, so porting is one `sed`.
/// What whorl adds is marked "beyond NCCL".
///
/// **Errors.** Every function returns a ::whorlResult_t. ::whorlInvalidArgument means that the call
/// had no effect and the communicator is as good as before. After any other error during a
/// collective the communicator is dead: only whorlGetLastError(), whorlCommGetAsyncError(),
/// whorlCommAbort() and whorlCommDestroy() do anything useful with it. whorlGetLastError() gives a
/// sentence that names the rank, the operation, the field and the remedy.
///
/// **Threads.** Different communicators may be used from different threads at the same time. One
/// communicator may be used by one thread at a time; only whorlCommAbort(),
/// whorlCommGetAsyncError() and whorlGetLastError() may be called from any thread at any time.
///
/// **Order.** All ranks of a communicator make the same collective calls in the same order. Where
/// they do not, ranks that receive anything get ::whorlInvalidUsage with both calls in the text; a
/// rank that only sends (the root of a broadcast, say) may return success and learns of it in its
/// next call.
///
/// **Bits.** Sums of floating-point numbers depend on the order of the operands, and that on the
/// call (collective, count, datatype, operator, root), the version of whorl, the number of ranks,
/// which of them are on one host and of one process, the transports between them, ranks for each
/// online processor where these are more than one, the fields maxCTAs, minCTAs and memoryBudget of
/// ::whorlConfig_t, and the variables WHORL_ALGO, WHORL_DIMS, WHORL_CHANNELS, WHORL_MAX_CHANNELS,
/// WHORL_SLOTS, WHORL_SLOT_BYTES, WHORL_MEMORY_BUDGET, WHORL_TRANSPORTS and WHORL_HOST_ID; with
/// device memory on devices and WHORL_DEVICE_ALGO, WHORL_DEVICE_IPC and WHORL_PIECE_BYTES, too.
/// Where these are the same, so are the bits, in every run and under any load; not with
/// WHORL_PROBE=1, which chooses algorithms by measured times.
///
/// **Counts** are in elements, never bytes. A count of 0 is legal everywhere and then buffers may
/// be NULL. **Buffers** belong to the operation until it is complete: until the call returns when
/// `stream` is NULL, until the stream has passed it otherwise.
///
/// **Streams.** `stream` is NULL (the call returns when this rank's part is complete), a
/// ::whorlStream_t from whorlStreamCreate() (the call returns at once), or a `cudaStream_t`, which
/// passes without a cast.
///
/// **Device memory.** Buffers may be memory of a CUDA device where whorlDeviceSupport() says so;
/// the kind is found out from the pointer, and ranks may have different kinds. The operation takes
/// its place in the `cudaStream_t`, or with NULL in the default stream of the current context, and
/// the buffers belong to it until the stream has passed it. Errors that show up later are those of
/// whorlCommGetAsyncError(); the stream goes on. Pinned and managed memory counts as the host's; on
/// a `cudaStream_t` operations on it are in the stream's order, too. Four ways:
/// - where all ranks are in one process on one device, or on several that reach each other,
///   a kernel on each does a collective of all of them, also captured in a graph. The call waits
///   until the other ranks have made theirs: ranks of one thread must be in one group.
/// - where the ranks are in several processes of one host, on one device and with memory that CUDA
///   can share (of cudaMalloc, or mapped and made for file descriptors, as PyTorch's expandable
///   segments; not of pools), each rank does its share of a collective in the memory of all. The
///   call waits until the other ranks have made theirs, but not for their streams; streams wait
///   for each other by themselves. A buffer is freed when the stream has passed its last operation;
///   a freed one may occupy the device until other processes have used 65 more or have destroyed
///   the communicator. It can be captured, by all ranks alike, each into a graph of its own (also
///   ranks of one process). They launch these graphs, and make their other calls, in the same
///   order, each rank in one stream or in streams that follow each other. What they have launched
///   is over, and the graphs destroyed, before their buffers are freed, and before
///   whorlCommFinalize() or whorlCommDestroy().
/// - where the ranks are in several processes of one host, each on a device of its own, and these
///   reach each other, a kernel on each exchanges messages with the others. The call waits as
///   above. It can be captured once the communicator has done one, on all ranks alike; they
///   launch such graphs in the same order, and none of another rank is under way at
///   whorlCommDestroy(), which waits for this rank's graphs and for the other kernels of all ranks.
/// - otherwise the host carries the operation out between a copy of the inputs and one of the
///   results, and the call returns at once. Such an operation cannot be captured (the call is
///   ::whorlInvalidUsage), and ranks that share a stream must be in one group. So must ranks of a
///   process whose streams wait for each other by themselves: the default stream (NULL,
///   `cudaStreamLegacy`) and the streams made without `cudaStreamNonBlocking` do.
#ifndef WHORL_WHORL_H_
#define WHORL_WHORL_H_

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WHORL_MAJOR 0
#define WHORL_MINOR 1
#define WHORL_PATCH 0
/// Version as one number: major·10000 + minor·100 + patch, as whorlGetVersion() reports it.
#define WHORL_VERSION_CODE (WHORL_MAJOR * 10000 + WHORL_MINOR * 100 + WHORL_PATCH)

#if defined(__GNUC__)
#define WHORL_API __attribute__((visibility("default")))
#else
#define WHORL_API
#endif

/// A rank's membership in a group of ranks. Opaque; owned by the library.
typedef struct whorlComm* whorlComm_t;

/// An in-order queue of asynchronous operations on host memory (beyond NCCL). Opaque.
typedef struct whorlStream* whorlStream_t;

#define WHORL_UNIQUE_ID_BYTES 128
/// Names one communicator that is about to be created. Made by whorlGetUniqueId() in one process
/// and carried to all others by the caller. It contains a 32-byte secret that authenticates every
/// connection of the communicator: do not print or publish it. It makes one communicator; using it
/// again is an error. Ranks meet in the process that made it, which waits an hour for the first
/// one.
typedef struct {
  char internal[WHORL_UNIQUE_ID_BYTES]; ///< version, job id, addresses, secret, checksum
} whorlUniqueId;

/// What a call came to.
typedef enum {
  whorlSuccess = 0,            ///< done, or (on a stream) accepted
  whorlUnhandledCudaError = 1, ///< a CUDA call failed
  whorlSystemError = 2,        ///< a system call failed: memory, permissions, sockets
  whorlInternalError = 3,      ///< a defect of whorl
  whorlInvalidArgument = 4,    ///< an argument is wrong; nothing happened
  whorlInvalidUsage = 5, ///< calls do not fit together: ranks disagree, wrong order, dead comm
  whorlRemoteError = 6,  ///< another rank died, is absent, cannot be reached, or failed
  whorlInProgress = 7,   ///< a nonblocking call is still under way
  whorlNumResults = 8
} whorlResult_t;

/// Element type of a buffer.
typedef enum {
  whorlInt8 = 0,
  whorlChar = 0,
  whorlUint8 = 1,
  whorlInt32 = 2,
  whorlInt = 2,
  whorlUint32 = 3,
  whorlInt64 = 4,
  whorlUint64 = 5,
  whorlFloat16 = 6, ///< IEEE 754 binary16
  whorlHalf = 6,
  whorlFloat32 = 7,
  whorlFloat = 7,
  whorlFloat64 = 8,
  whorlDouble = 8,
  whorlBfloat16 = 9,    ///< upper half of a float32
  whorlFloat8e4m3 = 10, ///< OCP E4M3: no infinities, largest finite value 448
  whorlFloat8e5m2 = 11, ///< OCP E5M2: IEEE-like, largest finite value 57344
  whorlInt16 = 12,      ///< beyond NCCL
  whorlUint16 = 13,     ///< beyond NCCL
  /// Beyond NCCL: one byte, 0 for false, anything else for true; results are 0 or 1. Sum, max and
  /// whorlBor are "or"; prod, min and whorlBand are "and"; whorlBxor is "exclusive or"; there is no
  /// average.
  whorlBool = 14,
  whorlNumTypes = 15
} whorlDataType_t;

typedef enum { whorlNumOps_dummy = 5 } whorlRedOp_dummy_t;
/// Reduction operator. 16- and 8-bit floating types are accumulated in float32. Integer sums and
/// products wrap. Averages of integers are the wrapped sum divided by the number of ranks, rounded
/// towards zero. Averages of finite floating-point numbers are finite: no partial sum leaves the
/// range of the type, since inputs are multiplied by a power of two (2^-k, with 2^k the least one
/// from the number of ranks on; for some types and many ranks k is greater by one or two) before
/// they are summed in several steps, and the sum is divided last. That is exact but for inputs
/// below 2^k times the smallest normal number, which may lose their last k bits. docs/kernels.md
/// states the bound of the error. For floating types, min and max return NaN if any operand is NaN.
/// Bitwise operators are for integers and whorlBool. Values from #WHORL_FIRST_USER_OP on are made
/// by whorlRedOpCreatePreMulSum(); those in between that have no name are no operators. So
/// whorlNumOps and all values below it mean what they mean in NCCL.
typedef enum {
  whorlSum = 0,
  whorlProd = 1,
  whorlMax = 2,
  whorlMin = 3,
  whorlAvg = 4,
  whorlNumOps = 5, ///< of NCCL's
  whorlBand = 8,   ///< beyond NCCL: bitwise and
  whorlBor = 9,    ///< beyond NCCL: bitwise or
  whorlBxor = 10,  ///< beyond NCCL: bitwise exclusive or
  whorlMaxRedOp = 0x7fffffff >> (32 - 8 * sizeof(whorlRedOp_dummy_t))
} whorlRedOp_t;

/// The least value of an operator that whorlRedOpCreatePreMulSum() makes.
#define WHORL_FIRST_USER_OP 64

/// Where the scalar of whorlRedOpCreatePreMulSum() lives and when it is read.
typedef enum {
  whorlScalarDevice = 0,       ///< dereferenced when an operation runs
  whorlScalarHostImmediate = 1 ///< dereferenced before whorlRedOpCreatePreMulSum() returns
} whorlScalarResidence_t;

#define WHORL_CONFIG_UNDEF_INT INT_MIN
#define WHORL_CONFIG_UNDEF_PTR NULL
/// Colour for whorlCommSplit() of a rank that joins no new communicator.
#define WHORL_SPLIT_NOCOLOR (-1)

/// Options of one communicator. Start from #WHORL_CONFIG_INITIALIZER; a field left at
/// `WHORL_CONFIG_UNDEF_*` takes its default. The fields up to `nvlinkCentricSched` are NCCL's;
/// those that have no meaning on host memory are accepted and ignored.
typedef struct {
  size_t size;          ///< set by the initializer; do not touch
  unsigned int magic;   ///< set by the initializer; do not touch
  unsigned int version; ///< set by the initializer; do not touch
  int blocking;        ///< 0: creation returns whorlInProgress at once; poll whorlCommGetAsyncError
  int cgaClusterSize;  ///< ignored on host memory
  int minCTAs;         ///< least number of channels; default 1
  int maxCTAs;         ///< largest number of channels; default WHORL_MAX_CHANNELS
  const char* netName; ///< transport between hosts: "tcp"; NULL chooses
  int splitShare;      ///< accepted; resources are not shared between communicators
  int trafficClass;    ///< ignored on host memory
  const char* commName;    ///< name in messages, copied; NULL means none
  int collnetEnable;       ///< ignored on host memory
  int CTAPolicy;           ///< ignored on host memory
  int shrinkShare;         ///< ignored on host memory
  int nvlsCTAs;            ///< ignored on host memory
  int nChannelsPerNetPeer; ///< sockets for each peer on another host; default WHORL_MAX_CHANNELS
  int nvlinkCentricSched;  ///< ignored on host memory
  int timeoutMs;         ///< beyond NCCL: an operation or a connection set-up fails after this many
                         ///< milliseconds without progress; default WHORL_TIMEOUT_MS
  uint64_t memoryBudget; ///< beyond NCCL: bytes that this rank's part may occupy for messages and
                         ///< workspaces; the smallest of all ranks counts. Slots and channels
                         ///< shrink until they fit, or creation fails and names the smallest
                         ///< budget that would do. 0 (unset): WHORL_MEMORY_BUDGET
} whorlConfig_t;

#define WHORL_CONFIG_MAGIC 0xcafebeefu
/// Value every ::whorlConfig_t starts from.
#define WHORL_CONFIG_INITIALIZER                                                           \
  {                                                                                        \
    sizeof(whorlConfig_t), WHORL_CONFIG_MAGIC, WHORL_VERSION_CODE, WHORL_CONFIG_UNDEF_INT, \
        WHORL_CONFIG_UNDEF_INT, WHORL_CONFIG_UNDEF_INT, WHORL_CONFIG_UNDEF_INT,            \
        WHORL_CONFIG_UNDEF_PTR, WHORL_CONFIG_UNDEF_INT, WHORL_CONFIG_UNDEF_INT,            \
        WHORL_CONFIG_UNDEF_PTR, WHORL_CONFIG_UNDEF_INT, WHORL_CONFIG_UNDEF_INT,            \
        WHORL_CONFIG_UNDEF_INT, WHORL_CONFIG_UNDEF_INT, WHORL_CONFIG_UNDEF_INT,            \
        WHORL_CONFIG_UNDEF_INT, WHORL_CONFIG_UNDEF_INT, 0                                  \
  }

/// @name Library
/// @{

/// Writes #WHORL_VERSION_CODE of the library that is running to `*version`.
WHORL_API whorlResult_t whorlGetVersion(int* version);
/// A fixed English text for a result code; never NULL, never to be freed.
WHORL_API const char* whorlGetErrorString(whorlResult_t result);
/// The last error as a full sentence: of `comm` if it is not NULL, else of this thread. The text
/// stays valid until the next whorl call of this thread. Empty if there was none.
WHORL_API const char* whorlGetLastError(whorlComm_t comm);
/// @}

/// @name Creating and ending communicators
/// @{

/// Makes the id of one new communicator. Called in one process, which then serves the meeting of
/// the ranks from a background thread until all of them have met. The id is carried to the other
/// ranks by the caller and used for one communicator only. `WHORL_HOST_ADDRESS` chooses the address
/// that other hosts use. Ranks may be children that are forked afterwards; the parent stays until
/// they have met.
WHORL_API whorlResult_t whorlGetUniqueId(whorlUniqueId* uniqueId);

/// Joins rank `rank` of `nranks` to the communicator named by `commId`. Returns when all ranks have
/// joined. If a rank does not come, or cannot be reached, every rank that did come gets
/// whorlRemoteError within the timeout and whorlGetLastError(NULL) names the missing rank.
WHORL_API whorlResult_t whorlCommInitRank(whorlComm_t* comm, int nranks, whorlUniqueId commId,
                                          int rank);
/// As whorlCommInitRank() with options; `config` may be NULL. With `blocking = 0`, `*comm` is set
/// and the call returns whorlInProgress; the communicator may be used once
/// whorlCommGetAsyncError() reports whorlSuccess.
WHORL_API whorlResult_t whorlCommInitRankConfig(whorlComm_t* comm, int nranks, whorlUniqueId commId,
                                                int rank, whorlConfig_t* config);
/// Makes `ndev` communicators in this process at once: `comms[i]` is rank i. `devlist` is what
/// whorlCommCuDevice() is to say of each, the same device any number of times; NULL means 0, 1, …
/// Nothing else depends on it, and without a CUDA driver nothing does.
WHORL_API whorlResult_t whorlCommInitAll(whorlComm_t* comms, int ndev, const int* devlist);

/// Divides a communicator: ranks of equal `color` (≥ 0) form a new one, ordered by `key`, then by
/// old rank. A rank with #WHORL_SPLIT_NOCOLOR takes part in the call and gets `*newcomm = NULL`.
/// Collective over `comm`; always blocking. `config` may be NULL: the parent's options are
/// inherited.
WHORL_API whorlResult_t whorlCommSplit(whorlComm_t comm, int color, int key, whorlComm_t* newcomm,
                                       whorlConfig_t* config);

/// Waits until all operations of this rank are complete; afterwards only destroy is allowed.
WHORL_API whorlResult_t whorlCommFinalize(whorlComm_t comm);
/// Frees a communicator. Not collective; never waits for a dead or absent rank. Operations still
/// queued are completed first if all ranks take part, within the timeout. NULL is allowed.
WHORL_API whorlResult_t whorlCommDestroy(whorlComm_t comm);
/// Ends all operations of the communicator at once, on every rank, and frees it. From any thread,
/// also while another thread is inside a call on `comm`: that call returns an error first.
/// Operations that wait in a stream behind those of other communicators end when their turn comes.
WHORL_API whorlResult_t whorlCommAbort(whorlComm_t comm);

/// Writes the state of the communicator: whorlSuccess, whorlInProgress while a nonblocking call is
/// under way, or the error that killed it. Does not wait.
WHORL_API whorlResult_t whorlCommGetAsyncError(whorlComm_t comm, whorlResult_t* asyncError);
/// Sets a function that a thread calls about once a millisecond while it waits for other ranks in a
/// blocking operation of any communicator of this process; NULL: none (beyond NCCL). If it returns
/// non-zero, the operation ends with ::whorlInvalidUsage and its communicator with it, on every
/// rank. It is for interpreters, which handle signals on one thread at a time of their choice; it
/// is also called on threads of whorl, uses no communicator, and returns soon.
WHORL_API whorlResult_t whorlSetInterruptCheck(int (*interrupted)(void));
/// Number of ranks.
WHORL_API whorlResult_t whorlCommCount(const whorlComm_t comm, int* count);
/// Sets the timeout of the operations that this rank issues from now on: an operation that makes no
/// progress for `ms` milliseconds (at least 1) fails and kills the communicator. Operations that
/// are queued on a stream keep the timeout they were issued with; calls collected in a group are
/// issued by the outermost whorlGroupEnd(). Ranks may differ. Not collective; does not wait (beyond
/// NCCL).
WHORL_API whorlResult_t whorlCommSetTimeout(whorlComm_t comm, int ms);
/// The number of the CUDA device that was current where this rank was created, or that
/// whorlCommInitAll() was given for it; -1 if there was none. Buffers may be on any device.
WHORL_API whorlResult_t whorlCommCuDevice(const whorlComm_t comm, int* device);
/// This rank, 0 … count − 1.
WHORL_API whorlResult_t whorlCommUserRank(const whorlComm_t comm, int* rank);

/// What whorlCommMemStats() can be asked for. The first four are NCCL's and are about device
/// memory: 0 for a communicator on host memory. The others are bytes of this rank's part of the
/// communicator.
typedef enum {
  whorlStatGpuMemSuspend = 0,   ///< could be released by suspending
  whorlStatGpuMemSuspended = 1, ///< 1 while suspended
  whorlStatGpuMemPersist = 2,   ///< cannot be released
  whorlStatGpuMemTotal = 3,     ///< all
  whorlStatHostMemTotal = 16,   ///< Fifos + Workspaces + Plans + SocketBuffers + Fixed
  whorlStatHostMemFifos = 17,   ///< slots of peers that this rank has sent to, or staging for TCP
  whorlStatHostMemWorkspaces = 18, ///< scratch chunks
  whorlStatHostMemPlans = 19,      ///< schedules that have been built, and what is kept to run them
  whorlStatHostMemSocketBuffers = 20, ///< of the kernel, now
  whorlStatHostMemFixed = 21,         ///< whatever is done with the communicator
  whorlStatHostMemReserved = 22,      ///< address space for slots of all ranks of this host
  whorlStatHostMemShared = 23,        ///< of it what is in memory, whoever has sent
  whorlStatHostMemHeap = 24,          ///< whorlMemAlloc() and registered memory of the process
  whorlStatHostMemBudget = 25         ///< limit of Fifos + Workspaces; 0: none
} whorlCommMemStat_t;
/// Writes one figure to `*value`. Not collective; does not wait. Memory is given to slots when a
/// pair of ranks first uses them, so the figures grow with use and then stay.
WHORL_API whorlResult_t whorlCommMemStats(whorlComm_t comm, whorlCommMemStat_t stat,
                                          uint64_t* value);
/// @}

/// @name Creating communicators by other means (beyond NCCL)
/// @{

/// All ranks agree on one `"host:port"`: rank 0 listens there, the others connect. The secret is
/// read from the file that `WHORL_SECRET_FILE` names (mode 0600). Without one, a loopback address
/// serves processes of one user, who prove that by a unix socket; other addresses are refused.
/// `WHORL_INSECURE=1` on all ranks lets everybody join.
WHORL_API whorlResult_t whorlCommInitAddress(whorlComm_t* comm, int nranks, const char* hostPort,
                                             int rank, whorlConfig_t* config);

/// Makes a meeting point: an id from which the ids of any number of communicators are derived, so
/// that ranks which have it can meet again later without exchanging anything. The process then
/// serves these meetings until its end, from one background thread for all its points; a child
/// that is forked makes points of its own. Only processes that hold ranks of `comm` can meet there:
/// if these are all on one host, no port is opened. NULL for `comm`: processes of any host. Whoever
/// has the bytes can join.
WHORL_API whorlResult_t whorlGetMeetingPoint(whorlComm_t comm, whorlUniqueId* point);
/// Derives the id of the communicator called `name` from a meeting point, without talking to
/// anybody: ranks that give the same point and name get the same id, for whorlCommInitRank() or
/// whorlCommInitRankConfig(). A name is used for one communicator only. If the process that made
/// the point has ended, creating the communicator fails within about a second, or at the timeout if
/// a forked child of that process still runs, which has copies of its sockets.
WHORL_API whorlResult_t whorlGetUniqueIdAt(const whorlUniqueId* point, const char* name,
                                           whorlUniqueId* uniqueId);

/// A key-value store that all ranks reach. Functions return 0 for success. Values are at most 1024
/// bytes; keys are unique for each communicator as long as `prefix` is. The store carries the
/// secret of the communicator: whoever can read it can join.
typedef struct {
  void* context;      ///< passed back to the functions
  const char* prefix; ///< put in front of every key; NULL means none
  /// Stores `size` bytes under `key`.
  int (*set)(void* context, const char* key, const void* value, size_t size);
  /// Waits at most `timeoutMs` for `key`, then writes at most `capacity` bytes to `value` and the
  /// value's size to `*size`.
  int (*get)(void* context, const char* key, void* value, size_t capacity, size_t* size,
             int timeoutMs);
} whorlStore_t;
/// The ranks find each other through a key-value store.
WHORL_API whorlResult_t whorlCommInitStore(whorlComm_t* comm, int nranks, const whorlStore_t* store,
                                           int rank, whorlConfig_t* config);

/// An all-gather that the ranks can already do, for instance by MPI. Returns 0 for success.
typedef struct {
  void* context; ///< passed back to the function
  /// Every rank passes `size` bytes at `in` and gets the bytes of all ranks, in rank order, at
  /// `out`.
  int (*allgather)(void* context, const void* in, void* out, size_t size);
} whorlOob_t;
/// The ranks find each other through an all-gather of the caller's.
WHORL_API whorlResult_t whorlCommInitOob(whorlComm_t* comm, int nranks, const whorlOob_t* oob,
                                         int rank, whorlConfig_t* config);

/// Takes rank, size and meeting point from the launcher that started this process: WHORL_RANK and
/// WHORL_NRANKS with WHORL_ADDRESS, torchrun, PMIx, PMI-1 (MPICH), Open MPI, Slurm; a process
/// without a launcher is rank 0 of 1. docs/launchers.md lists the variables.
WHORL_API whorlResult_t whorlCommInitEnv(whorlComm_t* comm, whorlConfig_t* config);
/// @}

/// @name Groups
/// @{

/// Starts a group: calls of this thread up to the matching whorlGroupEnd() are collected and issued
/// together. Needed where one thread drives several ranks, and for sends and receives that must
/// proceed at the same time. Groups nest.
WHORL_API whorlResult_t whorlGroupStart(void);
/// Ends a group. The outermost one issues the calls; operations without a stream are complete when
/// it returns. Errors of the collected calls are reported here.
WHORL_API whorlResult_t whorlGroupEnd(void);
/// @}

/// @name Collectives
/// Sizes: "vector" is `count` elements. In place means the stated relation of the two pointers; any
/// other overlap is whorlInvalidArgument.
/// @{

/// recvbuff[i] = sum over ranks of sendbuff[i], on every rank. In place: `sendbuff == recvbuff`.
WHORL_API whorlResult_t whorlAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                                       whorlDataType_t datatype, whorlRedOp_t op, whorlComm_t comm,
                                       void* stream);
/// As allreduce, the result on `root` only; `recvbuff` is ignored elsewhere. In place:
/// `sendbuff == recvbuff`.
WHORL_API whorlResult_t whorlReduce(const void* sendbuff, void* recvbuff, size_t count,
                                    whorlDataType_t datatype, whorlRedOp_t op, int root,
                                    whorlComm_t comm, void* stream);
/// Copies root's `sendbuff` to everyone's `recvbuff`; `sendbuff` is ignored elsewhere. In place:
/// `sendbuff == recvbuff`.
WHORL_API whorlResult_t whorlBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                                       whorlDataType_t datatype, int root, whorlComm_t comm,
                                       void* stream);
/// Broadcast in place of one buffer (NCCL's old name).
WHORL_API whorlResult_t whorlBcast(void* buff, size_t count, whorlDataType_t datatype, int root,
                                   whorlComm_t comm, void* stream);
/// Reduces `nranks·recvcount` elements and leaves block `rank` in `recvbuff` (`recvcount`
/// elements). In place: `recvbuff == sendbuff + rank·recvcount`.
WHORL_API whorlResult_t whorlReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                           whorlDataType_t datatype, whorlRedOp_t op,
                                           whorlComm_t comm, void* stream);
/// Concatenates every rank's `sendcount` elements, in rank order, in everyone's `recvbuff`
/// (`nranks·sendcount` elements). In place: `sendbuff == recvbuff + rank·sendcount`.
WHORL_API whorlResult_t whorlAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                                       whorlDataType_t datatype, whorlComm_t comm, void* stream);
/// Sends block j of `sendbuff` (`count` elements each) to rank j and puts what rank j sent into
/// block j of `recvbuff`. Not in place.
WHORL_API whorlResult_t whorlAlltoAll(const void* sendbuff, void* recvbuff, size_t count,
                                      whorlDataType_t datatype, whorlComm_t comm, void* stream);
/// Concatenates every rank's `count` elements on `root` (`nranks·count`); `recvbuff` is ignored
/// elsewhere. In place: `sendbuff == recvbuff + root·count` on root.
WHORL_API whorlResult_t whorlGather(const void* sendbuff, void* recvbuff, size_t count,
                                    whorlDataType_t datatype, int root, whorlComm_t comm,
                                    void* stream);
/// Gives block j of root's `sendbuff` (`nranks·count`) to rank j (`count`); `sendbuff` is ignored
/// elsewhere. In place: `recvbuff == sendbuff + root·count` on root.
WHORL_API whorlResult_t whorlScatter(const void* sendbuff, void* recvbuff, size_t count,
                                     whorlDataType_t datatype, int root, whorlComm_t comm,
                                     void* stream);
/// Returns (or lets the stream pass) when every rank has entered it (beyond NCCL).
WHORL_API whorlResult_t whorlBarrier(whorlComm_t comm, void* stream);
/// @}

/// @name Collectives with blocks of different sizes (beyond NCCL)
/// As MPI's v-variants. Arrays have one entry for each rank; counts and displacements are in
/// elements, displacements from the start of the buffer. A displacement array that is NULL says
/// that the blocks lie side by side in rank order. The arrays are read before the call returns.
/// Counts of 0 are legal anywhere, also all of a rank; a buffer without elements may be NULL.
/// Blocks that are written must not overlap each other; gaps between blocks are not touched. What
/// one rank says that it sends to another and what that one says that it receives must be equal;
/// where not, the receiving rank gets ::whorlInvalidUsage with both ranks and counts in the text.
/// They are collectives: all ranks call them in the same order, with the same `datatype`, operator
/// and root.
/// @{

/// Concatenates `sendcount` elements of every rank in everyone's `recvbuff`: those of rank j are
/// `recvcounts[j]` elements from `rdispls[j]` on. `recvcounts` is the same on all ranks; where it
/// is not, each text has this rank's. In place: `sendbuff == recvbuff + rdispls[rank]`.
WHORL_API whorlResult_t whorlAllGatherv(const void* sendbuff, size_t sendcount, void* recvbuff,
                                        const size_t* recvcounts, const size_t* rdispls,
                                        whorlDataType_t datatype, whorlComm_t comm, void* stream);
/// Reduces the blocks of `sendbuff`, which lie side by side, block j of `recvcounts[j]` elements,
/// and leaves block `rank` in `recvbuff`. `recvcounts` is the same on all ranks. In place:
/// `recvbuff` is where block `rank` of `sendbuff` begins.
WHORL_API whorlResult_t whorlReduceScatterv(const void* sendbuff, void* recvbuff,
                                            const size_t* recvcounts, whorlDataType_t datatype,
                                            whorlRedOp_t op, whorlComm_t comm, void* stream);
/// Sends `sendcounts[j]` elements of `sendbuff` from `sdispls[j]` on to rank j and puts the
/// `recvcounts[j]` elements of rank j into `recvbuff` from `rdispls[j]` on. Not in place.
WHORL_API whorlResult_t whorlAlltoAllv(const void* sendbuff, const size_t* sendcounts,
                                       const size_t* sdispls, void* recvbuff,
                                       const size_t* recvcounts, const size_t* rdispls,
                                       whorlDataType_t datatype, whorlComm_t comm, void* stream);
/// Collects `sendcount` elements of every rank on `root`: those of rank j are `recvcounts[j]`
/// elements from `rdispls[j]` on. `recvbuff`, `recvcounts` and `rdispls` are ignored elsewhere. In
/// place: `sendbuff == recvbuff + rdispls[root]` on root.
WHORL_API whorlResult_t whorlGatherv(const void* sendbuff, size_t sendcount, void* recvbuff,
                                     const size_t* recvcounts, const size_t* rdispls,
                                     whorlDataType_t datatype, int root, whorlComm_t comm,
                                     void* stream);
/// Gives `sendcounts[j]` elements of root's `sendbuff` from `sdispls[j]` on to rank j, which
/// expects `recvcount`. `sendbuff`, `sendcounts` and `sdispls` are ignored elsewhere. In place:
/// `recvbuff == sendbuff + sdispls[root]` on root.
WHORL_API whorlResult_t whorlScatterv(const void* sendbuff, const size_t* sendcounts,
                                      const size_t* sdispls, void* recvbuff, size_t recvcount,
                                      whorlDataType_t datatype, int root, whorlComm_t comm,
                                      void* stream);
/// @}

/// @name Point to point
/// The k-th send of rank a to rank b meets the k-th receive of b from a; count and datatype are
/// equal on both sides. Sends and receives outside a group are complete, on this rank, when they
/// return: a pair of ranks that both send first must use a group.
/// @{

/// Sends `count` elements to `peer`.
WHORL_API whorlResult_t whorlSend(const void* sendbuff, size_t count, whorlDataType_t datatype,
                                  int peer, whorlComm_t comm, void* stream);
/// Receives `count` elements from `peer`.
WHORL_API whorlResult_t whorlRecv(void* recvbuff, size_t count, whorlDataType_t datatype, int peer,
                                  whorlComm_t comm, void* stream);
/// Receives `count` elements from any other rank: the next send to this rank of whichever rank has
/// one waiting; where several have, they take turns. `*source` is set to that rank when the
/// operation is complete, and stays untouched if it fails (beyond NCCL).
///
/// The receive counts among those from the rank that it has met: if it takes rank a's k-th send,
/// the next whorlRecv() from a meets the (k+1)-th. Count and datatype are equal on both sides, too:
/// a waiting send that differs is an error, not passed over. A group may contain several of these
/// calls, which are met one after the other in the order of the calls, besides sends and
/// collectives; but not whorlRecv() of the same communicator as well, since it would be open which
/// of them a send meets: whorlGroupEnd() then returns ::whorlInvalidArgument and nothing has
/// happened. Sends of a rank to itself are not taken. The wait ends with an error when the timeout
/// passes without a send or when any rank of the communicator dies.
WHORL_API whorlResult_t whorlRecvAny(void* recvbuff, size_t count, whorlDataType_t datatype,
                                     int* source, whorlComm_t comm, void* stream);
/// @}

/// @name Operators
/// @{

/// Makes an operator that multiplies this rank's input by `*scalar` (of type `datatype`) and then
/// sums. Valid for operations of `datatype` on `comm` until whorlRedOpDestroy(); ranks may use
/// different scalars.
WHORL_API whorlResult_t whorlRedOpCreatePreMulSum(whorlRedOp_t* op, void* scalar,
                                                  whorlDataType_t datatype,
                                                  whorlScalarResidence_t residence,
                                                  whorlComm_t comm);
/// Ends an operator. Operations already issued are not affected.
WHORL_API whorlResult_t whorlRedOpDestroy(whorlRedOp_t op, whorlComm_t comm);
/// @}

/// @name Memory
/// @{

/// Allocates `size` bytes, 4096-aligned and zeroed, from a heap that the other ranks of this host
/// can map: operations on it move without a staging copy. Not usable across fork().
WHORL_API whorlResult_t whorlMemAlloc(void** ptr, size_t size);
/// Allocates `size` bytes of the device that is current in the calling thread (beyond NCCL, whose
/// ncclMemAlloc() does this). The memory is aligned to 256 bytes, is not zeroed, and is an
/// allocation of its own that other processes can map by CUDA IPC, as memory of a pool cannot.
/// ::whorlInvalidUsage where there is no support for devices or the thread has no device;
/// ::whorlUnhandledCudaError with the driver's words if it refuses.
WHORL_API whorlResult_t whorlMemAllocDevice(void** ptr, size_t size);
/// Frees memory of whorlMemAlloc() or whorlMemAllocDevice(). NULL is allowed. All operations on it
/// must be complete.
WHORL_API whorlResult_t whorlMemFree(void* ptr);
/// Declares a buffer that will be used often. The whole pages inside it are moved, at the same
/// address, into memory that the other ranks of this host can map. No other thread may touch the
/// buffer during this call and whorlCommDeregister(), the buffer must be deregistered before it is
/// freed or unmapped (else peers read what was there before), and a child of fork() shares the
/// pages instead of getting a copy. `*handle` may be NULL afterwards if there was nothing to move;
/// it is still valid for whorlCommDeregister(). Memory of a device, and pinned memory, may be
/// registered as well; there is nothing to move.
WHORL_API whorlResult_t whorlCommRegister(const whorlComm_t comm, void* buff, size_t size,
                                          void** handle);
/// Ends a registration: the pages become private again, with their contents.
WHORL_API whorlResult_t whorlCommDeregister(const whorlComm_t comm, void* handle);
/// @}

/// @name Host streams (beyond NCCL)
/// @{

/// Whether buffers may be memory of a CUDA device: this build has support for it and the machine a
/// driver that can be used. If not, `*supported` is 0 and whorlGetLastError(NULL) says what the
/// machine has, what fails (no library, another version than the kernel module's, no permission, a
/// CUDA too old) and what to do; that is no error. It does not say whether there is a device. Any
/// thread.
WHORL_API whorlResult_t whorlDeviceSupport(int* supported);

/// Makes a stream. Operations on it run in the order of issue, on the progress thread of their
/// communicator or, if it has not begun them, on the thread that waits for them.
WHORL_API whorlResult_t whorlStreamCreate(whorlStream_t* stream);
/// Waits until all operations issued on the stream are complete; returns the first error among
/// them.
WHORL_API whorlResult_t whorlStreamSynchronize(whorlStream_t stream);
/// whorlSuccess if all operations are complete, whorlInProgress if not, else the first error.
WHORL_API whorlResult_t whorlStreamQuery(whorlStream_t stream);
/// Synchronizes, then frees the stream. NULL is allowed.
WHORL_API whorlResult_t whorlStreamDestroy(whorlStream_t stream);
/// @}

#ifdef __cplusplus
}
#endif
#endif // WHORL_WHORL_H_
