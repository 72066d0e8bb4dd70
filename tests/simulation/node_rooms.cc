// Sources of whorl for the simulation of the ranks of a host that meet, see rooms.cc.
#include "base/shm_segment.cc"
#include "node/fd_channel.cc"
#include "node/fd_message.cc"
#include "node/host_links.cc"
#include "node/node.cc"
#include "node/offer.cc"
#include "node/segment.cc"
