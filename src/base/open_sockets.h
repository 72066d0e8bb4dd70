#pragma once

namespace whorl {

/// Notes that this process has opened a socket. System calls this for each socket that it makes,
/// accepts, receives or duplicates. Numbers of other descriptors, and numbers below zero, do no
/// harm.
void note_open_socket(int fd) noexcept;
/// Forgets a descriptor that this process is about to close. System calls this for every one.
void forget_socket(int fd) noexcept;

/// Makes each child that this process forks from now on let go of the noted sockets, which only
/// threads of this process use. A child that kept them would keep their connections open beyond the
/// death of this process, and the peers would not learn of that death. The numbers stay taken, by
/// sockets without a peer, because the child may destroy objects that hold the numbers.
void keep_sockets_from_children() noexcept;

} // namespace whorl
