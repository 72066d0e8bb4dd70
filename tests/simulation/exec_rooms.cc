// Sources of whorl that read and write the slots of FIFOs, see rooms.cc.
#include "exec/execution.cc"
#include "exec/execution_expose.cc"
#include "exec/execution_move.cc"
#include "exec/execution_operands.cc"
#include "exec/execution_send.cc"
#include "exec/execution_waits.cc"
