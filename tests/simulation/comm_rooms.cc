// Sources of whorl for the simulation of communicators, see rooms.cc. What they call beyond these
// is linked from the libraries.
#include "comm/communicator.cc"
#include "comm/communicator_waits.cc"
#include "engine/engine.cc"
#include "engine/transfers.cc"
#include "engine/waits.cc"
