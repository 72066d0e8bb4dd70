#pragma once

// Captures and graphs. What is queued in a stream that is being captured is not carried out, but
// recorded: in the order of its stream, and behind the events that the stream waits for. A replay
// has a thread for each stream of the capture. fake_cuda_user_objects() tells how many user objects
// there are whose destructors have not been called.

#include <cuda.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace fake_cuda {

class Event;
class Stream;

/// Makes what a launch carries out.
using Repeat = std::function<std::function<void()>()>;

class Graph {
 public:
  ~Graph(); ///< its user objects may go
  /// Appends to what stream `lane` does; 0 or more operations before it, by number.
  std::size_t add(const Stream* lane, Repeat repeat, std::size_t after = 0);
  std::size_t last(const Stream* lane) const; ///< its number, from 1; 0: none
  /// Whether everything comes before the last operation of `lane`.
  bool ends_with(const Stream* lane) const;
  /// Of a launch, in the order of calls; to be made when it is queued.
  std::vector<std::function<void()>> operations() const;
  void run(const std::vector<std::function<void()>>& operations) const;
  void retain(CUuserObject object, unsigned count) { objects_.push_back({object, count}); }

 private:
  struct Node {
    std::size_t lane;
    Repeat repeat; ///< may be empty
    std::vector<std::size_t> after;
  };
  struct Retained {
    CUuserObject object;
    unsigned count;
  };
  std::vector<const Stream*> lanes_;
  std::vector<std::size_t> last_; ///< of each lane
  std::vector<Node> nodes_;
  std::vector<Retained> objects_;
};

/// Streams that are captured together: the one that it began with, and those that have waited for
/// an event of one of them.
struct Capture {
  std::vector<Stream*> streams; ///< the first: with which it began; empty: it has ended
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::uint64_t id = 0;                    ///< never used again
  std::shared_ptr<Graph>* graph = nullptr; ///< what its handle is; null: it has ended
  bool spoilt = false;
};

// One thread at a time.
/// The id of a stream's capture; 0: none.
std::uint64_t capture_of(Stream& stream);
/// Whether the capture of a stream has been spoilt.
bool is_spoilt(Stream& stream);
/// Records an operation if the stream is captured.
bool record(Stream& stream, Repeat repeat);
/// The same for an event.
bool record_in_capture(const Stream& stream, Event& event);
/// A stream waits for an event, by which it may come into a capture. An error if that cannot be: it
/// is in another one, or in one to which the event does not belong.
CUresult join_capture(Stream& stream, const Event& event);
/// What a call on a stream says, if it would become part of the stream's capture, but cannot.
CUresult refused_in_capture(CUstream stream);
/// Whether a call on a stream is none that can be captured, but it is; the capture is spoilt then.
bool cannot_be_captured(Stream& stream);
/// Whether the default stream may not be used on the current device, because a blocking stream is
/// captured there; if it is used, that capture is spoilt.
bool default_stream_is_refused(bool used = true);

} // namespace fake_cuda

extern "C" {
/// As CUDA 11.3 has it, see gpu/driver.h.
CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** before, std::size_t* count);
}
