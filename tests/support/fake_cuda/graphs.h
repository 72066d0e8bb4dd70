#pragma once

// Captures and graphs. An operation queued in a stream that is being captured is not carried out,
// but recorded: in the order of its stream, and after the events that the stream waits for. A
// replay has a thread for each stream of the capture. fake_cuda_user_objects() returns the number
// of user objects whose destructors have not been called.

#include <cuda.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace fake_cuda {

class Event;
class Stream;

/// Function that makes the operation of one launch.
using Repeat = std::function<std::function<void()>()>;

class Graph {
 public:
  ~Graph(); ///< drops the references to its user objects
  /// Appends an operation to `lane`, which also follows node `after`, if that is not 0.
  /// `looks_back` is true if the operation depends on what was queued before the launch. Returns
  /// its number.
  std::size_t add(const Stream* lane, Repeat repeat, std::size_t after = 0,
                  bool looks_back = false);
  /// Appends a recording of an event that follows the nodes `after`, and that no stream follows.
  /// Returns its number.
  std::size_t add_apart(const Event* event, const std::vector<std::size_t>& after, Repeat repeat);
  /// Returns the number of the last operation of `lane`, from 1; 0: none.
  std::size_t last(const Stream* lane) const;
  /// Returns whether all operations precede the last operation of `lane`.
  bool ends_with(const Stream* lane) const;
  /// Returns the operations of a launch, in the order of the calls; to be called when it is queued.
  /// Makes operations that look back first, so that they do not see what this launch records.
  std::vector<std::function<void()>> operations() const;
  void run(const std::vector<std::function<void()>>& operations) const;
  void retain(CUuserObject object, unsigned count) { objects_.push_back({object, count}); }

 private:
  struct Node {
    std::size_t lane;
    Repeat repeat; ///< function to repeat the operation; may be empty
    bool looks_back = false;
    std::vector<std::size_t> after;
  };
  struct Retained {
    CUuserObject object;
    unsigned count;
  };
  std::vector<const void*> lanes_; ///< streams, and events that are recorded apart from them
  std::vector<std::size_t> last_;  ///< index: lane
  std::vector<Node> nodes_;
  std::vector<Retained> objects_;
};

/// Streams that are captured together: the first one, and those that have waited for an event of
/// one of them.
struct Capture {
  std::vector<Stream*> streams; ///< streams, of which the first began the capture; empty: ended
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::uint64_t id = 0;                    ///< id that is never reused
  std::shared_ptr<Graph>* graph = nullptr; ///< the graph's handle; nullptr: the capture has ended
  CUgraphNode before = nullptr;            ///< number of a node, returned by a query
  bool invalidated = false;
};

// The functions below take the mutex of the captures.
/// Returns the id of a stream's capture; 0: none.
std::uint64_t capture_of(Stream& stream);
/// Returns whether the capture of a stream is invalid.
bool is_invalidated(Stream& stream);
/// Records an operation if the stream is captured, and returns whether it is. `looks_back`: see
/// Graph::add().
bool record(Stream& stream, Repeat repeat, bool looks_back = false);
/// Records an event if the stream is captured, and returns whether it is.
bool record_in_capture(const Stream& stream, Event& event);
/// Makes a stream wait for an event, through which the stream may join a capture. Returns an error
/// if the stream is in another capture, or the event does not belong to the stream's capture.
CUresult join_capture(Stream& stream, const Event& event);
/// Returns the error of a call on a stream that would become part of the stream's capture, but
/// cannot.
CUresult refused_in_capture(CUstream stream);
/// Returns whether a call that cannot be captured is made on a captured stream; the capture is then
/// invalid.
bool cannot_be_captured(Stream& stream);
/// Returns whether streams are captured in global mode; those captures become invalid.
bool invalidate_global_captures();
/// Returns whether the default stream must not be used on the current device, because a blocking
/// stream is captured there; if `used`, that capture becomes invalid.
bool default_stream_is_refused(bool used = true);

} // namespace fake_cuda

extern "C" {
/// Gets the state of a capture, with the parameters of CUDA 11.3, see gpu/driver.h.
CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** before, std::size_t* count);
}
