#pragma once

#include <infiniband/verbs.h>

#include <string>

namespace whorl {

// clang-format off
#define WHORL_VERBS_FUNCTIONS(function)                                                     \
  function(fork_init, ibv_fork_init)                                                        \
  function(get_device_list, ibv_get_device_list)                                            \
  function(free_device_list, ibv_free_device_list)                                          \
  function(get_device_name, ibv_get_device_name)                                            \
  function(open_device, ibv_open_device)        function(close_device, ibv_close_device)    \
  function(query_device, ibv_query_device)      function(query_port, ibv_query_port)        \
  function(query_gid_table, _ibv_query_gid_table)                                           \
  function(alloc_pd, ibv_alloc_pd)              function(dealloc_pd, ibv_dealloc_pd)        \
  function(reg_mr, ibv_reg_mr)                  function(dereg_mr, ibv_dereg_mr)            \
  function(create_cq, ibv_create_cq)            function(destroy_cq, ibv_destroy_cq)        \
  function(create_comp_channel, ibv_create_comp_channel)                                    \
  function(destroy_comp_channel, ibv_destroy_comp_channel)                                  \
  function(get_cq_event, ibv_get_cq_event)      function(ack_cq_events, ibv_ack_cq_events)  \
  function(create_qp, ibv_create_qp)            function(modify_qp, ibv_modify_qp)          \
  function(destroy_qp, ibv_destroy_qp)
// clang-format on

/// Functions of libibverbs, so that whorl runs where that library is absent, and tests have
/// another. Requests and completions go through the table in each ibv_context instead.
struct VerbsApi {
#define WHORL_VERBS_DECLARE(name, symbol) decltype(&::symbol) name = nullptr;
  WHORL_VERBS_FUNCTIONS(WHORL_VERBS_DECLARE)
#undef WHORL_VERBS_DECLARE
};

/// Finds the functions of libibverbs.so.1 in this process, once. Returns null, and the reason in
/// `*why`, if there are none.
const VerbsApi* find_verbs_api(std::string* why);

} // namespace whorl
