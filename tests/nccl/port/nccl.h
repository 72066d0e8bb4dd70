/* NCCL's header for the programs of this folder before they are ported: the drop-in's. */
#include "bindings/nccl/abi.h"
