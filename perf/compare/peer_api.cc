#include "perf/compare/peer_api.h"

namespace peer {

std::string& last_error() {
  static auto* text = new std::string;
  return *text;
}

whorlResult_t refuse(const std::string& sentence) {
  last_error() = sentence;
  return whorlInvalidUsage;
}

std::size_t size_of(whorlDataType_t type) {
  switch (type) {
    case whorlInt8:
    case whorlUint8:
    case whorlFloat8e4m3:
    case whorlFloat8e5m2:
      return 1;
    case whorlFloat16:
    case whorlBfloat16:
      return 2;
    case whorlInt64:
    case whorlUint64:
    case whorlFloat64:
      return 8;
    default:
      return 4;
  }
}

} // namespace peer

using peer::refuse;

const char* whorlGetLastError(whorlComm_t) { return peer::last_error().c_str(); }
const char* whorlGetErrorString(whorlResult_t) { return "the library under comparison failed"; }

whorlResult_t whorlCommDescribe(const whorlComm_t, char* text, size_t) {
  *text = '\0'; // nothing is known
  return whorlSuccess;
}

whorlResult_t whorlCommGetTransport(const whorlComm_t, int, const char** name) {
  *name = ""; // nothing is known
  return whorlSuccess;
}

whorlResult_t whorlCommMemStats(whorlComm_t, whorlCommMemStat_t, uint64_t* value) {
  *value = 0; // nothing is known
  return whorlSuccess;
}

// Functions that need the libraries under comparison to have a heap of their own, which they lack:
// plain memory only.
whorlResult_t whorlMemAlloc(void**, size_t) {
  return refuse("only --alloc plain is possible here");
}
whorlResult_t whorlMemFree(void*) { return whorlSuccess; }
whorlResult_t whorlCommRegister(const whorlComm_t, void*, size_t, void**) {
  return refuse("only --alloc plain is possible here");
}
whorlResult_t whorlCommDeregister(const whorlComm_t, void*) { return whorlSuccess; }

whorlResult_t whorlGetUniqueId(whorlUniqueId*) {
  return refuse("start this program by the launcher of its library, which makes the ranks");
}
whorlResult_t whorlCommInitRank(whorlComm_t*, int, whorlUniqueId, int) {
  return refuse("only one rank for each process is possible here");
}
whorlResult_t whorlGroupStart(void) { return refuse("groups of calls are not possible here"); }
whorlResult_t whorlGroupEnd(void) { return whorlSuccess; }

whorlResult_t whorlStreamCreate(whorlStream_t*) { return refuse("--stream is not possible here"); }
whorlResult_t whorlStreamSynchronize(whorlStream_t) { return whorlSuccess; }
whorlResult_t whorlStreamDestroy(whorlStream_t) { return whorlSuccess; }

whorlResult_t whorlRedOpCreatePreMulSum(whorlRedOp_t*, void*, whorlDataType_t,
                                        whorlScalarResidence_t, whorlComm_t) {
  return refuse("-o mulsum is not possible here");
}
whorlResult_t whorlRedOpDestroy(whorlRedOp_t, whorlComm_t) { return whorlSuccess; }
