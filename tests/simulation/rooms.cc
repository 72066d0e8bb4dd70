// Sources of whorl that the simulation runs, compiled as they are with the compiler's calls at each
// access to memory; in the program with planted bugs, their copies.
#include "base/bytes.cc"
#include "base/membership.cc"
#include "base/system.cc"
#include "base/wait.cc"
#include "transports/fifo/endpoint.cc"
#include "transports/fifo/layout.cc"
#include "transports/fifo/ring.cc"
#include "transports/fifo/transport.cc"
