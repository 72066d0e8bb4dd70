#pragma once

#include <vector>

#include "schedule/schedule.h"

namespace whorl {

/// Location of a part's buffer in the whole: its chunk x begins at `base` + x·`stride`.
struct Location {
  Buffer buffer = Buffer::kInput;
  int base = 0;
  int stride = 1;
};

/// Mapping of a schedule for some of the ranks into one for all.
struct Embedding {
  std::vector<int> ranks; ///< rank in the whole of each rank of the part
  Location input, output; ///< buffers; may be the same where the part allows its in-place form
  Location scratch{Buffer::kScratch, 0, 1};
  int scale = 1; ///< number of chunks of the whole for each of the part; they are contiguous
  bool complete = false; ///< whether final results of the part are final for the whole
};

/// Appends the steps of the only lane of `part` to `lane`. Leaves out copies of a chunk to itself,
/// and joins a step with the last one if it continues that. A message of several chunks needs a
/// stride equal to the scale.
void embed(const Schedule& part, const Embedding& embedding, Lane& lane);

/// Returns which chunk of the vector each scratch chunk of `part` holds, numbered across all
/// blocks. Follows the steps that connect scratch with input or output. Where only one of these
/// buffers has a block for each rank, the other one has this rank's block.
std::vector<int> scratch_labels(const Schedule& part);

/// Returns whether a message of several chunks lies in input or output.
bool has_long_messages(const Schedule& part);

} // namespace whorl
