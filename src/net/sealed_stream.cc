#include "net/sealed_stream.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/system.h"
#include "net/openssl_use.h"

namespace whorl::sealed {
namespace {

constexpr std::size_t kNonceBytes = 12;
constexpr std::size_t kMaxRecord = kHeaderBytes + kMaxPayload + kTagBytes;
/// Room for a whole record and for what may be read at once behind it.
constexpr std::size_t kBufferBytes = kMaxRecord + std::max(kReadAhead, kHeaderBytes);

const unsigned char* octets(const std::byte* bytes) noexcept {
  return reinterpret_cast<const unsigned char*>(bytes);
}
unsigned char* octets(std::byte* bytes) noexcept { return reinterpret_cast<unsigned char*>(bytes); }

std::size_t total_of(std::span<const iovec> parts) noexcept {
  std::size_t total = 0;
  for (const iovec& part : parts) total += part.iov_len;
  return total;
}

/// Calls `take(bytes)` for what each of the parts has behind their first `skip` bytes, until that
/// returns false.
template <class Take>
void for_each_rest(std::span<const iovec> parts, std::size_t skip, Take&& take) {
  for (const iovec& part : parts) {
    const std::size_t skipped = std::min(skip, part.iov_len);
    skip -= skipped;
    if (skipped == part.iov_len) continue;
    const auto* const begin = static_cast<const std::byte*>(part.iov_base);
    if (!take(std::span(begin, part.iov_len).subspan(skipped))) return;
  }
}

/// Returns how many bytes behind the first `skip` ones the next record has.
std::size_t payload_of_next(std::span<const iovec> parts, std::size_t skip) noexcept {
  std::size_t payload = 0;
  for_each_rest(parts, skip, [&](std::span<const std::byte> rest) {
    if (payload > 0 && rest.size() >= kOwnRecord) return false;
    payload = std::min(payload + rest.size(), kMaxPayload);
    return payload < kMaxPayload;
  });
  return payload;
}

} // namespace

// Between its making and its end, a cipher needs nothing of OpenSSL but its own memory and code:
// so it can be used without OpensslUse, also while the process exits.

RecordCipher::RecordCipher(const StreamKey& key, bool encrypts) noexcept {
  const OpensslUse openssl;
  if (!openssl) return;
  context_ = EVP_CIPHER_CTX_new();
  if (context_ != nullptr &&
      EVP_CipherInit_ex(context_, EVP_aes_256_gcm(), nullptr, octets(key.data()), nullptr,
                        encrypts ? 1 : 0) != 1) {
    EVP_CIPHER_CTX_free(context_);
    context_ = nullptr;
  }
}

RecordCipher::~RecordCipher() {
  const OpensslUse openssl;
  if (openssl) EVP_CIPHER_CTX_free(context_); // otherwise the end of the process frees it
}

bool RecordCipher::begin(Part part, std::uint64_t number) noexcept {
  if (number == UINT64_MAX) return false;
  std::array<std::byte, kNonceBytes> nonce{};
  nonce[0] = static_cast<std::byte>(part);
  std::memcpy(nonce.data() + nonce.size() - sizeof number, &number, sizeof number);
  return EVP_CipherInit_ex(context_, nullptr, nullptr, nullptr, octets(nonce.data()), -1) == 1;
}

bool RecordCipher::add(std::span<const std::byte> in, std::byte* out) noexcept {
  int size = 0;
  return EVP_CipherUpdate(context_, octets(out), &size, octets(in.data()),
                          static_cast<int>(in.size())) == 1;
}

bool RecordCipher::make_tag(std::span<std::byte, kTagBytes> tag) noexcept {
  std::array<std::byte, kTagBytes> none{};
  int size = 0;
  return EVP_CipherFinal_ex(context_, octets(none.data()), &size) == 1 &&
         EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_AEAD_GET_TAG, kTagBytes, tag.data()) == 1;
}

bool RecordCipher::check_tag(std::span<const std::byte, kTagBytes> tag) noexcept {
  std::array<std::byte, kTagBytes> expected{}, none{};
  std::copy(tag.begin(), tag.end(), expected.begin());
  int size = 0;
  return EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_AEAD_SET_TAG, kTagBytes, expected.data()) == 1 &&
         EVP_CipherFinal_ex(context_, octets(none.data()), &size) == 1;
}

// --- sending ---

Sealer::Sealer(const StreamKey& key, std::uint64_t first_number)
    : cipher_(key, true),
      number_(first_number),
      record_(std::make_unique_for_overwrite<std::byte[]>(kMaxRecord)) {}

ssize_t Sealer::send(int fd, std::span<const iovec> parts) noexcept {
  const std::size_t total = total_of(parts);
  std::size_t done = 0;
  const auto result = [&](ssize_t otherwise) {
    return done > 0 ? static_cast<ssize_t>(done) : otherwise;
  };
  while (done < total) {
    if (!sending() && number_ == UINT64_MAX) return result(-EOVERFLOW);
    if (!sending() && !seal(parts, done)) return result(-EIO);
    if (payload_ > total - done) return -EINVAL; // the caller has taken back what it had to send
    const ssize_t sent = sys().send(fd, {record_.get() + sent_, size_ - sent_});
    if (sent < 0) return result(sent);
    sent_ += static_cast<std::size_t>(sent);
    if (sent_ < size_) return result(-EAGAIN);
    done += payload_;
    payload_ = 0;
  }
  return static_cast<ssize_t>(done);
}

/// Encrypts the next record of the parts, behind their first `skip` bytes.
bool Sealer::seal(std::span<const iovec> parts, std::size_t skip) noexcept {
  const std::size_t payload = payload_of_next(parts, skip);
  const auto length = static_cast<std::uint32_t>(payload);
  const auto tag_at = [](std::byte* at) { return std::span<std::byte, kTagBytes>(at, kTagBytes); };
  std::byte* out = record_.get();
  if (!cipher_.begin(Part::kHeader, number_) ||
      !cipher_.add(std::as_bytes(std::span(&length, 1)), out) ||
      !cipher_.make_tag(tag_at(out + kLengthBytes))) {
    return false;
  }
  out += kHeaderBytes;
  if (!cipher_.begin(Part::kBody, number_)) return false;
  std::size_t left = payload;
  bool added = true;
  for_each_rest(parts, skip, [&](std::span<const std::byte> rest) {
    const auto piece = rest.first(std::min(rest.size(), left));
    added = cipher_.add(piece, out);
    out += piece.size();
    left -= piece.size();
    return added && left > 0;
  });
  if (!added || !cipher_.make_tag(tag_at(out))) return false;
  ++number_;
  payload_ = payload;
  size_ = kHeaderBytes + payload + kTagBytes;
  sent_ = 0;
  return true;
}

// --- receiving ---

/// Place in the parts into which a call of receive() writes.
class Opener::Cursor {
 public:
  explicit Cursor(std::span<const iovec> parts) noexcept : parts_(parts) { skip_full(); }
  std::size_t written() const noexcept { return written_; }
  bool full() const noexcept { return parts_.empty(); }
  /// Returns the rest of the part under way.
  std::span<std::byte> rest() const noexcept {
    return {static_cast<std::byte*>(parts_.front().iov_base) + at_, parts_.front().iov_len - at_};
  }
  /// Counts bytes that were written to the front of rest().
  void advance(std::size_t bytes) noexcept {
    at_ += bytes;
    written_ += bytes;
    skip_full();
  }

 private:
  void skip_full() noexcept {
    while (!parts_.empty() && at_ == parts_.front().iov_len) {
      parts_ = parts_.subspan(1);
      at_ = 0;
    }
  }

  std::span<const iovec> parts_;
  std::size_t at_ = 0;
  std::size_t written_ = 0;
};

Opener::Opener(const StreamKey& key, std::uint64_t first_number)
    : cipher_(key, false),
      number_(first_number),
      buffer_(std::make_unique_for_overwrite<std::byte[]>(kBufferBytes)) {}

ssize_t Opener::receive(int fd, std::span<const iovec> parts) noexcept {
  Cursor out(parts);
  bool drained = false; // whether the socket had less than was asked for
  const auto result = [&](ssize_t otherwise) {
    return out.written() > 0 ? static_cast<ssize_t>(out.written()) : otherwise;
  };
  while (!out.full()) {
    if (!plain_.empty()) {
      const auto part = plain_.first(std::min(plain_.size(), out.rest().size()));
      std::memcpy(out.rest().data(), part.data(), part.size());
      plain_ = plain_.subspan(part.size());
      out.advance(part.size());
      continue;
    }
    if (!broken_ && buffered() < needed()) {
      if (drained && out.written() > 0) break;
      const ssize_t got = fill(fd, &drained);
      if (got <= 0) return result(got);
      continue;
    }
    broken_ = broken_ || !(payload_ == 0 ? open_header() : open_body(out));
    if (broken_) return result(-EBADMSG);
  }
  return static_cast<ssize_t>(out.written());
}

/// Reads from the socket, behind the bytes that are buffered: the rest of the part that comes next
/// and, since that never makes a reader miss anything, the header behind a body.
ssize_t Opener::fill(int fd, bool* drained) noexcept {
  const std::size_t missing = needed() - buffered();
  const std::size_t next = payload_ > 0 ? kHeaderBytes : 0;
  const std::size_t want = missing + std::max(next, ahead_);
  if (want > kBufferBytes - end_) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, buffered());
    end_ -= begin_;
    begin_ = 0;
  }
  const ssize_t got = sys().recv(fd, {buffer_.get() + end_, want});
  if (got > 0) end_ += static_cast<std::size_t>(got);
  *drained = got < static_cast<ssize_t>(want);
  return got;
}

/// Decrypts the header at the front of the buffer. Returns false if the header is not authentic, or
/// has a length that no Sealer writes.
bool Opener::open_header() noexcept {
  const std::byte* const header = buffer_.get() + begin_;
  std::uint32_t length = 0;
  const std::span<const std::byte, kTagBytes> tag(header + kLengthBytes, kTagBytes);
  if (!cipher_.begin(Part::kHeader, number_) ||
      !cipher_.add({header, kLengthBytes}, std::as_writable_bytes(std::span(&length, 1)).data()) ||
      !cipher_.check_tag(tag)) {
    return false;
  }
  begin_ += kHeaderBytes;
  payload_ = length;
  return length > 0 && length <= kMaxPayload;
}

/// Decrypts the body at the front of the buffer: to the place where its bytes belong, if all of
/// them do, otherwise where they are. Returns false if the body is not authentic; nothing of it
/// stays then.
bool Opener::open_body(Cursor& out) noexcept {
  std::byte* const body = buffer_.get() + begin_;
  const bool fits = out.rest().size() >= payload_;
  std::byte* const target = fits ? out.rest().data() : body;
  const std::span<const std::byte, kTagBytes> tag(body + payload_, kTagBytes);
  if (!cipher_.begin(Part::kBody, number_) || !cipher_.add({body, payload_}, target) ||
      !cipher_.check_tag(tag)) {
    std::memset(target, 0, payload_);
    return false;
  }
  ++number_;
  begin_ += payload_ + kTagBytes;
  if (fits) {
    out.advance(payload_);
  } else {
    plain_ = {target, payload_};
  }
  payload_ = 0;
  if (begin_ == end_ && fits) begin_ = end_ = 0;
  return true;
}

} // namespace whorl::sealed
