"""Runs cases.json through the installed package libbitexact: its C interface, its sites (the fast path) and
torch.ops.libbitexact. Pytest: python -m pytest run_python.py

A call of a site or operator that no kernel serves runs eager, by contract; such a call must not be counted as
fused, and a refused one must leave every byte alone or be eager's own.
"""

from __future__ import annotations

import ctypes
import json
import struct
from ctypes import byref
from pathlib import Path
from typing import Any, Callable, Optional

import pytest
from run_ctypes import judge, memory_of, must, params_of

libbitexact = pytest.importorskip("libbitexact")
capi = libbitexact.capi
try:
    import torch
except ImportError:
    torch = None

CASES = {case["name"]: case for case in json.loads((Path(__file__).parent / "cases.json").read_text())}
SILU = {(0, 0, 0): "eager", (0, 1, 0): "fp32", (1, 0, 0): "sigmoid", (2, 0, 0): "candle", (3, 0, 0): "glu",
        (0, 0, 1): "clamp_before", (0, 0, 2): "clamp_after"}
ROPE = {(0, 0, 0): "eager", (0, 1, 0): "fp32", (0, 4, 0): "fp64", (0, 0, 2): "matrix_sum"}


class Memory:
    """Bytes that start at a multiple of 64."""

    def __init__(self, data: bytes) -> None:
        self._room = ctypes.create_string_buffer(len(data) + 64)
        self.base = (ctypes.addressof(self._room) + 63) // 64 * 64
        self.size = len(data)
        self.write(data)

    def write(self, data: bytes) -> None:
        ctypes.memmove(self.base, data, len(data))

    def read(self) -> bytes:
        return ctypes.string_at(self.base, self.size)


def call_capi(case: dict, memory: Memory) -> int:
    """Status of the call; checks can_use on the way."""
    rope = case["operation"] == "rope"
    kind = capi.RopeParams if rope else capi.SiluMulParams
    name = f"fused_{case['operation']}"
    block = ctypes.create_string_buffer(bytes(params_of(case, kind, memory.base)), 8192)
    params = ctypes.cast(block, ctypes.POINTER(kind))
    status = getattr(capi.api, f"{name}_can_use")(None, params)
    must(status == case.get("check", case["status"]), f"can_use gave {status}: {capi.last_error()}")
    if "addresses" in case:
        return case["status"]
    before = memory.read()
    with capi.Context(capi.DEVICE_HOST) as context:
        status = getattr(capi.api, name)(context.pointer, params, 0)
        errors = context.info().position_errors
    must(status == case["status"], f"the call gave {status}: {capi.last_error()}")
    if status == 0:
        judge(case, before, memory.read(), errors)
    else:
        must(memory.read() == before, "a refused call wrote")
    return status


@pytest.mark.parametrize("name", CASES)
def test_capi(name: str) -> None:
    case = CASES[name]
    call_capi(case, Memory(bytes(memory_of(case))))


# -------------------------------------------------------------------------------------- torch --


class Tensors:
    """A case's tensors, as torch views of its memory."""

    def __init__(self, case: dict, memory: Memory) -> None:
        self.case, self.numbers = case, case["params"]
        raw = (ctypes.c_uint8 * memory.size).from_address(memory.base)
        self.bytes = torch.frombuffer(raw, dtype=torch.uint8)
        self.dtypes = {1: torch.float32, 2: torch.float16, 3: torch.bfloat16, 4: torch.float64, 5: torch.int32,
                       6: torch.int64}

    def number(self, name: str) -> int:
        return self.numbers.get(name, 0)

    def strided(self, tensor: str, dtype: int, shape: tuple, strides: tuple) -> Any:
        kind = self.dtypes[dtype]
        size = torch.empty((), dtype=kind).element_size()
        return torch.as_strided(self.bytes.view(kind), shape, strides, self.case["pointers"][tensor] // size)

    def rows(self, tensor: str) -> Any:
        shape = tuple(self.number(n) for n in ("batches", "rows", "cols"))
        strides = (self.number(f"{tensor}_batch_stride"), self.number(f"{tensor}_row_stride"), 1)
        return self.strided(tensor, self.number("dtype"), shape, strides)

    def heads(self, tensor: str) -> Any:
        x = tensor[0]
        if self.number(f"{x}_heads") == 0:
            return None
        shape = tuple(self.number(n) for n in ("batches", "tokens", f"{x}_heads", "head_dim"))
        strides = tuple(self.number(f"{tensor}_{axis}_stride") for axis in ("batch", "token", "head"))
        return self.strided(tensor, self.number("dtype"), shape, (*strides, 1))

    def table(self, tensor: str) -> Any:
        heads = max(self.number("q_heads"), self.number("k_heads"))
        sizes = (self.number("batches"), self.number("table_rows"), heads, self.number("table_width"))
        strides = tuple(self.number(f"{tensor}_{axis}_stride") for axis in ("batch", "token", "head", "element"))
        kept = [axis for axis in range(4) if axis in (1, 3) or strides[axis] != 0]
        if 2 in kept:
            kept = [0, 1, 2, 3]  # with heads, as many axes as q
        return self.strided(tensor, self.number("table_dtype") or self.number("dtype"),
                            tuple(sizes[a] for a in kept), tuple(strides[a] for a in kept))

    def positions(self) -> Any:
        if "positions" not in self.case["pointers"]:
            return None
        return self.strided("positions", self.number("positions_dtype"),
                            (self.number("batches"), self.number("tokens")),
                            (self.number("positions_batch_stride"), self.number("positions_token_stride")))


def sayable(case: dict) -> bool:
    """Can tensors and the names of chains say it? Eager itself raises for positions outside the table."""
    if case.get("raw") or "position_errors" in case or case["status"] not in (0, 5, 6, 7):
        return False
    p = case["params"]
    if case["operation"] == "silu_mul":
        return (p.get("silu", 0), p.get("compute_dtype", 0), p.get("clamp", 0)) in SILU
    # PyTorch has no operator that would make a view of negative strides.
    return (p.get("combine", 0), p.get("compute_dtype", 0), p.get("flags", 0) & 2) in ROPE


SAYABLE = [name for name, case in CASES.items()
           if sayable(case) and all(v >= 0 for v in case["params"].values())]


def bound(case: dict, memory: Memory, operator: bool) -> tuple[Any, Callable[[], Any]]:
    """A site of the case's own, and the call of it, directly or as an operator."""
    t, p = Tensors(case, memory), case["params"]
    name = f"conformance {case['name']} {operator}"
    if case["operation"] == "silu_mul":
        chain = SILU[p.get("silu", 0), p.get("compute_dtype", 0), p.get("clamp", 0)]
        limit = struct.unpack("<f", struct.pack("<I", p["limit_bits"]))[0] if "limit_bits" in p else None
        site = libbitexact.SiluMulSite(chain, name=name, limit=limit)
        tensors = (t.rows("gate"), t.rows("up"), t.rows("out"))
        return site, (lambda: torch.ops.libbitexact.silu_mul_out(*tensors, name)) if operator else (lambda: site(*tensors))
    names = ("half", "interleaved")
    flags = p.get("flags", 0)
    how = libbitexact.numerics.Rope(
        ROPE[p.get("combine", 0), p.get("compute_dtype", 0), flags & 2], names[p.get("pairing_in", 0)],
        names[p.get("pairing_out", 0)], p.get("rotary_dim", 0), inverse=bool(flags & 1))
    site = libbitexact.RopeSite(how, name=name)
    q, k, q_out, k_out = (t.heads(x) for x in ("q_in", "k_in", "q_out", "k_out"))
    tables = (t.table("cos"), t.table("sin"), t.positions())
    ops = torch.ops.libbitexact
    if not operator:
        return site, lambda: site(q, k, *tables, q_out, k_out)
    if k is None:
        return site, lambda: ops.rope_out(q, *tables, q_out, name)
    return site, lambda: ops.rope_pair_out(q, k, *tables, q_out, k_out, name)


def attempt(call: Callable[[], Any]) -> Optional[Exception]:
    try:
        with torch.inference_mode():
            call()
    except (ValueError, RuntimeError) as error:
        return error
    return None


fused = {"sites": 0, "operators": 0}


@pytest.mark.skipif(torch is None, reason="PyTorch is not installed")
@pytest.mark.parametrize("through", fused)
@pytest.mark.parametrize("name", SAYABLE)
def test_torch(name: str, through: str) -> None:
    case = CASES[name]
    before = bytes(memory_of(case))
    memory = Memory(before)
    site, call = bound(case, memory, through == "operators")
    error = None
    for _ in range(3):  # eager and a verdict, then the kernel
        memory.write(before)
        error = attempt(call)
    served = sum(report["fused_calls"] for report in site.verdicts())
    if case["status"] != 0:
        assert served == 0
        assert error is None or memory.read() == before, f"a refused call wrote: {error}"
        return
    assert error is None, str(error)
    if served:
        fused[through] += 1
        judge(case, before, memory.read(), 0 if "position_errors" not in case else case["position_errors"])
        return
    # Eager's own result: the same numbers, whatever its NaN look like.
    expected = Memory(before)
    call_capi(case, expected)
    kind = Tensors(case, memory).dtypes[case["params"]["dtype"]]
    ours, truth = (torch.frombuffer(bytearray(m.read()), dtype=kind) for m in (memory, expected))
    bits = torch.int16 if kind.itemsize == 2 else torch.int32
    same = (ours.view(bits) == truth.view(bits)) | (ours.isnan() & truth.isnan())
    assert bool(same.all()), f"eager ({site.last_reason}) and the library disagree"


@pytest.mark.skipif(torch is None, reason="PyTorch is not installed")
def test_most_of_the_cases_were_served_by_the_kernels() -> None:
    """After the tests above: a run in which eager served everything would prove nothing."""
    least = len([name for name in SAYABLE if CASES[name]["status"] == 0]) * 3 // 4
    for through, count in fused.items():
        assert count >= least, f"{through}: {count} served by a kernel, at least {least} should be"
