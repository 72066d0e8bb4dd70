#pragma once

namespace whorl::simulation {

// The functions of the scenarios, see scenarios.cc.

void run_slots();
void run_ring();
void run_real_ring();
void run_zero_copy();
void run_revoke();
void run_death();
void run_leave();
void run_sleep();
void run_errors();
void run_stuck();
void run_mesh();
void run_node();
void run_rendezvous();
void run_mismatch_in_memory();
void run_mismatch_over_tcp();
void run_failure_in_memory();
void run_failure_over_tcp();
void run_outage_over_tcp();
void run_cut_over_tcp();
void run_shrink_in_memory();
void run_shrink_over_tcp();

} // namespace whorl::simulation
