// Compiled for AVX2 and F16C; see meson.build for the flags.
#define WHORL_KERNEL_TABLE kAvx2Kernels
#include "kernels/reduce_body.h"
