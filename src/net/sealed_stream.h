#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "net/key_exchange.h"

struct evp_cipher_ctx_st;

namespace whorl {

/// Encrypted stream: what one side sends as records that nobody can read, change, repeat, leave out
/// or put into another order without being noticed.
///
///     ┌─────────────────────┬────────────────────────────┐
///     │ length 4  │ tag 16  │ `length` bytes  │  tag 16  │
///     └───────── header ────┴────────── body ────────────┘
///
/// Each part is encrypted by AES-256-GCM; its nonce is the part and the number of the record.
///
/// The header has a tag of its own, so that a reader never waits for more bytes than the peer has
/// sent: an enlarged length is found out at once, where a tag for both would have to be awaited.
/// The end of the stream is not authenticated: who reads must know by the contents whether more
/// was to come.
namespace sealed {

inline constexpr std::size_t kTagBytes = 16;
inline constexpr std::size_t kLengthBytes = 4;
inline constexpr std::size_t kHeaderBytes = kLengthBytes + kTagBytes;
/// Largest number of encrypted bytes of a record. Larger: fewer system calls. Smaller: the peer
/// begins to decrypt sooner, and a record stays in the nearest cache.
inline constexpr std::size_t kMaxPayload = 65536;
/// Size from which a part of what is sent begins a record of its own, so that a peer which knows
/// where that part belongs can decrypt it to there.
inline constexpr std::size_t kOwnRecord = 16384;
/// Bytes that may be read at once beyond the record under way, where that is allowed.
inline constexpr std::size_t kReadAhead = 4096;

/// Part of a record, which has a nonce and a tag of its own.
enum class Part : std::uint8_t { kHeader, kBody };

/// AES-256-GCM with one key in one direction. Allocates memory and enters OpenSSL's locks only when
/// it is made and destroyed.
class RecordCipher {
 public:
  RecordCipher(const StreamKey& key, bool encrypts) noexcept;
  ~RecordCipher();
  RecordCipher(const RecordCipher&) = delete;
  RecordCipher& operator=(const RecordCipher&) = delete;

  /// Returns whether the cipher can be used: OpenSSL has memory, and the process does not exit.
  bool good() const noexcept { return context_ != nullptr; }
  /// Begins a part of the record of a number. Fails for the last number that there is.
  bool begin(Part part, std::uint64_t number) noexcept;
  /// Encrypts or decrypts the next bytes of the part to `out`, which is `in` or does not overlap.
  bool add(std::span<const std::byte> in, std::byte* out) noexcept;
  bool make_tag(std::span<std::byte, kTagBytes> tag) noexcept;
  bool check_tag(std::span<const std::byte, kTagBytes> tag) noexcept;

 private:
  evp_cipher_ctx_st* context_ = nullptr;
};

/// Sending side of an encrypted stream. Used by one thread at a time.
class Sealer {
 public:
  explicit Sealer(const StreamKey& key, std::uint64_t first_number = 0);

  bool good() const noexcept { return cipher_.good(); }
  /// Sends as many bytes of the parts as the socket takes whole records of. Returns their number,
  /// −EAGAIN for none, −EOVERFLOW once there is no number for another record, −EIO if OpenSSL
  /// fails, or −errno. Bytes that were not sent must be the first ones of the next call, unchanged:
  /// they may have been encrypted.
  ::ssize_t send(int fd, std::span<const iovec> parts) noexcept;
  /// Returns whether a part of a record has been sent, whose bytes send() has not counted yet.
  bool sending() const noexcept { return payload_ > 0; }

 private:
  bool seal(std::span<const iovec> parts, std::size_t skip) noexcept;

  RecordCipher cipher_;
  std::uint64_t number_;
  std::unique_ptr<std::byte[]> record_;
  std::size_t payload_ = 0; ///< bytes that the record under way encrypts; 0: there is none
  std::size_t size_ = 0;    ///< size of that record
  std::size_t sent_ = 0;    ///< bytes of that record which the socket has taken
};

/// Receiving side of an encrypted stream. Used by one thread at a time.
class Opener {
 public:
  explicit Opener(const StreamKey& key, std::uint64_t first_number = 0);

  bool good() const noexcept { return cipher_.good(); }
  /// Allows receive() to take whole records out of the socket before they are asked for, which
  /// saves system calls. Only for readers that read until −EAGAIN before they wait for the socket.
  void allow_read_ahead() noexcept { ahead_ = kReadAhead; }
  /// Receives bytes into the parts, each of which has been authenticated. Returns their number, 0
  /// at the end of the stream, −EAGAIN if no whole record is there, −EBADMSG, from then on, if the
  /// record is not the one that the peer has sent, or −errno.
  ::ssize_t receive(int fd, std::span<const iovec> parts) noexcept;

 private:
  class Cursor;

  /// Returns the bytes of the part of a record that comes next.
  std::size_t needed() const noexcept {
    return payload_ == 0 ? kHeaderBytes : payload_ + kTagBytes;
  }
  ::ssize_t fill(int fd, bool* drained) noexcept;
  bool open_header() noexcept;
  bool open_body(Cursor& out) noexcept;
  std::size_t buffered() const noexcept { return end_ - begin_; }

  RecordCipher cipher_;
  std::uint64_t number_;
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t begin_ = 0, end_ = 0;    ///< bytes that have been received and not decrypted
  std::size_t payload_ = 0;            ///< length of the body that comes next; 0: a header does
  std::span<const std::byte> plain_{}; ///< bytes in buffer_ that have been decrypted, not taken
  std::size_t ahead_ = 0;
  bool broken_ = false;
};

} // namespace sealed

/// Both directions of an encrypted stream, which two threads may use at the same time.
struct SealedStream {
  sealed::Sealer out;
  sealed::Opener in;

  explicit SealedStream(const StreamKeys& keys) : out(keys.send), in(keys.receive) {}
  bool good() const noexcept { return out.good() && in.good(); }
  /// Largest memory that one connection occupies.
  static constexpr std::size_t kMemoryBytes =
      2 * (sealed::kMaxPayload + sealed::kHeaderBytes + sealed::kTagBytes) + sealed::kReadAhead;
};

} // namespace whorl
