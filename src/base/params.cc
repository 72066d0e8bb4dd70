#include "base/params.h"

#include <fmt/core.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/printable.h"

namespace whorl {
namespace {

constexpr std::array kParams{
    ParamInfo{Param::kAlgo, "WHORL_ALGO", "",
              "Algorithm for each collective, for instance \"allreduce:ring,allgather:circulant\", "
              "or one name for all; that of rank 0 counts. Empty: the cost model chooses. "
              "Underscores in the collective do not matter."},
    ParamInfo{Param::kChannels, "WHORL_CHANNELS", "1",
              "Channels of a ring schedule, 1 to WHORL_MAX_CHANNELS; the value of rank 0 counts. "
              "More overlap more messages; "
              "each costs slots of memory for every pair of ranks."},
    ParamInfo{
        Param::kMaxChannels, "WHORL_MAX_CHANNELS", "2",
        "Channels of every pair of ranks for collectives, 2 to 16. One more carries sends and "
        "receives. Over TCP each is a socket."},
    ParamInfo{
        Param::kSlots, "WHORL_SLOTS", "",
        "Slots of each FIFO, 2 to 64; the smallest number that any rank asks for. More: "
        "longer bursts without waiting, more memory. A FIFO takes up to 3 MiB more, unless there "
        "is a budget. Empty: 16; 8 with more than 16 ranks; 4 of more than 128 KiB or with more "
        "ranks than cores; fewer where the FIFOs of a host would "
        "take more than a quarter of its memory."},
    ParamInfo{
        Param::kSlotBytes, "WHORL_SLOT_BYTES", "",
        "Payload of a slot, 256 to 16777216 bytes, rounded up to 64; no message is larger. The "
        "smallest that any rank asks for, but at least 8 bytes for each rank. "
        "Empty: 65536, and 524288 where ranks are connected by TCP; smaller where the FIFOs of a "
        "host would take more than a quarter of its memory."},
    ParamInfo{
        Param::kMemoryBudget, "WHORL_MEMORY_BUDGET", "0",
        "Bytes that one rank's part of a communicator may occupy for messages and workspaces, "
        "without the heap; the smallest of all ranks counts. Slots and channels are made "
        "smaller and fewer until they fit. 0: no limit."},
    ParamInfo{Param::kNontemporalBytes, "WHORL_NONTEMPORAL_BYTES", "",
              "Results of operations of at least this many bytes are written past the caches. "
              "Empty: from where inputs and outputs of all ranks of a host exceed the largest "
              "cache, counted as at most 32 MiB for each core. Results of reductions in place "
              "never are, because lines that were just read are in the cache.",
              "WHORL_STREAM_BYTES"},
    ParamInfo{Param::kTimeoutMs, "WHORL_TIMEOUT_MS", "30000",
              "An operation or a connection set-up fails after this many milliseconds without "
              "progress, 1 to 2147483648. In programs for NCCL 1800000 if unset; under PyTorch the "
              "timeout of the group."},
    ParamInfo{
        Param::kSpins, "WHORL_SPINS", "",
        "Attempts before a wait yields the core, 0 to 1000000000. More pays only where every "
        "rank has a core to itself. Empty: 80, or 20 if some are connected by TCP or UCX; where a "
        "host has more ranks than cores 8, and 0 if some are connected by TCP or UCX."},
    ParamInfo{Param::kProbe, "WHORL_PROBE", "0",
              "1: measure what messages cost when a communicator is made, and choose algorithms by "
              "that, so that choices, and the last bits of sums, may differ from run to run; 0: by "
              "constants, alike in every run. Rank 0's counts, for a split the parent's."},
    ParamInfo{Param::kCostFile, "WHORL_COST_FILE", "",
              "JSON file, read by rank 0, with costs of links in place of the built-in or measured "
              "ones (docs/selection.md); `whorl-explain --json` prints those in use. Empty: none."},
    ParamInfo{Param::kTransports, "WHORL_TRANSPORTS", "inproc,shm,verbs,tcp",
              "Transports that may be used, best first; of each pair of ranks the first that both "
              "have. verbs: RDMA devices, InfiniBand and RoCE; ucx, only where it is asked for: "
              "whatever UCX connects (docs/transports.md)."},
    ParamInfo{Param::kFaulty, "WHORL_FAULTY", "",
              "For tests: faults in the messages of a communicator, such as "
              "\"seed=7,rank=1,delay=0.1:5ms,reorder=2ms,stall@200:300ms,cut@50,truncate@9,"
              "kill@317:19\" (docs/transports.md). Empty: none."},
    ParamInfo{Param::kHostId, "WHORL_HOST_ID", "",
              "Ranks with the same text count as being on one host. Empty: boot id and network "
              "namespace."},
    ParamInfo{
        Param::kHostAddress, "WHORL_HOST_ADDRESS", "",
        "Address of this host for other ranks, or the name of its interface, such as eth1. Empty: "
        "all addresses, ranked."},
    ParamInfo{
        Param::kFabricFile, "WHORL_FABRIC_FILE", "",
        "File that lists the switches between hosts: Slurm's topology.conf or topology.yaml, "
        "the output of ibnetdiscover, or a map of hosts (docs/topology.md); a copy of the same "
        "file on every host. Empty: nothing is known of the network."},
    ParamInfo{Param::kTcpCongestion, "WHORL_TCP_CONGESTION", "",
              "Congestion control of TCP connections for data, such as cubic or dctcp. Empty: the "
              "system's, but cubic instead of bbr where the round trip takes less than 1 ms."},
    ParamInfo{Param::kTcpBufferBytes, "WHORL_TCP_BUFFER_BYTES", "0",
              "Send and receive buffer of every TCP connection for data, 4096 to 1073741824 bytes. "
              "0: the system adapts them."},
    ParamInfo{Param::kIbDisable, "WHORL_IB_DISABLE", "0",
              "1: RDMA devices are not used, as if there were none.", "NCCL_IB_DISABLE"},
    ParamInfo{
        Param::kIbHca, "WHORL_IB_HCA", "",
        "RDMA devices that may be used: beginnings of their names, for instance "
        "\"mlx5_0,mlx5_2:1\", where :1 is a port; = in front of the list: whole names, ^: all "
        "but these. Empty: all.",
        "NCCL_IB_HCA"},
    ParamInfo{Param::kIbGidIndex, "WHORL_IB_GID_INDEX", "-1",
              "Index of the port's GID, 0 to 65535. -1: the best one, RoCE v2 with an IPv4 address "
              "if there is any.",
              "NCCL_IB_GID_INDEX"},
    ParamInfo{Param::kIbTrafficClass, "WHORL_IB_TC", "0",
              "Traffic class of RDMA packets, 0 to 255, by which switches of RoCE choose a queue "
              "(four times the DSCP).",
              "NCCL_IB_TC"},
    ParamInfo{Param::kIbServiceLevel, "WHORL_IB_SL", "0", "Service level of RDMA packets, 0 to 15.",
              "NCCL_IB_SL"},
    ParamInfo{Param::kIbTimeout, "WHORL_IB_TIMEOUT", "18",
              "Time after which RDMA packets without an answer are sent again, 1 to 31: 4.096 µs "
              "times two to this power, so 18 is 1 s.",
              "NCCL_IB_TIMEOUT"},
    ParamInfo{Param::kIbRetryCount, "WHORL_IB_RETRY_CNT", "6",
              "Number of times that an RDMA device sends a packet again before the connection has "
              "failed, 0 to 7. 7, which to devices means for ever, counts as 6.",
              "NCCL_IB_RETRY_CNT"},
    ParamInfo{Param::kIbPkey, "WHORL_IB_PKEY", "0",
              "Index of the partition key in the port's table, 0 to 65535.", "NCCL_IB_PKEY"},
    ParamInfo{
        Param::kIbRails, "WHORL_IB_RAILS", "2",
        "Largest number of RDMA ports that a rank uses, 1 to 4: those nearest to the rank share "
        "its messages, others are spares for when these fail. With 1 small operations are "
        "shorter: none waits until its messages have arrived."},
    ParamInfo{Param::kUcxLibrary, "WHORL_UCX_LIBRARY", "",
              "Library of UCX for the transport ucx, for instance /opt/ucx/lib/libucp.so.0. Empty: "
              "libucp.so.0 where the dynamic linker finds it."},
    ParamInfo{Param::kHeapBytes, "WHORL_HEAP_BYTES", "",
              "Largest total of whorlMemAlloc() and of registered memory in one process, in bytes: "
              "4 KiB to 64 TiB. Empty: the size of the memory."},
    ParamInfo{
        Param::kSegmentBytes, "WHORL_SEGMENT_BYTES", "2097152",
        "Operations on device memory that the host carries out, each alone in its call, are cut "
        "into segments of about this many bytes, so that copies and the operation overlap; ranks "
        "may differ. 0: they are not cut.",
        "WHORL_PIECE_BYTES"},
    ParamInfo{Param::kZeroCopy, "WHORL_ZERO_COPY", "1",
              "0: always copy through slots, even where a peer could read the source."},
    ParamInfo{Param::kDeviceIpc, "WHORL_DEVICE_IPC", "1",
              "0: processes of a host exchange device memory through the host."},
    ParamInfo{Param::kDeviceAlgo, "WHORL_DEVICE_ALGO", "",
              "How ranks of one host with device memory do collectives. fused: by one kernel "
              "of one rank, where all are on one device; schedule: by kernels that interpret "
              "schedules, on several devices that reach each other, and on one where all ranks "
              "are in one process, or each in one of its own and MPS shares the device; host: the "
              "host. Empty: fused on one device, schedule on several and where MPS has it but "
              "buffers cannot be shared; where neither can, the host."},
    ParamInfo{Param::kSimd, "WHORL_SIMD", "",
              "Instruction set of the reduction kernels: scalar, avx2, avx512, neon. Empty: the "
              "best one that the processor has."},
    ParamInfo{Param::kVerify, "WHORL_VERIFY", "",
              "1: prove every schedule before its first use, 0: do not. Empty: in debug builds."},
    ParamInfo{Param::kDims, "WHORL_DIMS", "",
              "Dimensions of the hierarchical algorithms, innermost first, for instance "
              "\"4:twoshot,2:ring\"; those of rank 0 count. They divide the ranks in the order of "
              "their places (docs/topology.md). Empty: by the places; for several hosts ranks of a "
              "host, then hosts."},
    ParamInfo{
        Param::kTopoFile, "WHORL_TOPO_FILE", "",
        "File that describes this host, in place of what is detected: hwloc's XML or NCCL's "
        "(docs/topology.md). Says where the ranks are, and the rate of the NIC that is nearest "
        "to each. Each host may have its own. Empty: NCCL_TOPO_FILE, or detection."},
    ParamInfo{
        Param::kSecretFile, "WHORL_SECRET_FILE", "",
        "File with the secret of a rendezvous at an address, the same for all ranks; mode 0600."},
    ParamInfo{
        Param::kInsecure, "WHORL_INSECURE", "0",
        "Who may join ranks that meet at an address (whorlCommInitAddress(), WHORL_ADDRESS) "
        "without a WHORL_SECRET_FILE. 0: processes of rank 0's user on its host, at a loopback "
        "address; any other address is an error. 1, on all ranks: every process that reaches "
        "the address, from any user and host."},
    ParamInfo{
        Param::kEncrypt, "WHORL_ENCRYPT", "0",
        "1, on all ranks and in the process that makes the unique id: everything that whorl sends "
        "over TCP is encrypted and authenticated (docs/security.md), and RDMA devices and UCX are "
        "not used."},
    ParamInfo{Param::kTrace, "WHORL_TRACE", "",
              "File for a trace of every operation and step, written when the communicator is "
              "destroyed; %r is the rank, %p the process, %j the communicator. Empty: no trace."},
    ParamInfo{Param::kTraceRecords, "WHORL_TRACE_RECORDS", "65536",
              "Steps that a trace keeps, the last ones, for each rank; 64 bytes each."},
    ParamInfo{
        Param::kProfilerPlugin, "WHORL_PROFILER_PLUGIN", "",
        "Shared library that is told of each operation's begin and end (whorl/profiler.h), or "
        "STATIC: the program itself. Empty: none."},
    ParamInfo{Param::kFlightFile, "WHORL_FLIGHT_FILE", "",
              "File for the last operations as JSON, written when a communicator fails; %r is the "
              "rank, %p the process, %j the communicator (docs/monitoring.md). Empty: no file."},
    ParamInfo{Param::kFlightRecords, "WHORL_FLIGHT_RECORDS", "100",
              "Operations that each communicator remembers at least, for that file and for "
              "whorl-stat, 1 to 65535; 64 bytes each."},
    ParamInfo{Param::kLog, "WHORL_LOG", "warn", "Messages on stderr: off, error, warn, info."},
};

const ParamInfo& info(Param param) noexcept { return kParams[static_cast<std::size_t>(param)]; }

/// Chooses the variable that is set: the old name only where the new one is not.
const char* name_in_use(Param param) noexcept {
  const ParamInfo& known = info(param);
  const bool old = known.old_name != nullptr && std::getenv(known.name) == nullptr &&
                   std::getenv(known.old_name) != nullptr;
  return old ? known.old_name : known.name;
}

bool counts_bytes(Param param) noexcept {
  return param == Param::kMemoryBudget || std::string_view(info(param).name).ends_with("_BYTES");
}

} // namespace

std::span<const ParamInfo> all_params() noexcept { return kParams; }

bool param_is_set(Param param) { return std::getenv(name_in_use(param)) != nullptr; }

std::string param_text(Param param) {
  const char* const value = std::getenv(name_in_use(param));
  return value != nullptr ? value : info(param).default_value;
}

Result<std::int64_t> param_int(Param param, std::int64_t low, std::int64_t high) {
  const std::string text = param_text(param);
  std::int64_t value = 0;
  const char* const all = text.data() + text.size();
  auto [end, error] = std::from_chars(text.data(), all, value);
  const bool bytes = counts_bytes(param);
  if (bytes && error == std::errc() && all - end == 1) {
    const std::size_t unit = std::string_view("KkMmGg").find(*end);
    if (unit != std::string_view::npos &&
        !__builtin_mul_overflow(value, std::int64_t{1024} << (unit / 2 * 10), &value)) {
      ++end;
    }
  }
  if (error != std::errc() || end != all || value < low || value > high) {
    return Status::error(
        Code::kInvalidUsage,
        fmt::format("{}=\"{}\" is not a whole number from {} to {}{}", name_in_use(param),
                    printable(text), low, high, bytes ? "; K, M or G may follow it" : ""));
  }
  return value;
}

Result<bool> param_bool(Param param) {
  const std::string text = param_text(param);
  if (text == "1" || text == "true" || text == "on") return true;
  if (text == "0" || text == "false" || text == "off") return false;
  return Status::error(Code::kInvalidUsage, fmt::format("{}=\"{}\" is neither 1 nor 0",
                                                        name_in_use(param), printable(text)));
}

Status read_param(Param param, bool& out) {
  const auto value = param_bool(param);
  if (value.ok()) out = *value;
  return value.status();
}

} // namespace whorl
