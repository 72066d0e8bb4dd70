// Sources of whorl for the simulation of connections, see rooms.cc. For threads there is
// threads.cc.
#include "base/log.cc"
#include "base/params.cc"
#include "net/acceptor.cc"
#include "net/address.cc"
#include "net/handshake.cc"
#include "net/key_exchange.cc"
#include "net/listener.cc"
#include "net/mesh.cc"
#include "net/openssl_use.cc"
#include "net/sealed_stream.cc"
#include "net/secret.cc"
#include "net/stream_socket.cc"
