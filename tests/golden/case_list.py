"""Which calls are captured: every numerics, layout and dtype, and special values through each form."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch

import chains
import demo_model
from cases import Case, Store
from generate import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, INT32, INT64

HALF, INTERLEAVED = (0, 0), (1, 1)
INTERLEAVED_TO_HALF = (1, 0)
COMPLEX, ADDCMUL_COS, ADDCMUL_X1 = 1, 3, 4
INVERSE, SUM_FROM_ZERO = 1, 2
SIGMOID, CANDLE, GLU = 1, 2, 3
BEFORE, AFTER = 1, 2

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
        ("candle", chains.candle_mul, {"silu": CANDLE}),
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
            f"silu_mul/aten/{f.name}/odd",
            chain=chains.silu_mul,
            f=f,
            shape=(3, 7, 13),
            layout="packed",
            **ordinary,
        )
    for form, chain, fields in forms[:2]:
        make_form = partial(make, chain=chain, f=FLOAT32, **fields)
        name = f"silu_mul/{form}/float32"
        yield make_form(f"{name}/separate", shape=(2, 65, 512), **ordinary)
        yield make_form(f"{name}/bits", shape=(1, 128, 1024), **anything)
        yield make_form(f"{name}/special", shape=(1, 64, 64), **special)


def gated_and_clamped_cases(make: Make) -> Iterator[Case]:
    """Come last, so that the seeds and bytes of older cases stay as they are."""
    ordinary = {"gate": {"fill": "uniform", "scale": 5}, "up": {"fill": "uniform", "scale": 5}}
    anything = {"gate": {"fill": "bits"}, "up": {"fill": "bits"}}
    special = {"gate": {"fill": "special"}, "up": {"fill": "special"}}
    forms = [("glu", chains.gated, {"silu": GLU}), ("glu_float32", chains.gated_float32, {"silu": GLU, "compute": FLOAT32})]
    for limit in (10.0, 0.3, 7.03):
        before, after = {"clamp": BEFORE, "limit": limit}, {"clamp": AFTER, "limit": limit}
        forms.append((f"before_{limit:g}", chains.clamp_before, before))
        forms.append((f"after_{limit:g}", chains.clamp_after, after))
        forms.append((f"before_float32_{limit:g}", chains.clamp_before_float32, {**before, "compute": FLOAT32}))
    for f in ALL:
        for form, chain, fields in forms:
            if f is FLOAT32 and "compute" in fields:
                continue
            make_form = partial(make, chain=chain, f=f, **fields)
            name = f"silu_mul/{form}/{f.name}"
            yield make_form(f"{name}/separate", shape=(2, 65, 512), **ordinary)
            yield make_form(f"{name}/bits", shape=(1, 128, 1024), **anything)
            yield make_form(f"{name}/special", shape=(1, 64, 64), **special)
        for layout in ("packed_swapped", "in_place"):
            name = f"silu_mul/before_10/{f.name}/{layout}"
            yield make(
                name,
                chain=chains.clamp_before,
                f=f,
                clamp=BEFORE,
                limit=10.0,
                shape=(2, 33, 352),
                layout=layout,
                **ordinary,
            )


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
            f"rope/half/{n}/partial",
            chains.rotate_half_chain,
            f,
            **GROUPED,
            rotary=32,
            full=True,
            out="heads_first",
        )
        yield make(
            f"rope/half/{n}/partial_24_of_96",
            chains.rotate_half_chain,
            f,
            2,
            9,
            (5, 1),
            96,
            rotary=24,
            full=True,
        )
        yield make(f"rope/half/{n}/inverse", chains.rotate_half_inverse, f, **SMALL, full=True, flags=INVERSE)
        yield make(f"rope/half/{n}/head_dim_100", chains.chunk_chain, f, 3, 7, (3, 0), 100, layout="sliced")
        interleaved = {"pairing": INTERLEAVED}
        yield make(f"rope/interleaved/{n}/big", chains.stacked_chain, f, **BIG, **interleaved)
        yield make(
            f"rope/interleaved/{n}/full_table", chains.every_two_chain, f, **GROUPED, **interleaved, full=True
        )
        yield make(
            f"rope/interleaved/{n}/partial",
            chains.every_two_chain,
            f,
            **SMALL,
            **interleaved,
            rotary=32,
            full=True,
        )
        for positions in (INT32, INT64):
            yield make(
                f"rope/interleaved/{n}/cache_{positions.name}",
                chains.stacked_chain,
                f,
                **GROUPED,
                **interleaved,
                table_layout="cache",
                positions=positions,
                rotary=64,
            )
        yield make(
            f"rope/half/{n}/cache_int64",
            chains.chunk_chain,
            f,
            **SMALL,
            table_layout="cache",
            positions=INT64,
        )
        yield make(
            f"rope/deinterleaving/{n}",
            chains.deinterleaving_chain,
            f,
            2,
            33,
            (16, 1),
            64,
            pairing=INTERLEAVED_TO_HALF,
            layout="sliced",
        )
        yield make(
            f"rope/half/{n}/table_per_batch",
            chains.rotate_half_chain,
            f,
            3,
            17,
            (4, 2),
            64,
            full=True,
            table_batches=3,
        )


def wider_tables(make: Make) -> Iterator[Case]:
    """float32 inside and one rounding, by promotion or by request; float64 likewise."""
    for f in SIXTEEN_BIT:
        n = f.name
        wide = {"table": FLOAT32}
        yield make(f"rope/half/{n}/float32_table", chains.promoting_half, f, **BIG, **wide, full=True)
        yield make(
            f"rope/half/{n}/float32_table_asked",
            chains.float_half,
            f,
            **WIDE,
            **wide,
            full=True,
            compute=FLOAT32,
        )
        yield make(f"rope/half/{n}/float32_compute", chains.float_half, f, **BIG, full=True, compute=FLOAT32)
        interleaved = {"pairing": INTERLEAVED}
        yield make(
            f"rope/interleaved/{n}/float32_table",
            chains.float_interleaved,
            f,
            **BIG,
            **wide,
            **interleaved,
            full=True,
            layout="heads_first",
        )
        yield make(
            f"rope/interleaved/{n}/strided_store", chains.strided_store, f, **SMALL, **wide, **interleaved
        )
        yield make(
            f"rope/interleaved/{n}/float32_compute",
            chains.float_interleaved,
            f,
            **GROUPED,
            **interleaved,
            full=True,
            compute=FLOAT32,
        )
        yield make(
            f"rope/interleaved/{n}/float32_table_per_head",
            chains.float_interleaved,
            f,
            2,
            19,
            (6, 6),
            32,
            **wide,
            **interleaved,
            full=True,
            table_batches=2,
            table_heads=6,
        )
        yield make(
            f"rope/half/{n}/float32_table_partial",
            chains.promoting_half,
            f,
            **GROUPED,
            **wide,
            rotary=64,
            full=True,
        )
    for f in ALL:
        n = f.name
        double = {"table": FLOAT64}
        yield make(
            f"rope/interleaved/{n}/float64_table",
            chains.strided_store,
            f,
            **GROUPED,
            **double,
            pairing=INTERLEAVED,
        )
        yield make(
            f"rope/half/{n}/float64_compute",
            chains.double_half,
            f,
            **SMALL,
            table=FLOAT32,
            full=True,
            compute=FLOAT64,
        )


def fused_forms(make: Make) -> Iterator[Case]:
    for f in ALL:
        n = f.name
        interleaved = {"pairing": INTERLEAVED}
        for shape_name, shape in (("big", BIG), ("grouped", GROUPED)):
            yield make(
                f"rope/complex/{n}/{shape_name}",
                chains.complex_chain,
                f,
                **shape,
                **interleaved,
                table=FLOAT32,
                combine=COMPLEX,
                table_layout="cis",
            )
            yield make(
                f"rope/complex/{n}/float64_{shape_name}",
                chains.complex_double_chain,
                f,
                **shape,
                **interleaved,
                table=FLOAT64,
                combine=COMPLEX,
                table_layout="cis",
            )
        yield make(
            f"rope/complex/{n}/inverse",
            chains.complex_inverse_chain,
            f,
            **SMALL,
            **interleaved,
            table=FLOAT32,
            combine=COMPLEX,
            table_layout="cis",
            flags=INVERSE,
        )
        yield make(
            f"rope/complex/{n}/float64_by_promotion",
            chains.complex_chain,
            f,
            **SMALL,
            **interleaved,
            table=FLOAT64,
            combine=COMPLEX,
            table_layout="cis",
        )
        yield make(
            f"rope/addcmul_cos/{n}/float32_table",
            chains.addcmul_cos_chain,
            f,
            **BIG,
            table=FLOAT32,
            combine=ADDCMUL_COS,
            table_heads=16,
            table_batches=2,
        )
        yield make(f"rope/addcmul_cos/{n}", chains.addcmul_cos_chain, f, **WIDE, combine=ADDCMUL_COS)
        yield make(
            f"rope/addcmul_x1/{n}/float32_table",
            chains.addcmul_x1_chain,
            f,
            **BIG,
            **interleaved,
            table=FLOAT32,
            combine=ADDCMUL_X1,
            table_layout="matrix",
        )
        yield make(
            f"rope/addcmul_x1/{n}",
            chains.addcmul_x1_chain,
            f,
            **SMALL,
            **interleaved,
            combine=ADDCMUL_X1,
            table_layout="matrix",
        )
        yield make(
            f"rope/matrix_sum/{n}/float32_table",
            chains.matrix_sum_chain,
            f,
            **GROUPED,
            **interleaved,
            table=FLOAT32,
            flags=SUM_FROM_ZERO,
            table_layout="matrix",
        )
        yield make(
            f"rope/matrix_sum/{n}",
            chains.matrix_sum_chain,
            f,
            **GROUPED,
            **interleaved,
            flags=SUM_FROM_ZERO,
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
            yield make(
                f"rope/half/{n}/partial", chains.rotate_half_chain, f, **BLOCK, **how, rotary=32, full=True
            )
            yield make(
                f"rope/interleaved/{n}", chains.every_two_chain, f, **BLOCK, **how, **interleaved, full=True
            )
            yield make(
                f"rope/half/{n}/float32", chains.float_half, f, **BLOCK, **how, full=True, compute=FLOAT32
            )
            yield make(
                f"rope/half/{n}/float32_table",
                chains.promoting_half,
                f,
                **BLOCK,
                **how,
                table=FLOAT32,
                full=True,
            )
            yield make(
                f"rope/interleaved/{n}/float64_table",
                chains.strided_store,
                f,
                **BLOCK,
                **how,
                **interleaved,
                table=FLOAT64,
            )
            for table in (FLOAT32, FLOAT64):
                yield make(
                    f"rope/complex/{n}/{table.name}_table",
                    chains.complex_chain,
                    f,
                    **BLOCK,
                    **how,
                    **interleaved,
                    **cis,
                    table=table,
                    combine=COMPLEX,
                )
            yield make(
                f"rope/addcmul_cos/{n}", chains.addcmul_cos_chain, f, **BLOCK, **how, combine=ADDCMUL_COS
            )
            yield make(
                f"rope/addcmul_x1/{n}",
                chains.addcmul_x1_chain,
                f,
                **BLOCK,
                **how,
                **interleaved,
                combine=ADDCMUL_X1,
            )
            sums = {**BLOCK, **how, **interleaved, "flags": SUM_FROM_ZERO}
            yield make(f"rope/matrix_sum/{n}", chains.matrix_sum_chain, f, **sums)
            if f == FLOAT32:
                continue  # its own tables are float32
            yield make(
                f"rope/matrix_sum/{n}/float32_table", chains.matrix_sum_chain, f, **sums, table=FLOAT32
            )
            yield make(
                f"rope/addcmul_cos/{n}/float32_table",
                chains.addcmul_cos_chain,
                f,
                **BLOCK,
                **how,
                combine=ADDCMUL_COS,
                table=FLOAT32,
            )
            yield make(
                f"rope/addcmul_x1/{n}/float32_table",
                chains.addcmul_x1_chain,
                f,
                **BLOCK,
                **how,
                **interleaved,
                combine=ADDCMUL_X1,
                table=FLOAT32,
            )


def true_tables(make: Make, device: str, input_store: Store) -> Iterator[Case]:
    """Angles as a model makes them, here with a base of 5e6: cos and sin are stored, never computed again."""
    tokens, dim = WIDE["tokens"], WIDE["dim"]
    frequency = 1.0 / (5e6 ** (torch.arange(0, dim, 2, dtype=torch.float32, device=device) / dim))
    angle = torch.outer(torch.arange(tokens, dtype=torch.float32, device=device), frequency)
    for f in ALL:
        tables = tuple(table.to(f.torch_dtype) for table in (angle.cos(), angle.sin()))
        yield make(
            f"rope/half/{f.name}/true_tables",
            chains.rotate_half_doubled,
            f,
            **WIDE,
            stored_tables=tables,
            input_store=input_store,
        )


# ----------------------------------------------------------------------------------- demo --


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
