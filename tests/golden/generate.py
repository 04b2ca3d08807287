"""Inputs that any language can make again: bits from splitmix64, and the digest that pins outputs.

golden.cpp holds the same few functions in C++; both must change together.

    mix(z)          one step of splitmix64 from state z
    word(seed, i)   mix(mix(seed) + i)
    digest          sum over elements of mix(key << 32 | value), modulo 2^64

A key is the flat index of an element, or the input bits for a whole domain; a value is the output bits. The
sum does not depend on the order of the elements.

How a buffer is filled (`fill`), element i from w = word(seed, i), in a format with M mantissa bits:

    uniform   uniform over (-2^scale, 2^scale), every mantissa bit in use: sign w[63], exponent scale - 1
              less the number of trailing zeros of w[62:52] with a one above it, mantissa the top M of w[51:0]
    bits      any bit pattern: the low bits of w
    special   pattern w mod count of special_patterns()
    index     the integer w mod `modulus`
    rotation  2x2 matrices [c, -s, s, c], c and s uniform from words 2 * i and 2 * i + 1 of matrix i
    file      stored bytes
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

GAMMA = 0x9E3779B97F4A7C15
FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
SHIFTS = (30, 27, 31)


class Format(NamedTuple):
    """A dtype of the library: its ABI number, torch's, and the parts of its bits (0 for integers)."""

    code: int
    name: str
    torch_dtype: torch.dtype
    size: int
    exponent_bits: int
    mantissa_bits: int

    @property
    def bias(self) -> int:
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent_bits) - 1) << self.mantissa_bits

    @property
    def carrier(self) -> torch.dtype:
        """The signed integer of the same size, the only view that torch lets every dtype have."""
        return {2: torch.int16, 4: torch.int32, 8: torch.int64}[self.size]


FLOAT32 = Format(1, "float32", torch.float32, 4, 8, 23)
FLOAT16 = Format(2, "float16", torch.float16, 2, 5, 10)
BFLOAT16 = Format(3, "bfloat16", torch.bfloat16, 2, 8, 7)
FLOAT64 = Format(4, "float64", torch.float64, 8, 11, 52)
INT32 = Format(5, "int32", torch.int32, 4, 0, 0)
INT64 = Format(6, "int64", torch.int64, 8, 0, 0)
FORMATS = {f.code: f for f in (FLOAT32, FLOAT16, BFLOAT16, FLOAT64, INT32, INT64)}


def mix(z: np.ndarray) -> np.ndarray:
    z = z + np.uint64(GAMMA)
    z = (z ^ (z >> np.uint64(SHIFTS[0]))) * np.uint64(FACTORS[0])
    z = (z ^ (z >> np.uint64(SHIFTS[1]))) * np.uint64(FACTORS[1])
    return z ^ (z >> np.uint64(SHIFTS[2]))


def words(seed: int, count: int) -> np.ndarray:
    return mix(mix(np.array([seed], np.uint64)) + np.arange(count, dtype=np.uint64))


def special_patterns(f: Format) -> list[int]:
    """Zeros, subnormals, the ends of the normal range, ordinary values, infinities and NaN, of both signs."""
    one = f.bias << f.mantissa_bits
    step = 1 << f.mantissa_bits
    positive = [
        0,  # zero
        1,  # smallest subnormal
        step // 2 + 1,  # a subnormal in the middle
        step - 1,  # largest subnormal
        step,  # smallest normal
        step * 2 + 1,
        one // 2 + 1,  # about the square root of the smallest normal
        one - step,  # 1/2
        one - 1,  # just below 1
        one,
        one + 1,
        one + step + step // 2,  # 3
        (f.bias + 7) << f.mantissa_bits | step // 2,  # 192: past the end of exp
        f.infinity - step - 1,  # about half of the largest
        f.infinity - 1,  # largest finite
        f.infinity,
        f.infinity + 1,  # signalling NaN
        f.infinity + step // 2,  # quiet NaN
    ]
    sign = 1 << (f.exponent_bits + f.mantissa_bits)
    return positive + [sign | pattern for pattern in positive]


def uniform(f: Format, w: np.ndarray, scale: int) -> np.ndarray:
    zeros = np.zeros(w.shape, np.uint64)
    field = (w >> np.uint64(52)) & np.uint64(0x7FF) | np.uint64(0x800)
    for bit in range(1, 12):
        zeros[(field & np.uint64((1 << bit) - 1)) == 0] = bit
    exponent = np.uint64(f.bias + scale - 1) - zeros
    mantissa = (w & np.uint64((1 << 52) - 1)) >> np.uint64(52 - f.mantissa_bits)
    sign = (w >> np.uint64(63)) << np.uint64(f.exponent_bits + f.mantissa_bits)
    return sign | exponent << np.uint64(f.mantissa_bits) | mantissa


def rotation(f: Format, seed: int, scale: int, count: int) -> np.ndarray:
    pairs = uniform(f, words(seed, count // 2), scale).reshape(-1, 2)
    cos, sin = pairs[:, 0], pairs[:, 1]
    sign = np.uint64(1 << (f.exponent_bits + f.mantissa_bits))
    return np.stack([cos, sin ^ sign, sin, cos], axis=1).reshape(-1)


def fill(buffer: dict[str, Any]) -> np.ndarray:
    """The bits of a buffer described as in the index, one uint64 an element."""
    f, count, kind = FORMATS[buffer["dtype"]], buffer["count"], buffer["fill"]
    if kind == "rotation":
        return rotation(f, buffer["seed"], buffer["scale"], count)
    w = words(buffer["seed"], count)
    if kind == "uniform":
        return uniform(f, w, buffer["scale"])
    if kind == "bits":
        return w & np.uint64((1 << (8 * f.size)) - 1)
    if kind == "special":
        patterns = np.array(special_patterns(f), np.uint64)
        return patterns[w % np.uint64(len(patterns))]
    if kind == "index":
        return w % np.uint64(buffer["modulus"])
    raise ValueError(f"unknown fill {kind}")


def to_tensor(f: Format, bits: np.ndarray, device: str) -> torch.Tensor:
    """A flat tensor of the dtype with these bits."""
    unsigned = {2: np.uint16, 4: np.uint32, 8: np.uint64}[f.size]
    signed = {2: np.int16, 4: np.int32, 8: np.int64}[f.size]
    return torch.from_numpy(bits.astype(unsigned).view(signed)).to(device).view(f.torch_dtype)


def format_of(tensor: torch.Tensor) -> Format:
    return next(f for f in FORMATS.values() if f.torch_dtype == tensor.dtype)


def to_bits(tensor: torch.Tensor) -> torch.Tensor:
    """The bits of each element, as non-negative int64 (so not for 64-bit dtypes)."""
    f = format_of(tensor)
    return tensor.contiguous().view(f.carrier).to(torch.int64) & ((1 << (8 * f.size)) - 1)


def canonical(tensor: torch.Tensor) -> torch.Tensor:
    """A copy whose NaN have the one pattern of the contract: all ones, no sign."""
    f = format_of(tensor)
    nan = (1 << (8 * f.size - 1)) - 1
    bits = tensor.contiguous().view(f.carrier)
    return torch.where(torch.isnan(tensor), torch.full_like(bits, nan), bits).view(f.torch_dtype)


def signed(value: int) -> int:
    """The int64 with the same bits as a uint64."""
    return value - (1 << 64) if value >= 1 << 63 else value


def digest(key: torch.Tensor, value: torch.Tensor) -> int:
    """Of int64 keys and values below 2^32. int64 arithmetic of torch wraps, as the definition wants."""
    z = (key << 32).bitwise_or_(value).add_(signed(GAMMA))
    for shift, factor in zip(SHIFTS, (*FACTORS, None), strict=True):
        # An arithmetic shift, then the sign's copies masked away: torch has no unsigned one.
        z.bitwise_xor_((z >> shift).bitwise_and_((1 << (64 - shift)) - 1))
        if factor is not None:
            z.mul_(signed(factor))
    return int(z.sum().item()) % (1 << 64)


def tensor_digest(tensor: torch.Tensor) -> int:
    bits = to_bits(tensor).flatten()
    return digest(torch.arange(bits.numel(), device=bits.device), bits)
