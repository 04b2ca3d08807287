"""Arithmetic by the name of its chain: which fields of the C interface each named eager chain means.

A chain whose bits depend on how the framework was built (a complex multiply, addcmul) has several candidates;
the gate finds out which one holds, by trying. Nothing here needs torch.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Iterable

from . import capi


@dataclass(frozen=True)
class SiluNumerics:
    """Fields `silu`, `compute_dtype`, `clamp` and `limit_bits` of fused_silu_mul."""

    silu: int
    compute: int
    clamp: int = 0
    limit_bits: int = 0


@dataclass(frozen=True)
class RopeNumerics:
    """Fields `combine`, `compute_dtype` and `flags` of fused_rope."""

    combine: int
    compute: int
    flags: int = 0


SILU_MUL: dict[str, tuple[SiluNumerics, ...]] = {
    "eager": (SiluNumerics(capi.SILU_ATEN, 0),),
    "fp32": (SiluNumerics(capi.SILU_ATEN, capi.DTYPE_FLOAT32),),
    "sigmoid": (SiluNumerics(capi.SILU_SIGMOID, 0),),
    "candle": (SiluNumerics(capi.SILU_CANDLE, 0),),
    "glu": (SiluNumerics(capi.SILU_GLU, 0),),
    "glu_fp32": (SiluNumerics(capi.SILU_GLU, capi.DTYPE_FLOAT32),),
}
# With a limit, which is filled in.
CLAMPED: dict[str, SiluNumerics] = {
    "clamp_before": SiluNumerics(capi.SILU_ATEN, 0, capi.CLAMP_BEFORE),
    "clamp_before_fp32": SiluNumerics(capi.SILU_ATEN, capi.DTYPE_FLOAT32, capi.CLAMP_BEFORE),
    "clamp_after": SiluNumerics(capi.SILU_ATEN, 0, capi.CLAMP_AFTER),
}


def _built(compute: int, *combines: int) -> tuple[RopeNumerics, ...]:
    return tuple(RopeNumerics(combine, compute) for combine in combines)


ROPE: dict[str, tuple[RopeNumerics, ...]] = {
    "eager": _built(0, capi.COMBINE_SEPARATE),
    "fp32": _built(capi.DTYPE_FLOAT32, capi.COMBINE_SEPARATE),
    "fp64": _built(capi.DTYPE_FLOAT64, capi.COMBINE_SEPARATE),
    "complex64": _built(
        capi.DTYPE_FLOAT32, capi.COMBINE_COMPLEX, capi.COMBINE_COMPLEX_ALT, capi.COMBINE_SEPARATE
    ),
    "complex128": _built(
        capi.DTYPE_FLOAT64, capi.COMBINE_COMPLEX, capi.COMBINE_COMPLEX_ALT, capi.COMBINE_SEPARATE
    ),
    "addcmul": _built(0, capi.COMBINE_ADDCMUL_COS, capi.COMBINE_SEPARATE),
    "addcmul_fp32": _built(capi.DTYPE_FLOAT32, capi.COMBINE_ADDCMUL_COS, capi.COMBINE_SEPARATE),
    "addcmul_x1": _built(0, capi.COMBINE_ADDCMUL_X1, capi.COMBINE_SEPARATE),
    "matrix_sum": (RopeNumerics(capi.COMBINE_SEPARATE, 0, capi.ROPE_SUM_FROM_ZERO),),
}

PAIRINGS = {"half": capi.PAIRING_HALF, "interleaved": capi.PAIRING_INTERLEAVED}
LAYOUTS = ("bshd", "bhsd")


def _known(value: object, accepted: Iterable[object], what: str) -> None:
    names = tuple(accepted)
    if value not in names:
        raise ValueError(f"{what} is {value!r}; accepted: {', '.join(map(repr, names))}")


@dataclass(frozen=True)
class Rope:
    """Everything about a rotation but its tensors.

    Args:
        numerics: name of the eager chain, a key of ROPE.
        pairing: "half" (element j with j + rotary_dim / 2) or "interleaved" (2j with 2j + 1).
        pairing_out: pairing of the output; None: as the input.
        rotary_dim: elements of a head that rotate, even; -1: the width of the table (twice it if complex);
            -2: twice the width.
        layout: "bshd" ((batch, token, head, dim), (token, head, dim), (token, dim)) or "bhsd" (heads first).
        inverse: rotate backwards.
        first_half: only the first half of each table row is read (models that double their tables and take
            them apart again).
    """

    numerics: str = "eager"
    pairing: str = "half"
    pairing_out: str | None = None
    rotary_dim: int = -1
    layout: str = "bshd"
    inverse: bool = False
    first_half: bool = False

    def __post_init__(self) -> None:
        _known(self.numerics, ROPE, "numerics")
        _known(self.pairing, PAIRINGS, "pairing")
        _known(self.pairing_out, (*PAIRINGS, None), "pairing_out")
        _known(self.layout, LAYOUTS, "layout")
        if self.rotary_dim < -2 or (self.rotary_dim > 0 and self.rotary_dim % 2):
            raise ValueError(f"rotary_dim is {self.rotary_dim}; accepted: -2, -1, 0, even numbers")

    @property
    def written(self) -> str:
        """The pairing of the output."""
        return self.pairing_out or self.pairing

    @property
    def heads_first(self) -> bool:
        return self.layout == "bhsd"

    def candidates(self) -> tuple[RopeNumerics, ...]:
        return ROPE[self.numerics]

    def with_numerics(self, name: str) -> Rope:
        return replace(self, numerics=name)

    def __str__(self) -> str:
        switches = "".join(letter for letter, on in (("i", self.inverse), ("f", self.first_half)) if on)
        return "/".join(
            (self.numerics, self.pairing, self.written, str(self.rotary_dim), self.layout, switches or "-")
        )

    @staticmethod
    def parse(text: str) -> Rope:
        """The inverse of str()."""
        numerics, pairing, written, rotary_dim, layout, switches = text.split("/")
        out = None if written == pairing else written
        return Rope(numerics, pairing, out, int(rotary_dim), layout, "i" in switches, "f" in switches)


def silu_mul_candidates(name: str, limit: float | None = None) -> tuple[SiluNumerics, ...]:
    """Fields that the named chain may mean.

    Raises:
        ValueError: an unknown name; a limit where the chain has none, or none (or no finite positive one) where
            it has.
    """
    _known(name, (*SILU_MUL, *CLAMPED), "numerics")
    if name in SILU_MUL:
        if limit is not None:
            raise ValueError(f"limit is {limit!r} with numerics {name!r}; accepted: None")
        return SILU_MUL[name]
    (bits,) = struct.unpack("<I", struct.pack("<f", limit)) if _is_float32(limit) else (0,)
    if not 0 < bits < 0x7F800000:
        raise ValueError(f"limit is {limit!r} with numerics {name!r}; accepted: finite float32 numbers above 0")
    return (replace(CLAMPED[name], limit_bits=bits),)


def silu_mul_name(numerics: str, limit: float | None) -> str:
    """The chain and its limit, as sites made on demand are named."""
    return numerics if limit is None else f"{numerics}/{float(limit)!r}"


def silu_mul_parse(name: str) -> tuple[str, float | None]:
    """The inverse of silu_mul_name()."""
    numerics, _, limit = name.partition("/")
    return numerics, float(limit) if limit else None


def _is_float32(limit: float | None) -> bool:
    return isinstance(limit, (int, float)) and abs(limit) < 3.4028235677973366e38  # rounds to no infinity
