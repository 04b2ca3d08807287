"""What each kernel of the library may hold besides single IEEE operations, by name and template arguments.

Everything not written here is a complaint of tools/sass_check: a kernel without a budget too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class Budget:
    """Exact counts, code of subroutines left out."""

    fma32: int = 0  # fused multiply-adds that the numerics names, in float32
    fma64: int = 0  # and in float64
    exp: int = 0  # accurate expf: range reduction by four multiply-adds, ex2.approx.ftz
    division: int = 0  # IEEE division: rcp.approx, a check, five multiply-adds, a subroutine for the rest
    newton: int = 0  # divide_in_range of fused_silu_mul.cuh: rcp.approx, four multiply-adds
    approximate: int = 0  # silu's fast steps: ex2.approx.ftz, rcp.approx.ftz, no multiply-add
    divides_integers: bool = False  # index arithmetic by rcp.approx
    adds_zero: bool = False  # x * 1 + 0, which loses -0: SUM_FROM_ZERO asks for it


SIZE = {"bf16": 2, "f16": 2, "float": 4}
SCALAR, HALF = 0, 1  # Layout
FAST = 1  # Steps


def silu_mul(kind: str, elements: str, steps: str) -> Budget:
    """Elements without a branch, in either kind of steps, and the formula itself for a gate that is too large; in the
    vector kernel also for a single element, of any gate."""
    vector = kind == "vector"
    n = int(elements) + (1 if vector else 0)
    if int(steps) == FAST:
        return Budget(exp=1, division=1, approximate=n, divides_integers=vector)
    return Budget(exp=int(elements) + 1, division=1, newton=n, divides_integers=vector)


def rope(dtype: str, compute: str, layout: str, fused: str) -> Budget:
    """Two multiply-adds a pair where the combine names them, else none."""
    vector = 16 // SIZE[dtype]
    pairs = 1 if int(layout) == SCALAR else vector if int(layout) == HALF else vector // 2
    return rope_pairs(pairs, compute, fused)


def rope_vector(compute: str, fused: str, pairs: str, heads: str) -> Budget:
    """The same for each of a thread's heads; adds no zero."""
    return rope_pairs(int(pairs) * int(heads), compute, fused, adds_zero=False)


def rope_lanes(fused: str, elements: str) -> Budget:
    """One multiply-add an element, in the code for tokens in order and in that for positions."""
    return Budget(fma32=2 * int(elements) if fused == "true" else 0)


def rope_pairs(pairs: int, compute: str, fused: str, adds_zero: bool = True) -> Budget:
    packed = SIZE.get(compute) == 2  # two pairs a word, both computed even where one is there
    count = 2 * (pairs + pairs % 2 if packed else pairs) if fused == "true" else 0
    return Budget(
        fma32=0 if compute == "double" else count,
        fma64=count if compute == "double" else 0,
        adds_zero=adds_zero,
    )


TYPE = r"(?:bitexact::)?(\w+)"
KERNELS = (
    (
        r"fused_silu_mul_(vector|scalar)<(?:bitexact::)?\w+, \(\w*Form\)\d, (\d+), \(\w*Steps\)(\d)>",
        silu_mul,
    ),
    (rf"fused_rope<{TYPE}, (?:bitexact::)?\w+, {TYPE}, \(Layout\)(\d), (\w+)>", rope),
    (
        rf"fused_rope_vector<(?:bitexact::)?\w+, (?:bitexact::)?\w+, {TYPE}, \(Layout\)\d, \w+, (\w+), (\d), (\d)>",
        rope_vector,
    ),
    (
        r"fused_rope_lanes<(?:bitexact::)?\w+, (?:bitexact::)?\w+, (?:bitexact::)?\w+, \w+, (\w+), (\d+), \w+>",
        rope_lanes,
    ),
    # Both compute types, and for each output either product fused.
    (r"reference_rope", lambda: Budget(fma32=4, fma64=4, divides_integers=True)),
    # Three forms with an exponential in common.
    (r"reference_silu_mul", lambda: Budget(exp=1, division=3, divides_integers=True)),
    (r"compare", lambda: Budget(divides_integers=True)),
    (r"fetch_first_mismatch", lambda: Budget(divides_integers=True)),
    # Certificates: inputs made, and the reference run for each output.
    (r"certify_fill_kernel<\w+>", lambda: Budget()),
    (r"certify_tally_kernel<RopeArgs, \(Dtype\)\d, \(Dtype\)4>", lambda: Budget(fma64=4)),
    (r"certify_tally_kernel<RopeArgs, \(Dtype\)\d, \(Dtype\)[123]>", lambda: Budget(fma32=4)),
    (r"certify_fetch_kernel<RopeArgs>", lambda: Budget(fma32=4, fma64=4)),
    (r"certify_tally_kernel<SiluMulArgs, \(Dtype\)\d, \(Dtype\)\d>", lambda: Budget(exp=1, division=3)),
    (r"certify_fetch_kernel<SiluMulArgs>", lambda: Budget(exp=1, division=3)),
)


def budget_of(kernel: str) -> Optional[Budget]:
    """The budget of a kernel by its demangled name, or None."""
    name = re.sub(r"^void |\(anonymous namespace\)::|_GLOBAL__N__\w+::", "", kernel)
    name = re.sub(r"([(<])bitexact::", r"\1", name).removeprefix("bitexact::")
    for pattern, make in KERNELS:
        if found := re.fullmatch(rf"{pattern}\(.*\)", name):
            return make(*found.groups())
    return None
