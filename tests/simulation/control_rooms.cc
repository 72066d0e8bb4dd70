// Sources of whorl for the simulation of what ranks of several hosts tell each other, see rooms.cc.
#include "transports/control/links.cc"
#include "transports/control/links_failures.cc"
#include "transports/control/links_frames.cc"
#include "transports/control/ports.cc"
#include "transports/tcp/endpoint.cc"
#include "transports/tcp/transport.cc"
