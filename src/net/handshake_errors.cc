// The sentences of handshakes that have failed.
#include <fmt/core.h>

#include <cerrno>
#include <string>

#include "net/address.h"
#include "net/handshake.h"

namespace whorl {

/// Names both sides and their settings.
std::string Handshake::text_of_disagreement() const {
  const bool connecting_encrypts = connects_ == encrypts_;
  return fmt::format(
      "WHORL_ENCRYPT is {} at rank {} and {} at {}: set it alike for all ranks, and for the "
      "process that makes the unique id",
      connecting_encrypts ? 1 : 0, name_.from, connecting_encrypts ? 0 : 1,
      name_.role == SocketRole::kBootstrap ? "the root of the rendezvous"
                                           : fmt::format("rank {}", name_.to));
}

bool Handshake::hung_up() const noexcept {
  return failure_ == HandshakeFailure::kClosed &&
         (error_ == 0 || error_ == -ECONNRESET || error_ == -EPIPE);
}

Status Handshake::status() const {
  const char* const by = told_by_peer_ ? " (says the other side)" : "";
  switch (failure_) {
    case HandshakeFailure::kNone:
      return {};
    case HandshakeFailure::kProtocol:
      return Status::error(Code::kRemoteError,
                           fmt::format("what answers does not speak whorl's protocol{}: another "
                                       "program uses this port",
                                       by));
    case HandshakeFailure::kVersion:
      return Status::error(Code::kRemoteError,
                           fmt::format("wire version {} meets {}{}: all ranks must use the same "
                                       "release of whorl",
                                       kWireVersion, peer_version_, by));
    case HandshakeFailure::kJob:
      return Status::error(Code::kRemoteError,
                           fmt::format("wrong job{}: the two sides belong to different "
                                       "communicators, one of them perhaps to an earlier run",
                                       by));
    case HandshakeFailure::kName:
      return Status::error(Code::kRemoteError,
                           fmt::format("wrong rank, role or channel{}: another process of this job "
                                       "listens there, or the connection exists already",
                                       by));
    case HandshakeFailure::kSecret:
      return Status::error(Code::kRemoteError,
                           fmt::format("wrong secret{}: the two sides have different secrets; all "
                                       "ranks need the same unique id or WHORL_SECRET_FILE",
                                       by));
    case HandshakeFailure::kClosed:
      return Status::error(Code::kRemoteError,
                           error_ == 0 ? std::string("closed by the other side in the handshake")
                                       : errno_text(error_));
    case HandshakeFailure::kSlow:
      return Status::error(Code::kRemoteError, "the handshake was not finished within 2 s");
    case HandshakeFailure::kUser:
      return Status::error(
          Code::kRemoteError,
          fmt::format("wrong user{}: without a secret only processes of one user meet; set "
                      "WHORL_SECRET_FILE to a file of mode 0600 with the same contents for all "
                      "ranks, or WHORL_INSECURE=1 for all of them to let every user join",
                      by));
    case HandshakeFailure::kEncryption:
      return Status::error(Code::kInvalidUsage, text_of_disagreement());
  }
  return {};
}

} // namespace whorl
