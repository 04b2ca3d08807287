"""fused_silu_mul and fused_rope against PyTorch's operators: names, layouts, outputs."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

import libbitexact
from helpers import (
    DTYPES,
    angles,
    assert_same,
    fused_calls,
    only_accepted,
    random,
    rope_site,
    silu_site,
    states,
)
from libbitexact import capi, chains
from libbitexact.numerics import CLAMPED, ROPE, SILU_MUL, Rope


def fused_silu_exists(dtype: torch.dtype, numerics: str, device: str) -> bool:
    """What the library serves; the rest is told as UNSUPPORTED and runs eager."""
    on_host = dtype != torch.float32 and not numerics.endswith("fp32")
    # In float32 candle's chain is eager's, and PyTorch's glu is the chain of two operators.
    return on_host if device == "cpu" else not (dtype == torch.float32 and numerics == "candle")


def host_lacks(site: Any) -> bool:
    return any("HOST_LIBM" in reason for reason in site.counts)


# ----------------------------------------------------------------------------- silu_mul --


@pytest.mark.parametrize("numerics", SILU_MUL)
@pytest.mark.parametrize("dtype", DTYPES)
def test_silu_mul_equals_its_chain(device: str, dtype: torch.dtype, numerics: str) -> None:
    site = silu_site(numerics)
    for seed in range(3):
        gate, up = random((3, 5, 64), dtype, device, seed), random((3, 5, 64), dtype, device, seed + 9)
        assert_same(site(gate, up), chains.SILU_MUL[numerics](gate, up))
    if device == "cpu" and numerics in ("sigmoid", "glu") and states(site) == {capi.STATE_DECLINED}:
        assert (
            "matches no named chain" in site.notes[-1]
        )  # PyTorch's sigmoid on a CPU depends on the processor
    elif fused_silu_exists(dtype, numerics, device) and not host_lacks(site):
        assert only_accepted(site) and fused_calls(site) == 2
    else:
        assert fused_calls(site) == 0 and site.last_reason is not None


@pytest.mark.parametrize("limit", [10, 0.3])
@pytest.mark.parametrize("numerics", CLAMPED)
@pytest.mark.parametrize("dtype", DTYPES)
def test_silu_mul_with_a_limit(device: str, dtype: torch.dtype, numerics: str, limit: float) -> None:
    site = silu_site(numerics, limit=limit)
    for seed in range(3):
        gate, up = (4 * random((3, 5, 64), dtype, device, seed + n) for n in (0, 9))
        assert_same(site(gate, up), chains.silu_mul(numerics, limit)(gate, up))
    if fused_silu_exists(dtype, numerics, device) and not host_lacks(site):
        assert only_accepted(site) and fused_calls(site) == 2
    else:
        assert fused_calls(site) == 0 and site.last_reason is not None


def test_another_limit_is_declined(device: str) -> None:
    site = silu_site("clamp_before", lambda g, u: chains.silu_mul("clamp_before", 7.0)(g, u), limit=10.0)
    gate, up = (4 * random((3, 5, 64), torch.bfloat16, device, seed) for seed in (1, 2))
    for _ in range(2):
        assert_same(site(gate, up), chains.silu_mul("clamp_before", 7.0)(gate, up))
    assert states(site) == {capi.STATE_DECLINED}


def test_a_limit_that_live_tensors_do_not_reach_is_tried(device: str) -> None:
    """A chain that leaves `up` alone: no live number tells, so the crafted ones have to."""
    site = silu_site("clamp_before", lambda g, u: functional_silu(g.clamp(max=10.0)) * u, limit=10.0)
    gate, up = (random((3, 5, 64), torch.bfloat16, device, seed) for seed in (1, 2))
    for _ in range(2):
        assert_same(site(gate, up), functional_silu(gate) * up)
    assert states(site) == {capi.STATE_DECLINED}


def test_limits_of_the_function(device: str) -> None:
    gate, up = (4 * random((3, 64), torch.bfloat16, device, seed) for seed in (1, 2))
    for limit in (10, 2.5):
        expected = chains.silu_mul("clamp_after", limit)(gate, up)
        for _ in range(2):
            assert_same(libbitexact.fused_silu_mul(gate, up, numerics="clamp_after", limit=limit), expected)
        name = f"silu_mul/clamp_after/{float(limit)}"
        assert_same(torch.ops.libbitexact.silu_mul(gate, up, name), expected)
    for numerics, limit in (("clamp_after", None), ("eager", 10.0), ("clamp_before", 0.0), ("clamp_before", -1.0),
                            ("clamp_before", float("nan")), ("clamp_before", float("inf")), ("clamp_before", 1e39),
                            ("clamp_before", 1e-50), ("clamp_before", "10")):
        with pytest.raises(ValueError, match="limit is"):
            libbitexact.fused_silu_mul(gate, up, numerics=numerics, limit=limit)


def silu_layouts(dtype: torch.dtype, device: str) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    packed = random((6, 10, 128), dtype, device)
    padded = random((6, 10, 96), dtype, device, 1)
    flat = random((6 * 64 * 10 + 1,), dtype, device, 2)
    return {
        "halves": tuple(packed.chunk(2, dim=-1)),  # type: ignore[dict-item]
        "other half first": (packed[..., 64:], packed[..., :64]),
        "rows cut off": (padded[..., 3:67], padded[..., 5:69]),
        "odd address": (flat[1:].view(6, 10, 64), flat[:-1].view(6, 10, 64)),
        "transposed": (packed[..., :64].transpose(0, 1), packed[..., 64:].transpose(0, 1)),
        "every other row": (packed[:, ::2, :64], packed[:, 1::2, 64:]),
        "columns first": (random((64, 10), dtype, device).t(), random((64, 10), dtype, device, 3).t()),
        "one dim": (flat[:77], flat[100:177]),
        "no dim": (flat[5], flat[6]),
        "four dims": (random((2, 3, 4, 8), dtype, device), random((2, 3, 4, 8), dtype, device, 4)),
        "empty": (packed[:0, :, :64], packed[:0, :, 64:]),
        "no columns": (packed[..., :0], packed[..., :0]),
        "expanded": (packed[:1, :, :64].expand(6, 10, 64), packed[..., 64:]),
        "every other column": (packed[..., ::2], packed[..., 1::2]),
    }


@pytest.mark.parametrize("name", silu_layouts(torch.bfloat16, "cpu"))
def test_silu_mul_takes_every_layout(device: str, name: str) -> None:
    gate, up = silu_layouts(torch.bfloat16, device)[name]
    site = silu_site()
    for _ in range(2):
        assert_same(site(gate, up), torch.nn.functional.silu(gate) * up)
    if name == "every other column":
        assert fused_calls(site) == 0 or only_accepted(site)
    elif gate.numel():
        assert fused_calls(site) == 1, site.counts


def test_silu_mul_writes_where_told(device: str) -> None:
    gate, up = random((8, 64), torch.bfloat16, device), random((8, 64), torch.bfloat16, device, 1)
    expected = torch.nn.functional.silu(gate) * up
    site = silu_site()
    buffer = torch.full((8, 100), 7.0, dtype=torch.bfloat16, device=device)
    for _ in range(3):
        out = buffer[:, 4:68]
        version = out._version
        assert site(gate, up, out) is out and out._version > version
        assert_same(out, expected, strides=False)
        assert (buffer[:, :4] == 7).all() and (buffer[:, 68:] == 7).all()
    for target in ("gate", "up"):
        for _ in range(2):
            g, u = gate.clone(), up.clone()
            out = g if target == "gate" else u
            assert site(g, u, out) is out
            assert_same(out, expected)
    assert only_accepted(site) and fused_calls(site) >= 3


def test_an_output_that_overlaps_is_refused(device: str) -> None:
    buffer = random((9, 64), torch.bfloat16, device)
    site = silu_site()
    site(buffer[:8], buffer[1:])
    before = buffer.clone()
    with pytest.raises(ValueError, match="overlap"):
        site(buffer[:8], buffer[:8], buffer[1:])
    assert_same(buffer, before)


def test_shapes_that_broadcast_run_eager(device: str) -> None:
    gate, up = random((4, 64), torch.bfloat16, device), random((64,), torch.bfloat16, device)
    assert_same(libbitexact.fused_silu_mul(gate, up), torch.nn.functional.silu(gate) * up)


def test_an_unknown_chain_is_refused() -> None:
    x = torch.ones(4)
    with pytest.raises(ValueError, match="'eager'"):
        libbitexact.fused_silu_mul(x, x, numerics="fast")
    with pytest.raises(ValueError, match="'complex64'"):
        libbitexact.fused_rope(x.view(1, 4), None, x.view(1, 4), x.view(1, 4), numerics="fast")


# ----------------------------------------------------------------------------------- rope --


def narrows(numerics: str, table: torch.dtype) -> bool:
    """No chain computes in less than its tables hold."""
    if numerics in ("fp32", "complex64", "addcmul_fp32"):
        return table == torch.float64
    return numerics == "complex128" and table != torch.float64


CHAINS = [
    (dtype, numerics, table)
    for dtype, numerics, table in itertools.product(DTYPES, ROPE, {*DTYPES, torch.float64})
    if table in (dtype, torch.float32, torch.float64) and not narrows(numerics, table)
]


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("dtype, numerics, table", CHAINS, ids=str)
def test_rope_equals_its_chain(
    device: str, dtype: torch.dtype, numerics: str, table: torch.dtype, pairing: str
) -> None:
    for width, inverse in ((32, False), (16, True)):
        if width == 32 and numerics.startswith("complex"):
            continue  # a complex number holds one cos and one sin for the pair
        how = Rope(numerics, pairing, rotary_dim=32, inverse=inverse)
        site = rope_site(how)
        cos, sin = angles((11, 16), table, device)
        if width == 32:
            repeat = (
                (lambda t: torch.cat((t, t), -1))
                if pairing == "half"
                else (lambda t: t.repeat_interleave(2, -1))
            )
            cos, sin = repeat(cos), repeat(sin)
        for seed in range(2):
            q, k = (
                random((2, 11, 6, 32), dtype, device, seed),
                random((2, 11, 2, 32), dtype, device, seed + 5),
            )
            q_out, k_out = site(q, k, cos, sin)
            assert_same(q_out, chains.rope(q, cos, sin, None, how))
            assert_same(k_out, chains.rope(k, cos, sin, None, how))
        assert fused_calls(site) == 1, (site.counts, site.notes, list(site.verdicts()))


LAYOUTS = {
    "bshd": (lambda x: x, "bshd"),
    "bhsd": (lambda x: x.contiguous().transpose(1, 2), "bhsd"),
    "bhsd dense": (lambda x: x.transpose(1, 2).contiguous(), "bhsd"),
    "bshd of a bhsd": (lambda x: x.transpose(1, 2).contiguous().transpose(1, 2), "bshd"),
    "shd": (lambda x: x[0], "bshd"),
    "hsd": (lambda x: x[0].transpose(0, 1), "bhsd"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rotary_dim", [64, 24])
def test_rope_takes_every_layout_and_gives_eagers_strides(device: str, layout: str, rotary_dim: int) -> None:
    arrange, order = LAYOUTS[layout]
    packed = random((2, 7, 3 * 6 * 64), torch.bfloat16, device).unflatten(-1, (18, 64))
    q, k = arrange(packed[:, :, :6]), arrange(packed[:, :, 6:8])
    cos, sin = angles((7, rotary_dim), torch.bfloat16, device)
    how = Rope(rotary_dim=rotary_dim, layout=order)
    site = rope_site(how)
    for _ in range(2):
        q_out, k_out = site(q, k, cos, sin)
        assert_same(q_out, chains.rope(q, cos, sin, None, how))
        assert_same(k_out, chains.rope(k, cos, sin, None, how))
    assert fused_calls(site) == 1 and only_accepted(site)


@pytest.mark.parametrize(
    "shape",
    [
        (7, 64),
        (1, 7, 64),
        (2, 7, 64),
        (1, 7, 1, 64),
        (2, 7, 1, 64),
        (2, 1, 1, 64),
        (1, 7, 4, 64),
        (1, 1, 1, 64),
    ],
)
def test_tables_broadcast(device: str, shape: tuple[int, ...]) -> None:
    q, k = random((2, 7, 4, 64), torch.float16, device), random((2, 7, 4, 64), torch.float16, device, 1)
    cos, sin = angles(shape, torch.float16, device)
    site = rope_site(Rope(rotary_dim=64))
    full = [t if t.dim() == 4 else t.unsqueeze(-2) for t in (cos, sin)]
    for _ in range(2):
        for out, x in zip(site(q, k, cos, sin), (q, k)):
            assert_same(out, x * full[0] + torch.cat((-x[..., 32:], x[..., :32]), -1) * full[1])
    assert fused_calls(site) == 1


def test_positions_gather_rows(device: str) -> None:
    q = random((2, 5, 4, 32), torch.bfloat16, device)
    cos, sin = angles((40, 32), torch.float32, device)
    for dtype, shape in itertools.product((torch.int32, torch.int64), ((5,), (1, 5), (2, 5))):
        positions = (
            torch.randint(0, 40, shape, generator=torch.Generator().manual_seed(3)).to(dtype).to(device)
        )
        site = rope_site(Rope("fp32", rotary_dim=32))
        for _ in range(2):
            rows = [t[positions.long()].unsqueeze(-2) for t in (cos, sin)]
            rotated = torch.cat((-q[..., 16:], q[..., :16]), -1).float()
            assert_same(
                site(q, None, cos, sin, positions), (q.float() * rows[0] + rotated * rows[1]).to(q.dtype)
            )
        assert fused_calls(site) == 1


def test_complex_tables(device: str) -> None:
    q = random((2, 9, 4, 64), torch.bfloat16, device)
    angle = random((9, 32), torch.float64, device, 4)
    for table in (
        torch.polar(torch.ones_like(angle), angle).to(torch.complex64),
        torch.polar(torch.ones_like(angle), angle),
    ):
        wide = table.real.dtype
        name = "complex64" if wide == torch.float32 else "complex128"

        def chain(q: Any, k: Any, cos: Any, sin: Any, positions: Any) -> Any:
            pairs = torch.view_as_complex(q.to(wide).unflatten(-1, (-1, 2)))
            return torch.view_as_real(pairs * cos[None, :, None]).flatten(-2).to(q.dtype)

        site = rope_site(Rope(name, "interleaved"), chain)
        for _ in range(2):
            assert_same(site(q, None, table), chain(q, None, table, None, None))
        assert fused_calls(site) == 1, (site.notes, site.counts)
        assert_same(
            libbitexact.fused_rope(q, None, table, numerics=name, pairing="interleaved"),
            chain(q, None, table, None, None),
        )


def test_matrix_tables_are_strided_real_ones(device: str) -> None:
    q = random((3, 2, 32), torch.bfloat16, device)
    cos, sin = angles((3, 16), torch.float32, device)
    matrix = torch.stack((cos, -sin, sin, cos), -1).unflatten(-1, (2, 2))
    site = rope_site(Rope("fp32", "interleaved", rotary_dim=32))
    for _ in range(2):
        out = site(q, None, matrix[..., 0, 0], matrix[..., 1, 0])
        assert_same(out, chains.rope(q, cos, sin, None, site.rope))
    assert fused_calls(site) == 1


def test_deinterleaving(device: str) -> None:
    q = random((2, 5, 4, 32), torch.bfloat16, device)
    cos, sin = angles((5, 16), torch.bfloat16, device)
    how = Rope("eager", "interleaved", "half", rotary_dim=32)
    site = rope_site(how)
    c, s = cos[:, None], sin[:, None]
    expected = torch.cat((q[..., ::2] * c - q[..., 1::2] * s, q[..., 1::2] * c + q[..., ::2] * s), -1)
    for _ in range(2):
        assert_same(site(q, None, cos, sin), expected)
    assert fused_calls(site) == 1


def test_rope_writes_where_told(device: str) -> None:
    q, k = random((2, 5, 4, 32), torch.bfloat16, device), random((2, 5, 2, 32), torch.bfloat16, device, 1)
    cos, sin = angles((5, 32), torch.bfloat16, device)
    how = Rope(rotary_dim=32)
    expected = [chains.rope(x, cos, sin, None, how) for x in (q, k)]
    site = rope_site(how)
    for _ in range(2):
        a, b = q.clone(), k.clone()
        q_out, k_out = site(a, b, cos, sin, None, a, b)
        assert q_out is a and k_out is b
        assert_same(a, expected[0])
        assert_same(b, expected[1])
    out = torch.empty_like(q)
    assert libbitexact.fused_rope(q, None, cos, sin, q_out=out) is out
    assert_same(out, expected[0])
    assert fused_calls(site) >= 1


def test_packed_heads(device: str) -> None:
    q = random((5, 4 * 32), torch.bfloat16, device)
    cos, sin = angles((5, 32), torch.bfloat16, device)
    expected = chains.rope(q.unflatten(-1, (4, 32)), cos, sin, None, Rope(rotary_dim=32)).flatten(-2)
    for _ in range(2):
        assert_same(libbitexact.fused_rope(q, None, cos, sin, head_dim=32), expected)


def test_tables_of_half_width_need_rotary_dim() -> None:
    q, table = torch.ones(5, 4, 32), torch.ones(5, 16)
    with pytest.raises(ValueError, match="rotary_dim"):
        libbitexact.fused_rope(q, None, table, table)
    libbitexact.fused_rope(q, None, table, table, rotary_dim=32)


def test_the_tail_keeps_nan_payloads(device: str) -> None:
    q = random((1, 2, 2, 32), torch.bfloat16, device)
    q.view(torch.int16)[..., 20] = 0x7FA5
    cos, sin = angles((2, 16), torch.bfloat16, device)
    site = rope_site(Rope(rotary_dim=16))
    for _ in range(2):
        assert (site(q, None, cos, sin).view(torch.int16)[..., 20] == 0x7FA5).all()
    assert fused_calls(site) == 1


# ------------------------------------------------------------------------------- specials --


def test_known_hard_values(device: str) -> None:
    """Where chains that nearly agree do not: figures worked out by hand."""

    def tensor(*patterns: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        integer = torch.int16 if dtype != torch.float32 else torch.int32
        signed = [p - (1 << 32) if dtype == torch.float32 and p >= 1 << 31 else p for p in patterns]
        signed = [p - (1 << 16) if dtype != torch.float32 and p >= 1 << 15 else p for p in signed]
        return torch.tensor(signed, dtype=integer).view(dtype).to(device)

    for dtype, x, c, s, expected in (
        (torch.bfloat16, (0x3E10, 0xBEF5), 0xBF1F, 0x3F49, 0x3E93),
        (torch.float16, (0xBE82, 0xB3A3), 0xB79D, 0xBB09, 0x3883),
        (torch.float32, (0xC0023096, 0x3FF51C56), 0xBF02BB02, 0x3F5C1A7D, 0xBF1B8C52),
    ):
        q, cos, sin = (
            tensor(*x, dtype=dtype).view(1, 1, 2),
            tensor(c, dtype=dtype).view(1, 1),
            tensor(s, dtype=dtype).view(1, 1),
        )
        site = rope_site(Rope(rotary_dim=2))
        for _ in range(2):
            assert_same(site(q, None, cos, sin)[0, 0, :1], tensor(expected, dtype=dtype), strides=False)
        assert fused_calls(site) == 1
    site = silu_site()
    for _ in range(2):
        assert_same(site(tensor(0xC2B1), tensor(0x3C24)), tensor(0x8023))
    assert fused_calls(site) == 1


def test_beyond_two_to_the_31_elements_by_stride() -> None:
    """Offsets over 2 GiB, in a buffer that is reserved but barely touched."""
    try:
        buffer = torch.empty(2**31 + 4096, dtype=torch.bfloat16)
    except RuntimeError as error:
        pytest.skip(f"no address space for 4 GiB: {error}")
    rows = buffer.as_strided((2, 64), (2**31, 1))
    rows.copy_(random((2, 64), torch.bfloat16, "cpu"))
    up = random((2, 64), torch.bfloat16, "cpu", 1)
    site = silu_site()
    for _ in range(2):
        assert_same(site(rows, up), torch.nn.functional.silu(rows) * up)
    assert fused_calls(site) == 1
    q = rows.view(2, 1, 64)
    cos, sin = angles((2, 64), torch.bfloat16, "cpu")
    site = rope_site(Rope(rotary_dim=64))
    for _ in range(2):
        assert_same(site(q, None, cos, sin), chains.rope(q, cos, sin, None, site.rope))
    assert fused_calls(site) == 1


def test_both_layers_have_the_codes_of_the_library() -> None:
    assert capi.STATUS_UNVERIFIED == 200 and capi.STATUS_DECLINED == 201 and capi.STATUS_CAPTURING == 202


# -------------------------------------------------------------------------------- strides --


def arranged(generator: torch.Generator, shape: tuple[int, ...], device: str) -> torch.Tensor:
    """A tensor of that shape, its axes in some order, perhaps cut out; the last axis contiguous."""
    order = torch.randperm(len(shape) - 1, generator=generator).tolist() + [len(shape) - 1]
    padding = torch.randint(0, 2, (len(shape),), generator=generator).tolist()
    padding = padding if int(torch.randint(0, 2, (1,), generator=generator)) else [0] * len(shape)
    stored = [shape[axis] + pad for axis, pad in zip(order, padding)]
    whole = torch.randn(stored, generator=generator).bfloat16().to(device)
    cut = whole[tuple(slice(pad, None) for pad in padding)]
    return cut.permute([order.index(axis) for axis in range(len(shape))])


def test_results_lie_as_eagers_do_whatever_the_shapes(device: str) -> None:
    """One site for hundreds of layouts: what it learned from one shape must hold for every other."""
    generator = torch.Generator().manual_seed(17)
    silu = silu_site()
    ropes = {
        (layout, rotary_dim): rope_site(Rope(rotary_dim=rotary_dim, layout=layout))
        for layout in ("bshd", "bhsd")
        for rotary_dim in (16, 8)
    }
    sizes = (1, 1, 2, 3, 5)
    for _ in range(150):
        ndim = int(torch.randint(1, 5, (1,), generator=generator))
        picked = torch.randint(0, len(sizes), (ndim - 1,), generator=generator).tolist()
        shape = tuple(sizes[i] for i in picked) + (16,)
        gate, up = arranged(generator, shape, device), arranged(generator, shape, device)
        assert_same(silu(gate, up), functional_silu(gate) * up)

        picked = torch.randint(0, len(sizes), (4,), generator=generator).tolist()
        batches, tokens, heads, k_heads = (sizes[i] for i in picked)
        (layout, rotary_dim), site = list(ropes.items())[int(torch.randint(0, 4, (1,), generator=generator))]
        arrange = (batches, tokens, heads, 16) if layout == "bshd" else (batches, heads, tokens, 16)
        arrange_k = (batches, tokens, k_heads, 16) if layout == "bshd" else (batches, k_heads, tokens, 16)
        q, k = arranged(generator, arrange, device), arranged(generator, arrange_k, device)
        cos, sin = (arranged(generator, (batches, tokens, rotary_dim), device) for _ in range(2))
        for out, x in zip(site(q, k, cos, sin), (q, k)):
            assert_same(out, chains.rope(x, cos, sin, None, site.rope))
    calls = fused_calls(silu), sum(map(fused_calls, ropes.values()))
    assert calls[0] > 40 and calls[1] > 40, calls


def functional_silu(gate: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.silu(gate)
