"""One golden case: the call as the ABI's params, how to make its buffers again, and what eager gave."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import generate
from generate import Format

Tensor = torch.Tensor

# Elements of an output that are stored besides its digest: all of a small one, else some stretches.
STORED_WHOLE = 2048
STRETCH = 256


class Store:
    """One file of raw little-endian bytes that the index points into."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        self.file = (directory / name).open("wb")

    def add(self, tensor: Tensor) -> int:
        """Appends the bits of a tensor; returns their byte offset."""
        offset = self.file.tell()
        carrier = generate.format_of(tensor).carrier
        self.file.write(tensor.contiguous().view(carrier).cpu().numpy().tobytes())
        return offset


class Case:
    """`buffers` are filled as `fill` says; `pointers` name a buffer and an element in it for each pointer."""

    def __init__(self, name: str, operation: str, chain: str, seed: int, device: str) -> None:
        self.device, self.seed = device, seed
        self.entry: dict[str, Any] = {
            "name": name,
            "operation": operation,
            "chain": chain,
            "params": {},
            "buffers": {},
            "pointers": {},
            "outputs": {},
        }
        self.data: dict[str, Tensor] = {}
        self.other_nan = 0  # NaN that eager gave in another pattern than the contract's

    def set(self, **params: int) -> None:
        """Zero is what the initialiser gives, so it need not be said."""
        self.entry["params"].update({name: int(value) for name, value in params.items() if value != 0})

    def buffer(self, name: str, f: Format, count: int, **how: Any) -> None:
        description = {"dtype": f.code, "count": int(count), "seed": self.seed, **how}
        self.seed += 1
        self.entry["buffers"][name] = description
        self.data[name] = generate.to_tensor(f, generate.fill(description), self.device)

    def stored_buffer(self, name: str, tensor: Tensor, store: Store) -> None:
        self.entry["buffers"][name] = {
            "dtype": generate.format_of(tensor).code,
            "count": tensor.numel(),
            "fill": "file",
            "file": store.name,
            "offset": store.add(tensor),
        }
        self.data[name] = tensor.contiguous().flatten()

    def empty_buffer(self, name: str, f: Format, count: int) -> None:
        """For an output: the loader fills it with its own mark."""
        self.entry["buffers"][name] = {"dtype": f.code, "count": int(count), "fill": "mark"}

    def point(self, pointer: str, buffer: str, element: int = 0) -> None:
        self.entry["pointers"][pointer] = {"buffer": buffer, "element": int(element)}

    def view(self, pointer: str, size: list[int], stride: list[int]) -> Tensor:
        at = self.entry["pointers"][pointer]
        return self.data[at["buffer"]].as_strided(size, stride, at["element"])

    def canonical(self, tensor: Tensor) -> Tensor:
        result = generate.canonical(tensor)
        self.other_nan += int((generate.to_bits(result) != generate.to_bits(tensor)).sum())
        return result

    def output(self, pointer: str, tensor: Tensor, store: Store, whole: bool = False) -> None:
        """`tensor` in the order of the flat index, NaN canonical where the contract says so."""
        flat = tensor.contiguous().flatten()
        if whole or flat.numel() <= STORED_WHOLE:
            starts, length = [0], flat.numel()
        else:
            starts, length = [0, flat.numel() // 2, flat.numel() - STRETCH], STRETCH
        self.entry["outputs"][pointer] = {
            "digest": f"{generate.tensor_digest(flat):016x}",
            "file": store.name,
            "stretches": [
                {"first": start, "count": length, "offset": store.add(flat[start : start + length])}
                for start in starts
            ],
        }

    def line(self) -> str:
        digests = " ".join(f"{name} {out['digest']}" for name, out in self.entry["outputs"].items())
        return f"case {self.entry['name']:44} {digests}"


# -------------------------------------------------------------------------------- silu_mul --


def silu_mul_case(
    store: Store,
    device: str,
    seed: int,
    name: str,
    chain: Callable[[Tensor, Tensor], Tensor],
    f: Format,
    shape: tuple[int, int, int],
    *,
    silu: int = 0,
    compute: Format | None = None,
    clamp: int = 0,
    limit: float = 0.0,
    layout: str = "separate",
    gate: dict[str, Any],
    up: dict[str, Any],
) -> Case:
    """layout: separate | packed (gate first) | packed_swapped | sliced (padded rows) | in_place.

    With a limit the chain takes it as its third argument.
    """
    case = Case(name, "silu_mul", chain.__name__, seed, device)
    batches, rows, cols = shape
    case.set(dtype=f.code, silu=silu, compute_dtype=compute.code if compute else 0)
    case.set(clamp=clamp, limit_bits=int(np.float32(limit).view(np.uint32)))
    case.set(batches=batches, rows=rows, cols=cols)
    row = 2 * cols if layout.startswith("packed") else cols + 24 if layout == "sliced" else cols
    if layout.startswith("packed"):
        case.buffer("packed", f, batches * rows * row, **gate)
        case.point("gate", "packed", cols if layout == "packed_swapped" else 0)
        case.point("up", "packed", 0 if layout == "packed_swapped" else cols)
    else:
        case.buffer("gate", f, batches * rows * row, **gate)
        case.buffer("up", f, batches * rows * row, **up)
        case.point("gate", "gate", 8 if layout == "sliced" else 0)
        case.point("up", "up", 16 if layout == "sliced" else 0)
    out_row = row if layout == "in_place" else cols
    if layout == "in_place":
        case.point("out", "gate")
    else:
        case.empty_buffer("out", f, batches * rows * cols)
        case.point("out", "out")
    for tensor, stride in (("gate", row), ("up", row), ("out", out_row)):
        case.set(**{f"{tensor}_batch_stride": rows * stride, f"{tensor}_row_stride": stride})
    views = [case.view(pointer, list(shape), [rows * row, row, 1]) for pointer in ("gate", "up")]
    case.output("out", case.canonical(chain(*views, limit) if clamp else chain(*views)), store)
    return case


# ------------------------------------------------------------------------------------ rope --


def head_strides(layout: str, batches: int, tokens: int, heads: int, dim: int) -> tuple[int, list[int], int]:
    """Elements of the buffer, (batch, token, head) strides, first element."""
    if layout == "heads_first":
        return batches * tokens * heads * dim, [heads * tokens * dim, dim, tokens * dim], 0
    if layout == "sliced":  # the last dim elements of wider heads
        wide = dim + 64
        return batches * tokens * heads * wide, [tokens * heads * wide, heads * wide, wide], 64
    return batches * tokens * heads * dim, [tokens * heads * dim, heads * dim, dim], 0


def add_heads(
    case: Case,
    f: Format,
    shape: tuple[int, int, tuple[int, int], int],
    layout: str,
    out: str,
    fill: dict[str, Any],
) -> dict[str, list[int]]:
    """q and k, in and out. Returns the (batch, token, head) strides of each pointer."""
    batches, tokens, heads, dim = shape
    strides: dict[str, list[int]] = {}
    if layout == "packed":
        row = (heads[0] + 2 * heads[1]) * dim
        case.buffer("qkv", f, batches * tokens * row, **fill)
        case.point("q_in", "qkv")
        case.point("k_in", "qkv", heads[0] * dim)
        strides["q_in"] = strides["k_in"] = [tokens * row, row, dim]
    for tensor, count in zip("qk", heads, strict=True):
        if count == 0:
            continue
        if layout != "packed":
            elements, strides[f"{tensor}_in"], first = head_strides(layout, batches, tokens, count, dim)
            case.buffer(tensor, f, elements, **fill)
            case.point(f"{tensor}_in", tensor, first)
        if out == "in_place":
            strides[f"{tensor}_out"] = strides[f"{tensor}_in"]
            case.entry["pointers"][f"{tensor}_out"] = dict(case.entry["pointers"][f"{tensor}_in"])
        else:
            elements, strides[f"{tensor}_out"], first = head_strides(out, batches, tokens, count, dim)
            case.empty_buffer(f"{tensor}_out", f, elements)
            case.point(f"{tensor}_out", f"{tensor}_out", first)
    for pointer, stride in strides.items():
        for axis, value in zip(("batch", "token", "head"), stride, strict=True):
            case.set(**{f"{pointer}_{axis}_stride": value})
    return strides


def add_tables(
    case: Case,
    f: Format,
    size: tuple[int, int, int, int],
    layout: str,
    fill: dict[str, Any],
    stored: tuple[Tensor, Tensor] | None,
    input_store: Store | None,
) -> list[Tensor]:
    """cos and sin of size (batch or 1, row, head or 1, width), returned as views of that size."""
    batches, rows, heads, width = size
    parts = {"separate": 1, "cache": 1, "cis": 2, "matrix": 4}[layout]
    entry_row = width * parts * (2 if layout == "cache" else 1)
    elements = batches * rows * heads * entry_row
    if stored is not None:
        for tensor, values in zip(("cos", "sin"), stored, strict=True):
            case.stored_buffer(tensor, values, input_store)
            case.point(tensor, tensor)
    elif layout == "separate":
        for tensor in ("cos", "sin"):
            case.buffer(tensor, f, elements, **fill)
            case.point(tensor, tensor)
    else:
        how = {"fill": "rotation", "scale": 0} if layout == "matrix" else fill
        case.buffer("table", f, elements, **how)
        case.point("cos", "table")
        case.point("sin", "table", {"cache": width, "cis": 1, "matrix": 2}[layout])
    stride = [
        rows * heads * entry_row if batches > 1 else 0,
        heads * entry_row,
        entry_row if heads > 1 else 0,
        parts,
    ]
    for tensor in ("cos", "sin"):
        for axis, value in zip(("batch", "token", "head", "element"), stride, strict=True):
            case.set(**{f"{tensor}_{axis}_stride": value})
    return [case.view(tensor, list(size), stride) for tensor in ("cos", "sin")]


def gathered(case: Case, tables: list[Tensor], f: Format, batches: int, tokens: int) -> list[Tensor]:
    """Adds positions and looks the rows up, as a model with a cache does."""
    case.set(positions_dtype=f.code, positions_batch_stride=tokens, positions_token_stride=1)
    case.buffer("positions", f, batches * tokens, fill="index", modulus=tables[0].shape[1])
    case.point("positions", "positions")
    at = case.view("positions", [batches * tokens], [1])
    return [table[0].index_select(0, at).unflatten(0, (batches, tokens)) for table in tables]


def rope_case(
    store: Store,
    device: str,
    seed: int,
    name: str,
    chain: Callable[[Tensor, Tensor, Tensor], Tensor],
    f: Format,
    batches: int,
    tokens: int,
    heads: tuple[int, int],
    dim: int,
    *,
    rotary: int | None = None,
    table: Format | None = None,
    compute: Format | None = None,
    combine: int = 0,
    pairing: tuple[int, int] = (0, 0),
    flags: int = 0,
    full: bool = False,
    layout: str = "dense",
    out: str = "dense",
    table_layout: str = "separate",
    table_batches: int = 1,
    table_heads: int = 1,
    positions: Format | None = None,
    fill: dict[str, Any] | None = None,
    table_fill: dict[str, Any] | None = None,
    stored_tables: tuple[Tensor, Tensor] | None = None,
    input_store: Store | None = None,
) -> Case:
    """layout: dense | heads_first | packed (qkv) | sliced. out: dense | heads_first | in_place.
    table_layout: separate | cis | matrix | cache ([cos, sin] in a row). The chain sees the rotated part."""
    case = Case(name, "rope", chain.__name__, seed, device)
    fill = fill or {"fill": "uniform", "scale": 2}
    table_fill = table_fill or {"fill": "uniform", "scale": 0}
    rotary = dim if rotary is None else rotary
    width = rotary if full else rotary // 2
    rows = tokens if positions is None else tokens + 90
    case.set(
        dtype=f.code, table_dtype=table.code if table else 0, compute_dtype=compute.code if compute else 0
    )
    case.set(combine=combine, pairing_in=pairing[0], pairing_out=pairing[1], flags=flags)
    case.set(batches=batches, tokens=tokens, q_heads=heads[0], k_heads=heads[1])
    case.set(head_dim=dim, rotary_dim=rotary, table_width=width, table_rows=rows)

    strides = add_heads(case, f, (batches, tokens, heads, dim), layout, out, fill)
    table_size = (table_batches, rows, table_heads, width)
    tables = add_tables(case, table or f, table_size, table_layout, table_fill, stored_tables, input_store)
    if positions is not None:
        tables = gathered(case, tables, positions, batches, tokens)

    # The chain on each tensor; a tail is concatenated, as models do, and keeps its bits.
    for tensor, count in zip("qk", heads, strict=True):
        if count == 0:
            continue
        x = case.view(f"{tensor}_in", [batches, tokens, count, dim], [*strides[f"{tensor}_in"], 1])
        rotated = chain(x[..., :rotary], *tables)
        if rotated.dtype != f.torch_dtype:
            raise RuntimeError(f"{name}: the chain returned {rotated.dtype}")
        whole = case.canonical(rotated)
        if rotary < dim:
            whole = torch.cat((whole, x[..., rotary:]), dim=-1)
        case.output(f"{tensor}_out", whole, store)
    return case
