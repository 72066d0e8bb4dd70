// Sources of whorl for the simulation of the rendezvous, see rooms.cc.
#include "bootstrap/host.cc"
#include "bootstrap/messages.cc"
#include "bootstrap/root.cc"
#include "bootstrap/root_connections.cc"
#include "bootstrap/root_rounds.cc"
