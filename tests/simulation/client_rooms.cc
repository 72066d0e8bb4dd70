// Sources of whorl for the simulation of ranks at a rendezvous, see rooms.cc.
#include "bootstrap/root_client.cc"
#include "comm/shrink.cc"
