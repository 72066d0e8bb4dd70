#include "base/bytes.h"

namespace whorl {

void ByteWriter::put_bytes(std::span<const std::byte> bytes) {
  out_.insert(out_.end(), bytes.begin(), bytes.end());
}

} // namespace whorl
