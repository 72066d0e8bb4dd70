// Compiled for AArch64, whose baseline has NEON; see meson.build for the flags.
#define WHORL_KERNEL_TABLE kNeonKernels
#include "kernels/reduce_body.h"
