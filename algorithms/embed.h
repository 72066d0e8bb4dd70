#pragma once

#include <vector>

#include "schedule/schedule.h"

namespace whorl {

/// Where a buffer of a part lies in the whole: its chunk x begins at `base` + x·`stride`.
struct Place {
  Buffer buffer = Buffer::kInput;
  int base = 0;
  int stride = 1;
};

/// How a schedule for some of the ranks becomes part of one for all.
struct Embedding {
  std::vector<int> ranks; ///< of each rank of the part; ascending
  Place input, output;    ///< may be the same where the part allows its in-place form
  Place scratch{Buffer::kScratch, 0, 1};
  int scale = 1;         ///< chunks of the whole for each of the part; they are contiguous
  bool complete = false; ///< what is final for the part is final for the whole
};

/// Appends the steps of the only lane of `part` to `lane`. Copies of a chunk to itself are left
/// out, and steps are joined with the last one where they continue it. A message of several chunks
/// needs a stride equal to the scale.
void embed(const Schedule& part, const Embedding& embedding, Lane& lane);

/// Which chunk of the vector each scratch chunk of `part` holds, counted through all blocks. Found
/// by following the steps that connect scratch with input or output. Where only one of those has a
/// block for each rank, the other is this rank's block.
std::vector<int> scratch_labels(const Schedule& part);

/// Whether a message of several chunks lies in input or output.
bool has_long_messages(const Schedule& part);

} // namespace whorl
