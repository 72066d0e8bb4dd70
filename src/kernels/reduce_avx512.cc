// Compiled for AVX-512 F, BW, DQ and VL; see meson.build for the flags.
#define WHORL_KERNEL_TABLE kAvx512Kernels
#include "kernels/reduce_body.h"
