"""NCCL's datatypes in plain Python: conversion of lists of numbers to bytes and back."""
import struct
from dataclasses import dataclass


def _small_float(exponent_bits: int, mantissa_bits: int, bias: int) -> dict[int, float]:
    """Returns {code: value} of the finite numbers of an 8-bit floating type."""
    table = {}
    for code in range(256):
        sign = -1.0 if code & 0x80 else 1.0
        exponent = (code >> mantissa_bits) & ((1 << exponent_bits) - 1)
        fraction = (code & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
        if exponent == 0:
            table[code] = sign * fraction * 2.0**(1 - bias)
        else:
            table[code] = sign * (1 + fraction) * 2.0**(exponent - bias)
    return table


_E4M3 = _small_float(4, 3, 7)
_E5M2 = _small_float(5, 2, 15)
_CODES = {10: {value: code for code, value in reversed(_E4M3.items())},
          11: {value: code for code, value in reversed(_E5M2.items())}}
_VALUES = {10: _E4M3, 11: _E5M2}


@dataclass(frozen=True)
class ElementType:
    """One datatype. Numbers given to encode() must be exact in it."""
    number: int
    name: str
    size: int
    format: str = ""

    @property
    def integer(self) -> bool:
        """Returns whether it is an integer type."""
        return self.number < 6

    def encode(self, values: list) -> bytes:
        """Returns the elements as they lie in memory."""
        if self.format:
            return struct.pack(f"<{len(values)}{self.format}", *values)
        if self.name == "bfloat16":
            return b"".join(struct.pack("<f", value)[2:] for value in values)
        return bytes(_CODES[self.number][float(value)] for value in values)

    def decode(self, data: bytes) -> list:
        """Returns the numbers of elements in memory."""
        if self.format:
            return list(struct.unpack(f"<{len(data) // self.size}{self.format}", data))
        if self.name == "bfloat16":
            return [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, len(data), 2)]
        return [_VALUES[self.number][code] for code in data]


TYPES = [ElementType(0, "int8", 1, "b"), ElementType(1, "uint8", 1, "B"),
         ElementType(2, "int32", 4, "i"), ElementType(3, "uint32", 4, "I"),
         ElementType(4, "int64", 8, "q"), ElementType(5, "uint64", 8, "Q"),
         ElementType(6, "float16", 2, "e"), ElementType(7, "float32", 4, "f"),
         ElementType(8, "float64", 8, "d"), ElementType(9, "bfloat16", 2),
         ElementType(10, "float8e4m3", 1), ElementType(11, "float8e5m2", 1)]
FLOAT32 = TYPES[7]
