#pragma once

// Kernels as compiled by nvcc, embedded in the library by embed.py. A file X_<type>.fatbin is the
// symbol whorl_fatbin_X_<type>.

// List in the order of DataType.
#define WHORL_FATBINS(fatbin)                                                             \
  fatbin(int8) fatbin(uint8) fatbin(int32) fatbin(uint32) fatbin(int64) fatbin(uint64)    \
      fatbin(float16) fatbin(float32) fatbin(float64) fatbin(bfloat16) fatbin(float8e4m3) \
          fatbin(float8e5m2) fatbin(int16) fatbin(uint16) fatbin(bool)
#define WHORL_DECLARE_FATBINS(type)                \
  extern const char whorl_fatbin_combine_##type[]; \
  extern const char whorl_fatbin_interpret_##type[];

extern "C" {
WHORL_FATBINS(WHORL_DECLARE_FATBINS)
extern const char whorl_fatbin_interpret_copy[];
extern const char whorl_fatbin_exchange[];
}
