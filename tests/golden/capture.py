#!/usr/bin/env python3
"""Writes what PyTorch eager gives on this machine's GPU: `capture.py OUTDIR [--device cpu] [--keys N]`.

index.json says everything: each case's call, how to make its inputs again, digests and where stored bytes lie;
digests over whole domains; versions. outputs.bin, inputs.bin, silu32.bin and demo.bin are raw little-endian
bytes. Needs torch and transformers, no network. A capture from a CPU is for trying only: there complex
multiplies are not fused, and the tests refuse it.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers

import cases
import chains
import demo_model
import domains
from cases import Case, Store
from generate import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, INT32, INT64

LIMIT_BYTES = 6 * 1000 * 1000

HALF, INTERLEAVED = (0, 0), (1, 1)
INTERLEAVED_TO_HALF = (1, 0)
COMPLEX, ADDCMUL_COS, ADDCMUL_X1 = 1, 3, 4
INVERSE, SUM_FROM_ZERO = 1, 2
SIGMOID = 1

SIXTEEN_BIT = (BFLOAT16, FLOAT16)
ALL = (BFLOAT16, FLOAT16, FLOAT32)

Make = Callable[..., Case]


# ------------------------------------------------------------------------------- silu_mul --


def silu_mul_cases(make: Make) -> Iterator[Case]:
    ordinary = {"gate": {"fill": "uniform", "scale": 3}, "up": {"fill": "uniform", "scale": 2}}
    tails = {"gate": {"fill": "uniform", "scale": 7}, "up": {"fill": "uniform", "scale": 2}}
    anything = {"gate": {"fill": "bits"}, "up": {"fill": "bits"}}
    special = {"gate": {"fill": "special"}, "up": {"fill": "special"}}
    forms = (
        ("aten", chains.silu_mul, {}),
        ("sigmoid", chains.sigmoid_mul, {"silu": SIGMOID}),
        ("float32", chains.silu_mul_float32, {"compute": FLOAT32}),
    )
    for f in SIXTEEN_BIT:
        for form, chain, fields in forms:
            make_form = partial(make, chain=chain, f=f, **fields)
            name = f"silu_mul/{form}/{f.name}"
            yield make_form(f"{name}/separate", shape=(2, 513, 3584), **ordinary)
            yield make_form(f"{name}/tails", shape=(1, 64, 352), **tails)
            yield make_form(f"{name}/bits", shape=(1, 128, 1024), **anything)
            yield make_form(f"{name}/special", shape=(1, 64, 64), **special)
        for layout in ("packed", "packed_swapped", "sliced", "in_place"):
            name = f"silu_mul/aten/{f.name}/{layout}"
            yield make(name, chain=chains.silu_mul, f=f, shape=(2, 33, 352), layout=layout, **ordinary)
        yield make(
            f"silu_mul/aten/{f.name}/odd", chain=chains.silu_mul, f=f, shape=(3, 7, 13), layout="packed", **ordinary
        )
    for form, chain, fields in forms[:2]:
        make_form = partial(make, chain=chain, f=FLOAT32, **fields)
        name = f"silu_mul/{form}/float32"
        yield make_form(f"{name}/separate", shape=(2, 65, 512), **ordinary)
        yield make_form(f"{name}/bits", shape=(1, 128, 1024), **anything)
        yield make_form(f"{name}/special", shape=(1, 64, 64), **special)


# ----------------------------------------------------------------------------------- rope --

BIG = {"batches": 2, "tokens": 257, "heads": (16, 16), "dim": 128}
SMALL = {"batches": 1, "tokens": 64, "heads": (3, 3), "dim": 64}
WIDE = {"batches": 1, "tokens": 33, "heads": (18, 18), "dim": 256}
GROUPED = {"batches": 1, "tokens": 65, "heads": (32, 8), "dim": 128}
BLOCK = {"batches": 1, "tokens": 32, "heads": (4, 2), "dim": 64}


def own_dtype(make: Make) -> Iterator[Case]:
    """Tables of the tensor's dtype, every step rounded to it."""
    for f in ALL:
        n = f.name
        yield make(f"rope/half/{n}/big", chains.rotate_half_chain, f, **BIG, full=True, layout="heads_first")
        yield make(f"rope/half/{n}/small_half_table", chains.rotate_half_doubled, f, **SMALL)
        yield make(f"rope/half/{n}/wide", chains.rotate_half_chain, f, **WIDE, full=True)
        yield make(f"rope/half/{n}/chunk_packed", chains.chunk_chain, f, **GROUPED, layout="packed")
        yield make(
            f"rope/half/{n}/chunk_in_place", chains.chunk_chain, f, **GROUPED, layout="packed", out="in_place"
        )
        yield make(
            f"rope/half/{n}/partial", chains.rotate_half_chain, f, **GROUPED, rotary=32, full=True, out="heads_first"
        )
        yield make(f"rope/half/{n}/partial_24_of_96", chains.rotate_half_chain, f, 2, 9, (5, 1), 96, rotary=24, full=True)
        yield make(f"rope/half/{n}/inverse", chains.rotate_half_inverse, f, **SMALL, full=True, flags=INVERSE)
        yield make(f"rope/half/{n}/head_dim_100", chains.chunk_chain, f, 3, 7, (3, 0), 100, layout="sliced")
        interleaved = {"pairing": INTERLEAVED}
        yield make(f"rope/interleaved/{n}/big", chains.stacked_chain, f, **BIG, **interleaved)
        yield make(f"rope/interleaved/{n}/full_table", chains.every_two_chain, f, **GROUPED, **interleaved, full=True)
        yield make(
            f"rope/interleaved/{n}/partial", chains.every_two_chain, f, **SMALL, **interleaved, rotary=32, full=True
        )
        for positions in (INT32, INT64):
            yield make(
                f"rope/interleaved/{n}/cache_{positions.name}", chains.stacked_chain, f, **GROUPED, **interleaved,
                table_layout="cache", positions=positions, rotary=64,
            )
        yield make(
            f"rope/half/{n}/cache_int64", chains.chunk_chain, f, **SMALL, table_layout="cache", positions=INT64
        )
        yield make(
            f"rope/deinterleaving/{n}", chains.deinterleaving_chain, f, 2, 33, (16, 1), 64,
            pairing=INTERLEAVED_TO_HALF, layout="sliced",
        )
        yield make(
            f"rope/half/{n}/table_per_batch", chains.rotate_half_chain, f, 3, 17, (4, 2), 64, full=True,
            table_batches=3,
        )


def wider_tables(make: Make) -> Iterator[Case]:
    """float32 inside and one rounding, by promotion or by request; float64 likewise."""
    for f in SIXTEEN_BIT:
        n = f.name
        wide = {"table": FLOAT32}
        yield make(f"rope/half/{n}/float32_table", chains.promoting_half, f, **BIG, **wide, full=True)
        yield make(
            f"rope/half/{n}/float32_table_asked", chains.float_half, f, **WIDE, **wide, full=True, compute=FLOAT32
        )
        yield make(f"rope/half/{n}/float32_compute", chains.float_half, f, **BIG, full=True, compute=FLOAT32)
        interleaved = {"pairing": INTERLEAVED}
        yield make(
            f"rope/interleaved/{n}/float32_table", chains.float_interleaved, f, **BIG, **wide, **interleaved,
            full=True, layout="heads_first",
        )
        yield make(f"rope/interleaved/{n}/strided_store", chains.strided_store, f, **SMALL, **wide, **interleaved)
        yield make(
            f"rope/interleaved/{n}/float32_compute", chains.float_interleaved, f, **GROUPED, **interleaved,
            full=True, compute=FLOAT32,
        )
        yield make(
            f"rope/interleaved/{n}/float32_table_per_head", chains.float_interleaved, f, 2, 19, (6, 6), 32, **wide,
            **interleaved, full=True, table_batches=2, table_heads=6,
        )
        yield make(
            f"rope/half/{n}/float32_table_partial", chains.promoting_half, f, **GROUPED, **wide, rotary=64, full=True
        )
    for f in ALL:
        n = f.name
        double = {"table": FLOAT64}
        yield make(
            f"rope/interleaved/{n}/float64_table", chains.strided_store, f, **GROUPED, **double, pairing=INTERLEAVED
        )
        yield make(
            f"rope/half/{n}/float64_compute", chains.double_half, f, **SMALL, table=FLOAT32, full=True,
            compute=FLOAT64,
        )


def fused_forms(make: Make) -> Iterator[Case]:
    for f in ALL:
        n = f.name
        interleaved = {"pairing": INTERLEAVED}
        for shape_name, shape in (("big", BIG), ("grouped", GROUPED)):
            yield make(
                f"rope/complex/{n}/{shape_name}", chains.complex_chain, f, **shape, **interleaved, table=FLOAT32,
                combine=COMPLEX, table_layout="cis",
            )
            yield make(
                f"rope/complex/{n}/float64_{shape_name}", chains.complex_double_chain, f, **shape, **interleaved,
                table=FLOAT64, combine=COMPLEX, table_layout="cis",
            )
        yield make(
            f"rope/complex/{n}/inverse", chains.complex_inverse_chain, f, **SMALL, **interleaved, table=FLOAT32,
            combine=COMPLEX, table_layout="cis", flags=INVERSE,
        )
        yield make(
            f"rope/complex/{n}/float64_by_promotion", chains.complex_chain, f, **SMALL, **interleaved,
            table=FLOAT64, combine=COMPLEX, table_layout="cis",
        )
        yield make(
            f"rope/addcmul_cos/{n}/float32_table", chains.addcmul_cos_chain, f, **BIG, table=FLOAT32,
            combine=ADDCMUL_COS, table_heads=16, table_batches=2,
        )
        yield make(f"rope/addcmul_cos/{n}", chains.addcmul_cos_chain, f, **WIDE, combine=ADDCMUL_COS)
        yield make(
            f"rope/addcmul_x1/{n}/float32_table", chains.addcmul_x1_chain, f, **BIG, **interleaved, table=FLOAT32,
            combine=ADDCMUL_X1, table_layout="matrix",
        )
        yield make(
            f"rope/addcmul_x1/{n}", chains.addcmul_x1_chain, f, **SMALL, **interleaved, combine=ADDCMUL_X1,
            table_layout="matrix",
        )
        yield make(
            f"rope/matrix_sum/{n}/float32_table", chains.matrix_sum_chain, f, **GROUPED, **interleaved,
            table=FLOAT32, flags=SUM_FROM_ZERO, table_layout="matrix",
        )
        yield make(
            f"rope/matrix_sum/{n}", chains.matrix_sum_chain, f, **GROUPED, **interleaved, flags=SUM_FROM_ZERO,
            table_layout="matrix",
        )


def extreme_values(make: Make) -> Iterator[Case]:
    """Special values, then any bit pattern at all, through each form."""
    for fill in ("special", "bits"):
        how = {"fill": {"fill": fill}, "table_fill": {"fill": fill}}
        for f in ALL:
            n = f"{f.name}/{fill}"
            interleaved, cis = {"pairing": INTERLEAVED}, {"table_layout": "cis"}
            yield make(f"rope/half/{n}", chains.chunk_chain, f, **BLOCK, **how)
            yield make(f"rope/half/{n}/partial", chains.rotate_half_chain, f, **BLOCK, **how, rotary=32, full=True)
            yield make(f"rope/interleaved/{n}", chains.every_two_chain, f, **BLOCK, **how, **interleaved, full=True)
            yield make(f"rope/half/{n}/float32", chains.float_half, f, **BLOCK, **how, full=True, compute=FLOAT32)
            yield make(
                f"rope/half/{n}/float32_table", chains.promoting_half, f, **BLOCK, **how, table=FLOAT32, full=True
            )
            yield make(
                f"rope/interleaved/{n}/float64_table", chains.strided_store, f, **BLOCK, **how, **interleaved,
                table=FLOAT64,
            )
            for table in (FLOAT32, FLOAT64):
                yield make(
                    f"rope/complex/{n}/{table.name}_table", chains.complex_chain, f, **BLOCK, **how, **interleaved,
                    **cis, table=table, combine=COMPLEX,
                )
            yield make(f"rope/addcmul_cos/{n}", chains.addcmul_cos_chain, f, **BLOCK, **how, combine=ADDCMUL_COS)
            yield make(
                f"rope/addcmul_x1/{n}", chains.addcmul_x1_chain, f, **BLOCK, **how, **interleaved, combine=ADDCMUL_X1
            )
            yield make(
                f"rope/matrix_sum/{n}", chains.matrix_sum_chain, f, **BLOCK, **how, **interleaved, flags=SUM_FROM_ZERO
            )


def true_tables(make: Make, device: str, input_store: Store) -> Iterator[Case]:
    """Angles as a model makes them, here with a base of 5e6: cos and sin are stored, never computed again."""
    tokens, dim = WIDE["tokens"], WIDE["dim"]
    frequency = 1.0 / (5e6 ** (torch.arange(0, dim, 2, dtype=torch.float32, device=device) / dim))
    angle = torch.outer(torch.arange(tokens, dtype=torch.float32, device=device), frequency)
    for f in ALL:
        tables = tuple(table.to(f.torch_dtype) for table in (angle.cos(), angle.sin()))
        yield make(
            f"rope/half/{f.name}/true_tables", chains.rotate_half_doubled, f, **WIDE, stored_tables=tables,
            input_store=input_store,
        )


# ---------------------------------------------------------------------------------- files --


def demo(device: str, store: Store) -> list[Case]:
    """The captured layer as two ordinary cases with stored inputs."""
    captured = demo_model.capture(device)
    q, k = captured["q"], captured["k"]
    if [t.shape[-1] for t in (q, k, captured["cos"])] != [q.shape[-1]] * 3 or captured["cos"].shape[0] != 1:
        raise RuntimeError("the model's tensors no longer have the shapes that this file expects")
    rope = Case("demo/rope", "rope", "transformers Qwen3", 0, device)
    batches, _, tokens, dim = q.shape
    rope.set(dtype=BFLOAT16.code, batches=batches, tokens=tokens, q_heads=q.shape[1], k_heads=k.shape[1])
    rope.set(head_dim=dim, rotary_dim=dim, table_width=dim, table_rows=tokens)
    for name, x in (("q", q), ("k", k)):
        heads = x.shape[1]
        rope.stored_buffer(name, x.transpose(1, 2), store)
        rope.point(f"{name}_in", name)
        rope.empty_buffer(f"{name}_out", BFLOAT16, x.numel())
        rope.point(f"{name}_out", f"{name}_out")
        for side in ("in", "out"):
            rope.set(
                **{
                    f"{name}_{side}_batch_stride": tokens * heads * dim,
                    f"{name}_{side}_token_stride": heads * dim,
                    f"{name}_{side}_head_stride": dim,
                }
            )
    for name in ("cos", "sin"):
        rope.stored_buffer(name, captured[name], store)
        rope.point(name, name)
        rope.set(**{f"{name}_token_stride": dim, f"{name}_element_stride": 1})
    for name in ("q_out", "k_out"):
        rope.output(name, captured[name].transpose(1, 2), store, whole=True)

    mlp = Case("demo/silu_mul", "silu_mul", "transformers Qwen3", 0, device)
    _, rows, cols = captured["gate"].shape
    mlp.set(dtype=BFLOAT16.code, batches=batches, rows=rows, cols=cols)
    for name in ("gate", "up"):
        mlp.stored_buffer(name, captured[name], store)
        mlp.point(name, name)
    mlp.empty_buffer("out", BFLOAT16, batches * rows * cols)
    mlp.point("out", "out")
    for name in ("gate", "up", "out"):
        mlp.set(**{f"{name}_batch_stride": rows * cols, f"{name}_row_stride": cols})
    mlp.output("out", captured["out"], store, whole=True)
    return [rope, mlp]


def versions(device: str) -> dict[str, Any]:
    facts = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "device_type": device,
        "device": platform.machine(),
    }
    if device == "cuda":
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"]
        facts["device"] = torch.cuda.get_device_name(0)
        facts["capability"] = "{}.{}".format(*torch.cuda.get_device_capability(0))
        facts["cuda"] = torch.version.cuda
        facts["driver"] = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    return facts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("outdir", type=Path)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--keys", type=int, default=domains.ALL_KEYS, help="keys of a domain, fewer for trying")
    arguments = parser.parse_args()
    device, directory = arguments.device, arguments.outdir
    if device == "cuda" and not torch.cuda.is_available():
        sys.exit("capture.py: no CUDA device; --device cpu is for trying only")
    if not 0 < arguments.keys <= domains.ALL_KEYS:
        sys.exit("capture.py: --keys must be in [1, 2^32]")
    directory.mkdir(parents=True, exist_ok=True)
    outputs, inputs, silu32, demo_store = (
        Store(directory, name) for name in ("outputs.bin", "inputs.bin", "silu32.bin", "demo.bin")
    )

    index: dict[str, Any] = {"format": 1, "captured_with": versions(device)}
    print(json.dumps(index["captured_with"]))
    index["cases"] = []
    seed = 1

    def make(factory: Callable[..., Case], name: str, *positional: Any, **named: Any) -> Case:
        nonlocal seed
        case = factory(outputs, device, seed, name, *positional, **named)
        seed = case.seed
        return case

    rope = partial(make, cases.rope_case)
    groups = (
        silu_mul_cases(partial(make, cases.silu_mul_case)),
        own_dtype(rope),
        wider_tables(rope),
        fused_forms(rope),
        extreme_values(rope),
        true_tables(rope, device, inputs),
        demo(device, demo_store),
    )
    for group in groups:
        for case in group:
            index["cases"].append(case.entry)
            print(case.line(), flush=True)
    names = [entry["name"] for entry in index["cases"]]
    if len(set(names)) != len(names):
        raise RuntimeError("two cases share a name")

    index["silu32_tables"] = {}
    for f in SIXTEEN_BIT:
        table = domains.silu32_table(f, device)
        differences = domains.libm_differences(f, table)
        index["silu32_tables"][f.name] = {
            "file": silu32.name,
            "offset": silu32.add(table),
            "entries_that_libm_gives_otherwise": differences,
        }
        print(f"silu32 {f.name}: {differences} of 65536 entries are not what libm's expf gives")
    index["domains"] = domains.capture(arguments.keys, device)

    for store in (outputs, inputs, silu32, demo_store):
        store.file.close()
    (directory / "index.json").write_text(json.dumps(index, indent=1) + "\n")
    total = sum(path.stat().st_size for path in directory.iterdir())
    print(f"{len(names)} cases, {total} bytes in {directory}")
    if total > LIMIT_BYTES:
        sys.exit(f"capture.py: more than {LIMIT_BYTES} bytes")
    return 0


if __name__ == "__main__":
    with torch.inference_mode():
        sys.exit(main())
