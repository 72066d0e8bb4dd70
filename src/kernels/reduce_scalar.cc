// Compiled for the baseline of the build; see meson.build for the flags.
#define WHORL_KERNEL_TABLE kScalarKernels
#include "kernels/reduce_body.h"
