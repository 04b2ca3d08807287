"""Writes src/probe_digests.cpp: what the right outputs of the gate's probes come to.

    cmake --build build/dev --target golden_probes
    python tests/golden/probes.py build/dev/tests/golden_probes [--out FILE]

The outputs are those of PyTorch's operators on a GPU, each rounding an operator; tests/reference has to agree wherever
it can. Without a GPU its digests are taken instead, and those which only CUDA's expf gives stay as they were: the
tests on a GPU tell if they may not.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

import chains
from generate import FLOAT64, FORMATS, Format, canonical, digest, to_bits

TABLE = Path(__file__).parents[2] / "src" / "probe_digests.cpp"
HEADER = """#include "probe_digests.h"

#include "kernel_table.h"

namespace bitexact {

// Written by tests/golden/probes.py.
extern const uint64_t probe_digests[probe_count] = {
"""
FOOTER = """};

}  // namespace bitexact
"""

Case = dict[str, Any]
Tensor = torch.Tensor

# By silu, whether compute_dtype is FLOAT32, and clamp.
SILU_MUL = {
    (0, False, 0): chains.silu_mul,
    (1, False, 0): chains.sigmoid_mul,
    (2, False, 0): chains.candle_mul,
    (3, False, 0): chains.gated,
    (0, True, 0): chains.silu_mul_float32,
    (3, True, 0): chains.gated_float32,
    (0, False, 1): chains.clamp_before,
    (0, True, 1): chains.clamp_before_float32,
    (0, False, 2): chains.clamp_after,
}
COMPLEX, COMPLEX_ALT, ADDCMUL_COS, ADDCMUL_X1 = 1, 2, 3, 4


def strided(inputs: Tensor, f: Format, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
    return inputs.view(f.torch_dtype).as_strided(shape, strides, offset // f.size)


def silu_mul(inputs: Tensor, case: Case) -> list[Tensor]:
    f, shape = FORMATS[case["dtype"]], (case["batches"], case["rows"], case["cols"])
    gate, up = (strided(inputs, f, at, shape, (*strides, 1)) for at, *strides in (case["gate"], case["up"]))
    chain = SILU_MUL[case["silu"], case["compute_float32"], case["clamp"]]
    limit = (case["limit"],) if case["clamp"] else ()
    return [to_bits(canonical(chain(gate, up, *limit)))]


def fused(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    """a * b + c * d, the first product inside the sum's rounding, the second rounded before.

    In float32 and float64 that is the real part of a complex product (the golden vectors pin it). Of 16-bit numbers
    product and sum are exact in float64, or far from where float32 rounds.
    """
    if a.element_size() >= 4:
        return (torch.complex(a, -c) * torch.complex(b, d)).real
    return (a.double() * b.double() + (c * d).double()).float().to(a.dtype)


def rotated(case: Case, x1: Tensor, x2: Tensor, c1: Tensor, s1: Tensor, c2: Tensor, s2: Tensor) -> list[Tensor]:
    """The two outputs, in the compute dtype."""
    combine = case["combine"]
    if combine == 0 and case["sum_from_zero"]:
        return [torch.stack(terms, -1).sum(-1) for terms in ((x1 * c1, -(x2 * s1)), (x2 * c2, x1 * s2))]
    if combine == 0:
        return [x1 * c1 - x2 * s1, x2 * c2 + x1 * s2]
    first = fused(x1, c1, -x2, s1) if combine in (COMPLEX, COMPLEX_ALT) else fused(-x2, s1, x1, c1)
    return [first, fused(x2, c2, x1, s2) if combine in (COMPLEX_ALT, ADDCMUL_X1) else fused(x1, s2, x2, c2)]


def rope(inputs: Tensor, case: Case) -> list[Tensor]:
    x_format, compute = FORMATS[case["dtype"]], FORMATS[case["compute_dtype"]].torch_dtype
    batches, tokens, rows, rotary = (case[name] for name in ("batches", "tokens", "table_rows", "rotary_dim"))
    if case["positions"] is None:
        row = torch.arange(tokens, device=inputs.device).expand(batches, tokens)
    else:
        at, *strides = case["positions"]
        row = inputs.view(torch.int64).as_strided((batches, tokens), strides, at // 8)
    outside = (row < 0) | (row >= rows)

    def places(pairing: int) -> list[slice]:
        half = rotary // 2
        return [slice(0, rotary, 2), slice(1, rotary, 2)] if pairing else [slice(0, half), slice(half, rotary)]

    def entries(name: str, heads: int) -> list[Tensor]:
        at, batch, *strides = case[name]
        assert batch == 0
        width = rotary if case["full_table"] else rotary // 2
        table = strided(inputs, FORMATS[case["table_dtype"]], at, (rows, heads, width), tuple(strides))
        taken = table[row.clamp(0, rows - 1)].to(compute)
        return [taken[..., place] for place in places(case["pairing_in"])] if case["full_table"] else [taken] * 2

    outputs = []
    for heads, (at, *strides) in zip(case["heads"], case["in"], strict=True):
        if heads == 0:
            continue
        x = strided(inputs, x_format, at, (batches, tokens, heads, case["head_dim"]), (*strides, 1))
        x1, x2 = (x[..., place].to(compute) for place in places(case["pairing_in"]))
        (c1, c2), (s1, s2) = entries("cos", heads), entries("sin", heads)
        if case["inverse"]:
            s1, s2 = -s1, -s2
        bits = to_bits(x).clone()
        results = rotated(case, x1, x2, c1, s1, c2, s2)
        for place, result in zip(places(case["pairing_out"]), results, strict=True):
            result = result.masked_fill(outside[..., None, None], torch.nan)
            bits[..., place] = to_bits(canonical(result.to(x_format.torch_dtype)))
        outputs.append(bits)
    return outputs


def digest_of(program: str, probe: int, device: str) -> int:
    written = subprocess.run([program, str(probe)], check=True, stdout=subprocess.PIPE).stdout
    described, data = written.split(b"\n", 1)
    data += bytes(-len(data) % FLOAT64.size)
    inputs = torch.from_numpy(np.frombuffer(data, np.uint8).copy()).to(device)
    total = place = 0
    for case in json.loads(described):
        for bits in (rope if "combine" in case else silu_mul)(inputs, case):
            keys = torch.arange(place, place + bits.numel(), device=device)
            total += digest(keys, bits.flatten())
            place += bits.numel()
    return total % (1 << 64)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--out", type=Path, default=TABLE)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else None)
    options = parser.parse_args()
    before = {name: value for value, name in re.findall(r"0x(\w{16}),  // (.*)", TABLE.read_text())}
    listed = subprocess.run([options.program, "list"], check=True, stdout=subprocess.PIPE, text=True).stdout
    lines, differing = [], 0
    for probe, line in enumerate(listed.splitlines()):
        by_reference, name = line.split(" ", 1)
        if options.device is not None:
            value = f"{digest_of(options.program, probe, options.device):016x}"
            if by_reference == "-":
                print(f"{name}: PyTorch {value}")
            elif by_reference != value:
                print(f"{name}: PyTorch {value}, tests/reference {by_reference}")
                differing += 1
        elif by_reference == "-":
            value = before.get(name, "0" * 16)
            print(f"{name}: left at {value}; it needs a GPU")
        else:
            value = by_reference
        lines.append(f"    0x{value},  // {name}\n")
    print(f"{len(lines)} probes, {differing} differ")
    if differing == 0:
        options.out.write_text(HEADER + "".join(lines) + FOOTER)
    return min(differing, 1)


if __name__ == "__main__":
    sys.exit(main())
