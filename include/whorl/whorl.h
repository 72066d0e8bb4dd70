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
/// communicator may be used by one thread at a time; only whorlCommAbort(), whorlCommRevoke(),
/// whorlCommGetAsyncError() and whorlGetLastError() may be called from any thread at any time.
/// Cancelling a thread in a call (`pthread_cancel()`) ends the program.
///
/// **Order.** All ranks of a communicator make the same collective calls in the same order. Where
/// they do not, ranks that receive anything get ::whorlInvalidUsage with both calls in the text; a
/// rank that only sends (a root that broadcasts) may return success and learn of it a call later.
///
/// **Bits.** Sums of floating-point numbers depend on the order of the operands, and that on the
/// call (collective, count, datatype, operator, root), the version of whorl, the number of ranks,
/// which of them are on one host and of one process, the transports between them, the number of
/// ranks for each online processor if that is above 1, the size of rank 0's memory if no rank sets
/// slots or their size, the fields maxCTAs, minCTAs and memoryBudget of ::whorlConfig_t, and the
/// variables WHORL_ALGO, WHORL_DIMS, WHORL_CHANNELS, WHORL_MAX_CHANNELS, WHORL_SLOTS,
/// WHORL_SLOT_BYTES, WHORL_MEMORY_BUDGET, WHORL_TRANSPORTS and WHORL_HOST_ID; with device memory on
/// devices and WHORL_DEVICE_ALGO, WHORL_DEVICE_IPC and WHORL_SEGMENT_BYTES, too. Where these are
/// the same, so are the bits, in every run and under any load; not with WHORL_PROBE=1, which
/// chooses algorithms by measured times.
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
/// a `cudaStream_t` operations on it are in the stream's order, too. docs/gpu.md (Rules) lists the
/// ways in which an operation on device memory is carried out, and what each asks of the program:
/// which calls wait for those of other ranks, what can be captured into a CUDA graph, when a buffer
/// may be freed. In short: ranks that share a thread or a stream make their calls in one group; an
/// operation that cannot be captured is ::whorlInvalidUsage and nothing has happened; graphs are
/// destroyed before their buffers are freed and before whorlCommFinalize() or whorlCommDestroy().
#ifndef WHORL_WHORL_H_
#define WHORL_WHORL_H_

#include <stddef.h>
#include <stdint.h>

#include "whorl/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/// @name Library
/// @{

/// Writes #WHORL_VERSION_CODE of the library that is running to `*version`: the release of NCCL
/// whose API the library has.
WHORL_API whorlResult_t whorlGetVersion(int* version);
/// Writes #WHORL_RELEASE_CODE of the library that is running to `*release`: the release of whorl
/// (beyond NCCL).
WHORL_API whorlResult_t whorlGetRelease(int* release);
/// Returns a fixed English text for a result code; never NULL, never to be freed.
WHORL_API const char* whorlGetErrorString(whorlResult_t result);
/// Returns the last error as a full sentence: the one that killed `comm`, else that of this thread.
/// The text stays valid until the next whorl call of this thread. Empty if there was none.
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
/// whorlRemoteError within the timeout and whorlGetLastError(NULL) names the missing rank. If a
/// rank dies or fails meanwhile, or has wrong options or arguments, the others get its code and its
/// reason at once; its own call, of any creation, may take up to five seconds for telling them.
WHORL_API whorlResult_t whorlCommInitRank(whorlComm_t* comm, int nranks, whorlUniqueId commId,
                                          int rank);
/// Does what whorlCommInitRank() does, with options; `config` may be NULL. With `blocking = 0`,
/// `*comm` is set and the call returns whorlInProgress; the communicator may be used once
/// whorlCommGetAsyncError() reports whorlSuccess.
WHORL_API whorlResult_t whorlCommInitRankConfig(whorlComm_t* comm, int nranks, whorlUniqueId commId,
                                                int rank, whorlConfig_t* config);
/// Does what whorlCommInitRankConfig() does, with `nId` ids, from 1 to `nranks`, which are the same
/// on all ranks. In NCCL several ids spread the work of the meeting over several processes; here
/// that work is short, and all ranks meet at the first.
WHORL_API whorlResult_t whorlCommInitRankScalable(whorlComm_t* newcomm, int nranks, int myrank,
                                                  int nId, whorlUniqueId* commIds,
                                                  whorlConfig_t* config);
/// Makes `ndev` communicators in this process at once: `comms[i]` is rank i. `devlist` is what
/// whorlCommCuDevice() is to say of each, the same device any number of times; NULL means 0, 1, …
/// Nothing else depends on it, and without a CUDA driver nothing does.
WHORL_API whorlResult_t whorlCommInitAll(whorlComm_t* comms, int ndev, const int* devlist);

/// Divides a communicator: ranks of equal `color` (≥ 0) form a new one, ordered by `key`, then by
/// old rank. A rank with #WHORL_SPLIT_NOCOLOR takes part in the call and gets `*newcomm = NULL`.
/// Collective over `comm`; always blocking. `config` may be NULL: the parent's options are
/// inherited. Where one rank fails (wrong options, a system call, no memory) all ranks of its color
/// get its reason soon, and none a new communicator; a wrong color is an error on all ranks. `comm`
/// works as before, unless it was `comm` itself that failed (the death of a rank, a connection, no
/// memory for a message).
WHORL_API whorlResult_t whorlCommSplit(whorlComm_t comm, int color, int key, whorlComm_t* newcomm,
                                       whorlConfig_t* config);

/// Makes a communicator of the ranks that remain, in the order of their ranks, after the death of
/// others or to let others go. Only the ranks that remain call this, all with the same list;
/// `excludeRanksList` has `excludeRanksCount` ranks of `comm`. With a count of 0 the ranks that are
/// known to have died or left are excluded, which may be none (beyond NCCL). With
/// #WHORL_SHRINK_ABORT, `comm` may have failed, and its operations on all ranks are ended first;
/// with #WHORL_SHRINK_DEFAULT it must work, and works afterwards, and the operations of this rank
/// are completed first. `config` may be NULL: the parent's options are inherited. Always blocking:
/// waits for the others until the timeout. Ranks that exclude different ranks get an error after
/// some seconds, or at the timeout where they differ in the lowest rank that remains; the death of
/// one that was to remain is an error for all. With a count of 0 the others form a communicator
/// without that rank if it dies before they have met. A later death is an error that names the
/// rank, after some seconds at most. Where the death comes with the last message of the call, some
/// ranks have that error, and others the new communicator with the dead rank in it: these get an
/// error that names the dead rank from whorlCommGetAsyncError() at once, and from their first
/// operation. `comm` is still to be destroyed or aborted; to shrink it again is allowed.
WHORL_API whorlResult_t whorlCommShrink(whorlComm_t comm, const int* excludeRanksList,
                                        int excludeRanksCount, whorlComm_t* newcomm,
                                        whorlConfig_t* config, int shrinkFlags);
/// Ends all operations of the communicator at once, on every rank, and keeps it for
/// whorlCommShrink(), whorlCommDestroy() and whorlCommAbort(). Not collective; any thread, also
/// while one is inside a call on `comm`. NULL is allowed. `revokeFlags` is #WHORL_REVOKE_DEFAULT.
WHORL_API whorlResult_t whorlCommRevoke(whorlComm_t comm, int revokeFlags);

/// Makes the id for whorlCommGrow(), as whorlGetUniqueId() does. Called on one rank of `comm`,
/// whose process then serves the meeting; the caller carries the id to the ranks that join.
WHORL_API whorlResult_t whorlCommGetUniqueId(whorlComm_t comm, whorlUniqueId* uniqueId);
/// Makes a communicator of `nRanks` ranks: those of `comm`, which keep their numbers, and others,
/// which join. A rank of `comm` passes -1 as `rank`, and exactly one of these ranks the id of
/// whorlCommGetUniqueId(), the others NULL. A rank that joins passes #WHORL_COMM_NULL, the id and
/// its number, from the old number of ranks on. Collective over all of them; the ranks of `comm`
/// wait for each other in any case, and cannot make the call within a group. `config` may be NULL:
/// default options. `comm` must work; it stays as it is and is still to be destroyed.
WHORL_API whorlResult_t whorlCommGrow(whorlComm_t comm, int nRanks, const whorlUniqueId* uniqueId,
                                      int rank, whorlComm_t* newcomm, whorlConfig_t* config);

/// Waits until all operations of this rank are complete, however late another rank comes within
/// their timeout; afterwards only destroy is allowed. NULL is allowed. ::whorlInvalidUsage in a
/// callback of a stream (whorlStreamAddCallback()).
WHORL_API whorlResult_t whorlCommFinalize(whorlComm_t comm);
/// Frees a communicator. Not collective. Operations that are queued, or under way in a call of
/// another thread, are carried out first as long as the other ranks take part; whorlCommFinalize()
/// before this call waits for ranks that come late. Without it, an operation for which another rank
/// has not come, and in which nothing has moved for almost 100 ms, is given up with all operations
/// behind it: the call returns ::whorlRemoteError with a sentence that names the operation and the
/// rank, the streams have that error, too, the other ranks get it, and the communicator is freed
/// all the same. Nothing is waited for after an error, as of a rank that has died.
///
/// Callbacks, events and operations of other communicators that keep an operation in its stream
/// from its turn are waited for, because no rank is absent there; the latter have timeouts of their
/// own (a program that leaves several communicators with operations in one stream, for which a rank
/// may be absent, destroys first the one whose operations come first). Operations in a stream of a
/// device are waited for until that stream has passed them.
///
/// NULL is allowed. ::whorlInvalidUsage in a callback of a stream, and the communicator stays. A
/// program that calls exit() without destroying its communicators leaves them in good order, as far
/// as no call is under way; they are finalized then, for destructors that come later.
WHORL_API whorlResult_t whorlCommDestroy(whorlComm_t comm);
/// Ends all operations of the communicator at once, on every rank, and frees it. From any thread,
/// also while another thread is inside a call on `comm`: that call returns an error first.
/// Nothing is waited for, also not what comes before its operations in their streams, unless these
/// are streams of a device.
/// ::whorlInvalidUsage in a callback of a stream, and the communicator stays.
WHORL_API whorlResult_t whorlCommAbort(whorlComm_t comm);

/// Writes the state of the communicator: whorlSuccess, whorlInProgress while a nonblocking call is
/// under way, or the error that killed it. Does not wait.
WHORL_API whorlResult_t whorlCommGetAsyncError(whorlComm_t comm, whorlResult_t* asyncError);
/// Sets a function that a thread calls about once a millisecond while it waits for other ranks in a
/// blocking operation of any communicator of this process, and every 20 ms while its call on a
/// communicator waits for an operation that another thread carries out; not while it waits for such
/// an operation in a stream or an event. NULL: none (beyond NCCL). If it returns non-zero, the
/// operation ends with ::whorlInvalidUsage and its communicator with it, on every rank. The
/// function is for interpreters, which handle signals on one thread at a time of their choice;
/// threads of whorl call it, too; it uses no communicator, and returns soon.
WHORL_API whorlResult_t whorlSetInterruptCheck(int (*interrupted)(void));
/// Writes whorlSetInterruptCheck()'s function, or NULL, for a caller to set again (beyond NCCL).
WHORL_API whorlResult_t whorlGetInterruptCheck(int (**interrupted)(void));
/// Writes the number of ranks to `*count`.
WHORL_API whorlResult_t whorlCommCount(const whorlComm_t comm, int* count);
/// Sets the timeout of the operations that this rank issues from now on: an operation that makes no
/// progress for `ms` milliseconds (at least 1) fails and kills the communicator. Operations that
/// are queued on a stream keep the timeout they were issued with; calls collected in a group are
/// issued by the outermost whorlGroupEnd(). Ranks may differ. Not collective; does not wait (beyond
/// NCCL).
WHORL_API whorlResult_t whorlCommSetTimeout(whorlComm_t comm, int ms);
/// Writes the number of the CUDA device that was current where this rank was created, or that
/// whorlCommInitAll() was given for it, to `*device`; -1: none. Buffers may be on any device.
WHORL_API whorlResult_t whorlCommCuDevice(const whorlComm_t comm, int* device);
/// Writes this rank's number, 0 … count − 1, to `*rank`.
WHORL_API whorlResult_t whorlCommUserRank(const whorlComm_t comm, int* rank);
/// Writes a line about the communicator to `text`, for logs and for the headers of measurements:
/// where its ranks are, a hash of the topology and a hash of the choices that decide the bits of
/// results, for instance "8 ranks on 2 hosts (5 + 3); topology 89abcdef01234567, choices
/// 0123456789abcdef". The same on all ranks, and in every run on the same machines. `size` is that
/// of `text` in bytes, at least 1; a longer line is cut, and ends with NUL in any case. Not
/// collective (beyond NCCL).
WHORL_API whorlResult_t whorlCommDescribe(const whorlComm_t comm, char* text, size_t size);
/// Writes the name of the transport that carries bytes between this rank and `peer` to `*name`:
/// "shm", "tcp", "inproc", "verbs" or "ucx"; "" for the rank itself. The text is static. Not
/// collective (beyond NCCL).
WHORL_API whorlResult_t whorlCommGetTransport(const whorlComm_t comm, int peer, const char** name);

/// Figures of whorlCommMemStats(). The first four are NCCL's and are about device
/// memory: 0 for a communicator on host memory. The others are bytes of this rank's part of the
/// communicator, unless said otherwise.
typedef enum {
  whorlStatGpuMemSuspend = 0,   ///< memory that could be released by suspending
  whorlStatGpuMemSuspended = 1, ///< 1 while suspended
  whorlStatGpuMemPersist = 2,   ///< memory that cannot be released
  whorlStatGpuMemTotal = 3,     ///< all
  whorlStatHostMemTotal = 16,   ///< Fifos + Workspaces + Plans + SocketBuffers + Fixed
  whorlStatHostMemFifos = 17,   ///< FIFOs to peers that this rank has sent to, or staging for TCP
  whorlStatHostMemWorkspaces = 18, ///< scratch chunks
  whorlStatHostMemPlans = 19,      ///< schedules that have been built, and what is kept to run them
  whorlStatHostMemSocketBuffers = 20, ///< memory of the kernel's sockets, now
  whorlStatHostMemFixed = 21,         ///< memory that does not grow with use
  whorlStatHostMemReserved = 22,      ///< address space for FIFOs of all ranks of this host
  whorlStatHostMemShared = 23,        ///< part of Reserved that is in memory, written by any rank
  whorlStatHostMemHeap = 24,          ///< whorlMemAlloc() and registered memory of the process
  whorlStatHostMemBudget = 25,        ///< limit of Fifos + Workspaces; 0: none
  /// Number of messages of at least 4 KiB that ranks of the host have read in this rank's memory,
  /// or that this rank has written to theirs: whorlMemAlloc() or registered memory, or any memory
  /// of the same process.
  whorlStatMessagesZeroCopy = 32
} whorlCommMemStat_t;
/// Writes one figure to `*value`. Not collective; does not wait. Memory is given to FIFOs when a
/// pair of ranks uses them, so the figures grow with use and then stay.
WHORL_API whorlResult_t whorlCommMemStats(whorlComm_t comm, whorlCommMemStat_t stat,
                                          uint64_t* value);
/// @}

/// @name Creating communicators by other means (beyond NCCL)
/// @{

/// Joins ranks that agree on one `"host:port"`: rank 0 listens there, the others connect. The
/// secret is read from the file that `WHORL_SECRET_FILE` names (mode 0600). Without one, a loopback
/// address serves processes of one user, who prove that by a unix socket; other addresses are
/// refused. `WHORL_INSECURE=1` on all ranks lets everybody join.
WHORL_API whorlResult_t whorlCommInitAddress(whorlComm_t* comm, int nranks, const char* hostPort,
                                             int rank, whorlConfig_t* config);

/// Makes a meeting point: an id from which the ids of any number of communicators are derived, so
/// that ranks which have it can meet again later without exchanging anything. The process then
/// serves these meetings until its end, from one background thread for all its points; a child
/// that is forked makes points of its own. Only processes that hold ranks of `comm` can meet there:
/// if these are all on one host, no port is opened. NULL for `comm`: processes of any host. Every
/// process that has the bytes can join.
WHORL_API whorlResult_t whorlGetMeetingPoint(whorlComm_t comm, whorlUniqueId* point);
/// Derives the id of the communicator called `name` from a meeting point, without
/// communication: ranks that give the same point and name get the same id, for whorlCommInitRank()
/// or whorlCommInitRankConfig(). A name is used for one communicator only. If the process that made
/// the point has ended, creating the communicator fails within about a second.
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
  /// value's size to `*size`. whorlCommAbort() of a communicator in creation waits for the return.
  int (*get)(void* context, const char* key, void* value, size_t capacity, size_t* size,
             int timeoutMs);
} whorlStore_t;
/// Joins ranks that find each other through a key-value store.
WHORL_API whorlResult_t whorlCommInitStore(whorlComm_t* comm, int nranks, const whorlStore_t* store,
                                           int rank, whorlConfig_t* config);

/// An all-gather that the ranks can already do, for instance by MPI. Returns 0 for success.
typedef struct {
  void* context; ///< passed back to the function
  /// Every rank passes `size` bytes at `in` and gets the bytes of all ranks, in rank order, at
  /// `out`.
  int (*allgather)(void* context, const void* in, void* out, size_t size);
} whorlOob_t;
/// Joins ranks that find each other through an all-gather of the caller's.
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
/// it returns. Returns the first error; where a call was refused, nothing is issued, and the unique
/// ids of the group's creations are spent.
WHORL_API whorlResult_t whorlGroupEnd(void);
/// Ends a group as whorlGroupEnd() does, but the outermost one issues no call; an error of one is
/// returned. `simInfo` may be NULL; its `estimatedTime` becomes #WHORL_UNDEF_FLOAT: no estimate.
WHORL_API whorlResult_t whorlGroupSimulateEnd(whorlSimInfo_t* simInfo);
/// @}

/// @name Collectives
/// Sizes: "vector" is `count` elements. In place means the stated relation of the two pointers; any
/// other overlap is whorlInvalidArgument.
/// @{

/// Reduces element by element: recvbuff[i] = sum (or another operator) over all ranks of
/// sendbuff[i], on every rank. In place: `sendbuff == recvbuff`.
WHORL_API whorlResult_t whorlAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                                       whorlDataType_t datatype, whorlRedOp_t op, whorlComm_t comm,
                                       void* stream);
/// Reduces as whorlAllReduce() does, with the result on `root` only; `recvbuff` is ignored
/// elsewhere. In place: `sendbuff == recvbuff`.
WHORL_API whorlResult_t whorlReduce(const void* sendbuff, void* recvbuff, size_t count,
                                    whorlDataType_t datatype, whorlRedOp_t op, int root,
                                    whorlComm_t comm, void* stream);
/// Copies root's `sendbuff` to everyone's `recvbuff`; `sendbuff` is ignored elsewhere. In place:
/// `sendbuff == recvbuff`.
WHORL_API whorlResult_t whorlBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                                       whorlDataType_t datatype, int root, whorlComm_t comm,
                                       void* stream);
/// Broadcasts one buffer in place (NCCL's old name).
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
/// of them a send meets: whorlGroupEnd() then returns ::whorlInvalidUsage and nothing has
/// happened. Sends of a rank to itself are not taken. The wait ends with an error when the timeout
/// passes without a send, when any rank of the communicator dies or when all others have left.
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

/// Allocates `size` bytes, 4096-aligned and not zeroed, from a heap that the other ranks of this
/// host can map: operations on it move without a staging copy. A child of fork() shares the pages
/// with its parent, copies them in operations of its own, and must not free them. Programs that are
/// not to be changed get such memory from libwhorl_malloc.so (docs/transports.md).
WHORL_API whorlResult_t whorlMemAlloc(void** ptr, size_t size);
/// Allocates `size` bytes of the device that is current in the calling thread (beyond NCCL, whose
/// ncclMemAlloc() does this). The memory is aligned to 256 bytes, is not zeroed, and is an
/// allocation of its own that other processes can map by CUDA IPC, as memory of a pool cannot.
/// ::whorlInvalidUsage where there is no support for devices or the thread has no device;
/// ::whorlUnhandledCudaError with the driver's words if it refuses.
WHORL_API whorlResult_t whorlMemAllocDevice(void** ptr, size_t size);
/// Frees memory of whorlMemAlloc() or whorlMemAllocDevice(). NULL is allowed. All operations on it
/// must be complete. Up to 1/64 of the heap of whorlMemAlloc() (WHORL_HEAP_BYTES) stays in memory
/// for later allocations of the same sizes, until memory is short.
WHORL_API whorlResult_t whorlMemFree(void* ptr);
/// Tells whether buffers may be memory of a CUDA device: this build has support for it and the
/// machine a driver that can be used. If not, `*supported` is 0 and whorlGetLastError(NULL) says
/// what the machine has, what fails (no library, another version than the kernel module's, no
/// permission, a CUDA too old) and what to do; that is no error. Whether there is a device is not
/// looked at. Beyond NCCL. Any thread.
WHORL_API whorlResult_t whorlDeviceSupport(int* supported);
/// Writes the kind of memory at `pointer` to `*kind` and, if `device` is not NULL, the number of
/// the CUDA device that it belongs to, or -1, to `*device` (beyond NCCL). The driver is asked if
/// the program has loaded it, also where this build has no support for devices; without a driver
/// all memory is the host's, as is an address that the driver does not know, and NULL. Where the
/// driver cannot answer, because a device is lost, say, the kind is ::whorlMemoryDevice without a
/// number, since the host must not touch the memory then. Any thread.
WHORL_API whorlResult_t whorlPointerKind(const void* pointer, whorlMemoryKind_t* kind, int* device);
/// Declares a buffer that will be used often. The whole pages inside it are moved, at the same
/// address, into memory that the other ranks of this host can map. No other thread may touch the
/// buffer during this call and whorlCommDeregister(), the buffer must be deregistered before it is
/// freed or unmapped (else peers read what was there before), and a child of fork() shares the
/// pages instead of getting a copy. `*handle` may be NULL afterwards if there was nothing to move;
/// it is still valid for whorlCommDeregister(). Memory of a device, and pinned memory, may be
/// registered as well; there is nothing to move.
WHORL_API whorlResult_t whorlCommRegister(const whorlComm_t comm, void* buff, size_t size,
                                          void** handle);
/// Ends a registration, before `comm` is destroyed: the pages become private again, with their
/// contents. Without `/proc/self/maps`: ::whorlSystemError, and the registration lasts.
WHORL_API whorlResult_t whorlCommDeregister(const whorlComm_t comm, void* handle);
/// Registers a buffer as whorlCommRegister() does, by its rules, as a window. `winFlags` is
/// #WHORL_WIN_DEFAULT or #WHORL_WIN_COLL_SYMMETRIC.
WHORL_API whorlResult_t whorlCommWindowRegister(whorlComm_t comm, void* buff, size_t size,
                                                whorlWindow_t* win, int winFlags);
/// Ends a window as whorlCommDeregister() ends a registration. NULL is allowed.
WHORL_API whorlResult_t whorlCommWindowDeregister(whorlComm_t comm, whorlWindow_t win);
/// Writes the address of the buffer of a window to `*outUserPtr`.
WHORL_API whorlResult_t whorlWinGetUserPtr(whorlComm_t comm, whorlWindow_t win, void** outUserPtr);
/// @}

/// @name Host streams (beyond NCCL)
/// @{

/// Makes a stream. Operations on it run in the order of issue, on the progress thread of their
/// communicator or, if it has not begun them, on the thread that waits for them. Where the ranks
/// leave no processor to that progress thread, it leaves an operation for some milliseconds to the
/// threads that may wait for it, or until whorlStreamQuery() or whorlEventQuery() asks for it.
/// Functions of streams and events may be called by any thread. Where a group is open, its calls
/// are in the stream when whorlGroupEnd() has returned, so behind what these functions have queued
/// meanwhile.
WHORL_API whorlResult_t whorlStreamCreate(whorlStream_t* stream);
/// Waits until all that was queued in the stream before this call is complete; returns the first
/// error of the stream up to there. ::whorlInvalidUsage in a callback, see
/// whorlStreamAddCallback().
WHORL_API whorlResult_t whorlStreamSynchronize(whorlStream_t stream);
/// Returns whorlSuccess if all operations are complete, whorlInProgress if not, else the first
/// error.
WHORL_API whorlResult_t whorlStreamQuery(whorlStream_t stream);
/// Synchronizes, then frees the stream: callbacks that are queued are called, too. NULL is allowed.
/// ::whorlInvalidUsage, and the stream stays, in a callback.
WHORL_API whorlResult_t whorlStreamDestroy(whorlStream_t stream);
/// Queues a callback. `callback(data, status)` is called once, when all that was queued in the
/// stream before is complete, and what is queued behind begins when it has returned. `status` is
/// the first error of what was queued before; whorlGetLastError(NULL) then gives its sentence. The
/// callback runs on a thread that the library keeps for the stream, from its first callback on, or
/// on any thread that waits for something behind it: this stream, another one that waits for an
/// event in it, an event, or a communicator with operations in one of these. A `stream` that is
/// NULL: the callback is called at once, by the same rules.
///
/// A callback queues and never waits. A callback may call all functions that return at once:
/// operations and groups of them in any stream (also in its own, where they begin when it has
/// returned), on communicators that no other thread uses meanwhile, other callbacks, events,
/// queries. Calls that wait return ::whorlInvalidUsage before anything happens, even if there is
/// nothing to wait for, and a communicator stays usable: operations without a stream, groups with
/// such operations or with communicators to be created, creations other than with `blocking = 0`,
/// whorlCommSplit(), whorlCommFinalize(), whorlCommDestroy(), whorlCommAbort(),
/// whorlStreamSynchronize(), whorlStreamDestroy(), and whorlEventWait() with a `timeout_ms` other
/// than 0. Waits by other means (a mutex, a join) are not seen, and may never end. An operation on
/// memory of devices may wait, here as elsewhere, until the other ranks have issued it, for
/// instance where they map each other's memory for the first time.
///
/// An exception must not leave the callback; where one does, the stream has the error
/// ::whorlInternalError. A group that the callback opens and does not end is dropped.
/// ::whorlInvalidArgument for a `cudaStream_t`: use `cudaLaunchHostFunc()`.
WHORL_API whorlResult_t whorlStreamAddCallback(whorlStream_t stream,
                                               void (*callback)(void* data, whorlResult_t status),
                                               void* data);
/// Makes what is queued in `stream` from now on begin when all is complete that `event` stands for
/// at this moment; the call does not wait. An error up to the event becomes one of `stream`, where
/// what is queued behind is carried out all the same. Events recorded in `stream` itself need no
/// wait.
WHORL_API whorlResult_t whorlStreamWaitEvent(whorlStream_t stream, whorlEvent_t event);
/// @}

/// @name Events of host streams (beyond NCCL)
/// @{

/// Makes an event that stands for nothing: it is complete.
WHORL_API whorlResult_t whorlEventCreate(whorlEvent_t* event);
/// Makes the event stand for all that is queued in `stream` at this moment, in place of what it
/// stood for; waits that have begun are not affected. A `stream` that is NULL: for nothing, so that
/// it is complete. ::whorlInvalidArgument for a `cudaStream_t`: use `cudaEventRecord()`.
WHORL_API whorlResult_t whorlEventRecord(whorlEvent_t event, whorlStream_t stream);
/// Returns whorlSuccess if all is complete that the event stands for, whorlInProgress if not, else
/// the first error of what was queued before the event.
WHORL_API whorlResult_t whorlEventQuery(whorlEvent_t event);
/// Waits until all is complete that the event stands for at the time of the call, and returns the
/// first error of what was queued before the event. The thread carries out operations and
/// callbacks itself that nobody has begun. `timeout_ms` limits the wait, with ::whorlInProgress as
/// the result; 0 only looks, a negative number is no limit. The time is looked at between
/// operations: the thread cannot leave an operation or callback that it has begun itself, so that
/// one which waits for other ranks may take as long as the timeout of its communicator.
/// ::whorlInvalidUsage in a callback unless `timeout_ms` is 0, see whorlStreamAddCallback().
WHORL_API whorlResult_t whorlEventWait(whorlEvent_t event, int64_t timeout_ms);
/// Frees the event. NULL is allowed. Waits for it that have begun go on.
WHORL_API whorlResult_t whorlEventDestroy(whorlEvent_t event);
/// @}

#ifdef __cplusplus
}
#endif
#endif // WHORL_WHORL_H_
