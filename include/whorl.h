/// @file whorl.h
/// The C API under the name that a program ported from NCCL includes: `#include <nccl.h>` with
/// `nccl` replaced by `whorl`.
#ifndef WHORL_H_
#define WHORL_H_

#include "whorl/whorl.h"

#endif // WHORL_H_
