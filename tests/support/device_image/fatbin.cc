#include "tests/support/device_image/fatbin.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#if WHORL_CAN_DECOMPRESS
#include <lz4.h>
#include <zstd.h>
#endif

namespace whorl::test {
namespace {

constexpr std::uint32_t kMagic = 0xba55ed50;

struct FileHead {
  std::uint32_t magic;
  std::uint16_t version, head_bytes;
  std::uint64_t bytes; ///< size of all entries
};

/// Head of an entry; PTX and compressed code have more of it than uncompressed machine code.
struct EntryHead {
  std::uint16_t kind, version;
  std::uint32_t head_bytes;
  std::uint64_t bytes; ///< size of the code in the file, with padding
  std::uint32_t compressed_bytes, options_at;
  std::uint16_t minor, major;
  std::uint32_t architecture;
  std::uint32_t name_at, name_bytes;
  std::uint64_t flags, unused, plain_bytes;
};
enum Flags : std::uint64_t { kLz4 = 0x2000, kZstd = 0x8000 };

std::string decompress([[maybe_unused]] const std::byte* data,
                       [[maybe_unused]] const EntryHead& head) {
#if WHORL_CAN_DECOMPRESS
  std::string plain(head.plain_bytes, '\0');
  // Both functions return another number after an error.
  const std::size_t bytes =
      (head.flags & kZstd) != 0
          ? ZSTD_decompress(plain.data(), plain.size(), data, head.compressed_bytes)
          : static_cast<std::size_t>(LZ4_decompress_safe(
                reinterpret_cast<const char*>(data), plain.data(),
                static_cast<int>(head.compressed_bytes), static_cast<int>(plain.size())));
  if (bytes != plain.size()) {
    throw std::runtime_error("the compressed code of a fatbin is damaged");
  }
  return plain;
#else
  throw std::runtime_error("code of a fatbin is compressed, which this build cannot read");
#endif
}

} // namespace

bool can_decompress() { return WHORL_CAN_DECOMPRESS != 0; }

std::vector<DeviceCode> read_fatbin(const void* fatbin) {
  FileHead file;
  std::memcpy(&file, fatbin, sizeof file);
  if (file.magic != kMagic) throw std::runtime_error("not a fatbin: its magic number is missing");
  const auto* at = static_cast<const std::byte*>(fatbin) + file.head_bytes;
  const std::byte* const end = at + file.bytes;
  std::vector<DeviceCode> codes;
  while (at < end) {
    EntryHead head{};
    std::memcpy(&head, at, offsetof(EntryHead, unused));
    if (head.head_bytes >= sizeof head) std::memcpy(&head, at, sizeof head);
    const std::byte* const data = at + head.head_bytes;
    if (head.head_bytes == 0 || head.bytes > static_cast<std::uint64_t>(end - data)) {
      throw std::runtime_error("a fatbin ends within an entry");
    }
    DeviceCode code{static_cast<DeviceCode::Kind>(head.kind), head.architecture, {}};
    if ((head.flags & (kLz4 | kZstd)) != 0) {
      code.bytes = decompress(data, head);
    } else {
      code.bytes.assign(reinterpret_cast<const char*>(data), head.bytes);
    }
    if (code.kind == DeviceCode::Kind::kPtx) code.bytes.resize(std::strlen(code.bytes.c_str()));
    codes.push_back(std::move(code));
    at = data + head.bytes;
  }
  return codes;
}

std::string ptx_of(const void* fatbin, unsigned architecture) {
  for (DeviceCode& code : read_fatbin(fatbin)) {
    if (code.kind == DeviceCode::Kind::kPtx && code.architecture <= architecture) {
      return std::move(code.bytes);
    }
  }
  throw std::runtime_error("a fatbin has no PTX for this architecture");
}

} // namespace whorl::test
