"""What PyTorch gives over whole domains: every input of the one-input functions, every pair of the others.

For 16-bit dtypes a pair's key is first << 16 | second; in float32 the key is the gate's bits, and up is 1. NaN
outputs are canonical. Each domain has the digest of all 2^32 keys, and one of a sample that a CPU can repeat:
the keys i * SAMPLE_STEP mod 2^32 for i below SAMPLE_COUNT.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

import chains
from cases import Store
from generate import BFLOAT16, FLOAT16, FLOAT32, Format, canonical, digest, to_bits

ALL_KEYS = 1 << 32
CHUNK = 1 << 26
SAMPLE_STEP = 0x9E3779B1
SAMPLE_COUNT = 1 << 20

Tensor = torch.Tensor


def from_bits(f: Format, bits: Tensor) -> Tensor:
    return bits.to(f.carrier).view(f.torch_dtype)


def all_16_bit(f: Format, device: str) -> Tensor:
    return from_bits(f, torch.arange(1 << 16, device=device))


def pairwise(f: Format, operation: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda keys: operation(from_bits(f, keys >> 16), from_bits(f, keys & 0xFFFF))


def with_one(operation: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """In float32: every first operand, the second is 1."""

    def of_keys(keys: Tensor) -> Tensor:
        first = from_bits(FLOAT32, keys)
        return operation(first, torch.ones_like(first))

    return of_keys


def functions() -> Iterator[tuple[str, str, Callable[[Tensor], Tensor]]]:
    """Name of the domain, dtype, and keys to outputs."""
    for f in (BFLOAT16, FLOAT16):
        yield "silu_mul_aten", f.name, pairwise(f, chains.silu_mul)
        yield "silu_mul_sigmoid", f.name, pairwise(f, chains.sigmoid_mul)
        yield "silu_mul_candle", f.name, pairwise(f, chains.candle_mul)
        yield "silu_mul_float32", f.name, pairwise(f, chains.silu_mul_float32)
        yield "product", f.name, pairwise(f, torch.mul)
        yield "sum", f.name, pairwise(f, torch.add)
    yield "silu", FLOAT32.name, lambda keys: torch.nn.functional.silu(from_bits(FLOAT32, keys))
    limited = (("clamp_before", chains.clamp_before), ("clamp_after", chains.clamp_after))  # the limit is 10
    for f in (BFLOAT16, FLOAT16):
        yield "glu", f.name, pairwise(f, chains.gated)
        yield "glu_float32", f.name, pairwise(f, chains.gated_float32)
        yield "clamp_before_float32", f.name, pairwise(f, chains.clamp_before_float32)
        for name, chain in limited:
            yield name, f.name, pairwise(f, chain)
    for name, chain in (("glu", chains.gated), *limited):
        yield name, FLOAT32.name, with_one(chain)


def sweep(function: Callable[[Tensor], Tensor], key_count: int, device: str) -> int:
    total = 0
    for start in range(0, key_count, CHUNK):
        keys = torch.arange(start, min(start + CHUNK, key_count), device=device)
        total += digest(keys, to_bits(canonical(function(keys))))
    return total % (1 << 64)


def sample(function: Callable[[Tensor], Tensor], device: str) -> int:
    keys = (torch.arange(SAMPLE_COUNT, device=device) * SAMPLE_STEP) & (ALL_KEYS - 1)
    return digest(keys, to_bits(canonical(function(keys))))


def silu_tables(device: str) -> dict[str, dict[str, str]]:
    """SHA-256 of the 65,536 outputs, little-endian, index = input bits."""
    forms = {
        "silu": chains.silu_mul,
        "silu_sigmoid": chains.sigmoid_mul,
        "silu_candle": chains.candle_mul,
        "silu_glu": chains.gated,
    }
    tables: dict[str, dict[str, str]] = {}
    for name, chain in forms.items():
        tables[name] = {}
        for f in (BFLOAT16, FLOAT16):
            x = all_16_bit(f, device)
            bits = canonical(chain(x, torch.ones_like(x))).view(f.carrier)
            tables[name][f.name] = hashlib.sha256(bits.cpu().numpy().tobytes()).hexdigest()
    return tables


def silu32_table(f: Format, device: str) -> Tensor:
    """silu in float32 of every 16-bit input: what compute_dtype FLOAT32 multiplies."""
    return canonical(torch.nn.functional.silu(all_16_bit(f, device).float()))


def libm_differences(f: Format, table: Tensor) -> int:
    """In how many entries this machine's expf would give other bits."""
    expf = ctypes.CDLL("libm.so.6").expf
    expf.argtypes, expf.restype = [ctypes.c_float], ctypes.c_float
    x = all_16_bit(f, "cpu").float()
    e = torch.tensor([expf(-value) for value in x.tolist()], dtype=torch.float32)
    return int((to_bits(canonical(x / (1 + e))) != to_bits(table.cpu())).sum())


def capture_silu32(store: Store, device: str) -> dict[str, Any]:
    entries = {}
    for f in (BFLOAT16, FLOAT16):
        table = silu32_table(f, device)
        differences = libm_differences(f, table)
        entries[f.name] = {
            "file": store.name,
            "offset": store.add(table),
            "entries_that_libm_gives_otherwise": differences,
        }
        print(f"silu32 {f.name}: {differences} of 65536 entries are not what libm's expf gives")
    return entries


def capture(key_count: int, device: str) -> dict[str, Any]:
    tables = silu_tables(device)
    for name, by_dtype in tables.items():
        for dtype, value in by_dtype.items():
            print(f"table {name:18} {dtype:9} {value}")
    digests = []
    for name, dtype, function in functions():
        entry = {
            "name": name,
            "dtype": dtype,
            "keys": key_count,
            "digest": f"{sweep(function, key_count, device):016x}",
            "sample_digest": f"{sample(function, device):016x}",
        }
        digests.append(entry)
        print(f"domain {name:17} {dtype:9} {entry['digest']} sample {entry['sample_digest']}", flush=True)
    return {
        "tables_sha256": tables,
        "sample": {"step": SAMPLE_STEP, "count": SAMPLE_COUNT},
        "digests": digests,
    }
