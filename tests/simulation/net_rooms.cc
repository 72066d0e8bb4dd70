// Sources of whorl for the simulation of connections, see rooms.cc. For threads there is
// threads.cc.
#include "base/log.cc"
#include "base/params.cc"
#include "net/acceptor.cc"
#include "net/address.cc"
#include "net/handshake.cc"
#include "net/listener.cc"
#include "net/mesh.cc"
#include "net/secret.cc"
