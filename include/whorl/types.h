/// @file types.h
/// The types and constants of the C API; whorl.h includes this file.
#ifndef WHORL_TYPES_H_
#define WHORL_TYPES_H_

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Release of whorl.
#define WHORL_RELEASE_MAJOR 0
#define WHORL_RELEASE_MINOR 1
#define WHORL_RELEASE_PATCH 0
/// Release of whorl as one number: major·10000 + minor·100 + patch, as whorlGetRelease() reports
/// it.
#define WHORL_RELEASE_CODE \
  (WHORL_RELEASE_MAJOR * 10000 + WHORL_RELEASE_MINOR * 100 + WHORL_RELEASE_PATCH)

/// Release of NCCL whose API this header has. Conditions on NCCL's version in a ported program
/// therefore choose what whorl has, too.
#define WHORL_MAJOR 2
#define WHORL_MINOR 28
#define WHORL_PATCH 9
#define WHORL_SUFFIX "" ///< suffix of the release of NCCL
/// Number of a release of NCCL, in NCCL's two encodings: before 2.9 and since.
#define WHORL_VERSION(X, Y, Z) \
  (((X) <= 2 && (Y) <= 8) ? (X)*1000 + (Y)*100 + (Z) : (X)*10000 + (Y)*100 + (Z))
/// Number of the release of NCCL whose API this header has, as whorlGetVersion() reports it.
#define WHORL_VERSION_CODE WHORL_VERSION(WHORL_MAJOR, WHORL_MINOR, WHORL_PATCH)

#if defined(__GNUC__)
#define WHORL_API __attribute__((visibility("default")))
#else
#define WHORL_API
#endif

/// A rank's membership in a group of ranks. Opaque; owned by the library.
typedef struct whorlComm* whorlComm_t;

/// Value of a ::whorlComm_t that is no communicator.
#define WHORL_COMM_NULL NULL

/// A buffer that a communicator knows, made by whorlCommWindowRegister(). Opaque.
typedef struct whorlWindow* whorlWindow_t;

/// An in-order queue of asynchronous operations on host memory (beyond NCCL). Opaque.
typedef struct whorlStream* whorlStream_t;

/// A mark of a place in a ::whorlStream_t, which threads and other streams wait for (beyond NCCL).
/// Opaque.
typedef struct whorlEvent* whorlEvent_t;

#define WHORL_UNIQUE_ID_BYTES 128
/// Id of one communicator that is about to be created. Made by whorlGetUniqueId() in one process
/// and carried to all others by the caller. An id contains a 32-byte secret that authenticates
/// every connection of the communicator: do not print or publish an id. Each id makes one
/// communicator; using the id again is an error. Ranks meet in the process that made the id, which
/// waits an hour for the first rank.
typedef struct {
  char internal[WHORL_UNIQUE_ID_BYTES]; ///< version, job id, addresses, secret, checksum
} whorlUniqueId;

/// Result of a call.
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

/// Kind of memory that a pointer points to (beyond NCCL).
typedef enum {
  whorlMemoryHost = 0,    ///< ordinary memory, including that of whorlMemAlloc()
  whorlMemoryPinned = 1,  ///< host memory that a CUDA device reaches, too
  whorlMemoryManaged = 2, ///< memory that migrates between the host and CUDA devices
  whorlMemoryDevice = 3   ///< memory of a CUDA device, which the host cannot reach
} whorlMemoryKind_t;

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
/// they are summed in several steps, and the sum is divided last. The multiplication is exact but
/// for inputs below 2^k times the smallest normal number, which may lose their last k bits.
/// docs/kernels.md states the bound of the error. For floating types, min and max return NaN if any
/// operand is NaN. Bitwise operators are for integers and whorlBool. Values from
/// #WHORL_FIRST_USER_OP on are made by whorlRedOpCreatePreMulSum(); those in between that have no
/// name are no operators. So whorlNumOps and all values below it mean what they mean in NCCL.
typedef enum {
  whorlSum = 0,
  whorlProd = 1,
  whorlMax = 2,
  whorlMin = 3,
  whorlAvg = 4,
  whorlNumOps = 5, ///< number of NCCL's operators
  whorlBand = 8,   ///< beyond NCCL: bitwise and
  whorlBor = 9,    ///< beyond NCCL: bitwise or
  whorlBxor = 10,  ///< beyond NCCL: bitwise exclusive or
  whorlMaxRedOp = 0x7fffffff >> (32 - 8 * sizeof(whorlRedOp_dummy_t))
} whorlRedOp_t;

/// Least value of an operator that whorlRedOpCreatePreMulSum() makes.
#define WHORL_FIRST_USER_OP 64

/// Place of the scalar of whorlRedOpCreatePreMulSum(), and time at which it is read.
typedef enum {
  whorlScalarDevice = 0,       ///< dereferenced when an operation runs
  whorlScalarHostImmediate = 1 ///< dereferenced before whorlRedOpCreatePreMulSum() returns
} whorlScalarResidence_t;

#define WHORL_CONFIG_UNDEF_INT INT_MIN
#define WHORL_CONFIG_UNDEF_PTR NULL
/// Colour for whorlCommSplit() of a rank that joins no new communicator.
#define WHORL_SPLIT_NOCOLOR (-1)
/// Flag for whorlCommShrink() of a communicator that works.
#define WHORL_SHRINK_DEFAULT 0
/// Flag for whorlCommShrink() of a communicator that may have failed.
#define WHORL_SHRINK_ABORT 1
/// Flag for whorlCommRevoke(), the only one.
#define WHORL_REVOKE_DEFAULT 0

/// Flags for whorlCommWindowRegister(), which concern memory of devices only and are ignored.
#define WHORL_WIN_DEFAULT 0x00
#define WHORL_WIN_COLL_SYMMETRIC 0x01 ///< the same place in the windows of all ranks
/// Alignment in bytes of the windows of NCCL. whorlCommWindowRegister() takes any.
#define WHORL_WIN_REQUIRED_ALIGNMENT 4096
/// Values of `CTAPolicy` in ::whorlConfig_t.
#define WHORL_CTA_POLICY_DEFAULT 0x00
#define WHORL_CTA_POLICY_EFFICIENCY 0x01
#define WHORL_CTA_POLICY_ZERO 0x02

#define WHORL_UNDEF_FLOAT (-1.0f) ///< value of a number that is not known
#define WHORL_SIM_INFO_MAGIC 0x74685283u
/// Result of whorlGroupSimulateEnd(). Start from #WHORL_SIM_INFO_INITIALIZER.
typedef struct {
  size_t size;          ///< set by the initializer; do not touch
  unsigned int magic;   ///< set by the initializer; do not touch
  unsigned int version; ///< set by the initializer; do not touch
  float estimatedTime;  ///< #WHORL_UNDEF_FLOAT: there is no estimate
} whorlSimInfo_t;
/// Value every ::whorlSimInfo_t starts from.
#define WHORL_SIM_INFO_INITIALIZER \
  { sizeof(whorlSimInfo_t), WHORL_SIM_INFO_MAGIC, WHORL_VERSION_CODE, WHORL_UNDEF_FLOAT }

/// Options of one communicator. Start from #WHORL_CONFIG_INITIALIZER; a field left at
/// `WHORL_CONFIG_UNDEF_*` takes its default. The fields up to `nvlinkCentricSched` are NCCL's, and
/// have its bounds; those that have no meaning on host memory are checked and ignored.
typedef struct {
  size_t size;          ///< set by the initializer; do not touch
  unsigned int magic;   ///< set by the initializer; do not touch
  unsigned int version; ///< set by the initializer; do not touch
  int blocking;        ///< 0: creation returns whorlInProgress at once; poll whorlCommGetAsyncError
  int cgaClusterSize;  ///< ignored on host memory
  int minCTAs;         ///< least number of channels; default 1
  int maxCTAs;         ///< largest number of channels; default WHORL_MAX_CHANNELS
  const char* netName; ///< transport between hosts: "tcp" (or "Socket", "IB"); NULL chooses
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

#ifdef __cplusplus
}
#endif
#endif // WHORL_TYPES_H_
