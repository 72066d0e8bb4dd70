#include "simulation/scenario.h"
#include "simulation/scenario_list.h"

namespace whorl::simulation {
namespace {

constexpr Scenario kScenarios[] = {
    {"slots", "messages of all kinds of sizes through few slots, both ways at once", 30, run_slots},
    {"ring", "payloads in a small ring, through laps that end early and late", 30, run_ring},
    {"real_ring", "payloads in a ring of the shape that ranks with many slots have", 1,
     run_real_ring},
    {"zero_copy", "sources read and buffers written in place, through few slots", 30,
     run_zero_copy},
    {"revoke", "a rank fails, takes its memory back and writes to all of it", 30, run_revoke},
    {"death", "a rank dies at any access; the others finish, or name it", 30, run_death},
    {"leave", "a rank leaves while another one waits for its messages", 10, run_leave},
    {"sleep", "a rank sleeps between messages that come seldom, and is woken", 10, run_sleep},
    {"errors", "several ranks fail at once, and others read why", 10, run_errors},
    {"stuck", "a rank tells in which operation it is stuck, while another one reads that", 5,
     run_stuck},
    {"mesh", "ranks connect over a network that cuts connections, among strangers", 10, run_mesh},
    {"node", "ranks of one host meet and share memory; one dies, is refused something or gives up",
     14, run_node},
    {"rendezvous", "ranks meet at a root; one of them dies, does not come or wants something else",
     14, run_rendezvous},
    {"mismatch", "programs of ranks of one host differ, or do not, and ranks compare their waits",
     4, run_mismatch_in_memory},
    {"mismatch_tcp", "the same between hosts", 4, run_mismatch_over_tcp},
    {"failure", "communicators of ranks of one host are aborted, ranks die or leave", 10,
     run_failure_in_memory},
    {"failure_tcp", "the same between hosts", 8, run_failure_over_tcp},
    {"outage_tcp", "links between hosts fail for less than 2 s, ranks are stopped; nobody notices",
     4, run_outage_over_tcp},
    {"cut_tcp", "links and connections between hosts fail for good; each rank names one cut off", 4,
     run_cut_over_tcp},
    {"shrink", "the ranks of a host that remain after deaths agree on who remains", 6,
     run_shrink_in_memory},
    {"shrink_tcp", "the same between hosts", 4, run_shrink_over_tcp},
};

} // namespace

std::span<const Scenario> scenarios() noexcept { return kScenarios; }

} // namespace whorl::simulation
