"""torch.ops.libbitexact: schemas, fakes, tracing, compiling."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch._subclasses.fake_tensor import FakeTensorMode

import libbitexact
from helpers import angles, assert_same, fused_calls, random, rope_site, silu_site
from libbitexact import _operators, chains
from libbitexact.numerics import Rope

Tensor = torch.Tensor
ops = torch.ops.libbitexact
SILU = "silu_mul/eager"
ROPE = f"rope/{Rope(rotary_dim=64)}"


def silu_arguments(device: str, shape: tuple[int, ...] = (4, 128)) -> tuple[Tensor, Tensor]:
    packed = random(shape, torch.bfloat16, device)
    gate, up = packed.chunk(2, dim=-1)
    return gate, up


def rope_arguments(device: str) -> tuple[Any, ...]:
    q, k = random((2, 7, 4, 64), torch.bfloat16, device), random((2, 7, 2, 64), torch.bfloat16, device, 1)
    return (q, k, *angles((7, 64), torch.bfloat16, device))


@pytest.mark.parametrize("shape", [(4, 128), (2, 3, 64)])
def test_opcheck_silu_mul(device: str, shape: tuple[int, ...]) -> None:
    gate, up = silu_arguments(device, shape)
    torch.library.opcheck(ops.silu_mul.default, (gate, up, SILU))
    torch.library.opcheck(ops.silu_mul_out.default, (gate, up, torch.empty_like(gate), SILU))
    wanting = gate.detach().clone().requires_grad_(), up.detach().clone().requires_grad_()
    torch.library.opcheck(ops.silu_mul.default, (*wanting, SILU))


def test_opcheck_rope(device: str) -> None:
    q, k, cos, sin = rope_arguments(device)
    permuted = q.transpose(1, 2).contiguous().transpose(1, 2)
    for x in (q, permuted):
        torch.library.opcheck(ops.rope.default, (x, cos, sin, None, ROPE))
        torch.library.opcheck(ops.rope_pair.default, (x, k, cos, sin, None, ROPE))
    torch.library.opcheck(ops.rope_out.default, (q, cos, sin, None, torch.empty_like(q), ROPE))
    outputs = torch.empty_like(q), torch.empty_like(k)
    torch.library.opcheck(ops.rope_pair_out.default, (q, k, cos, sin, None, *outputs, ROPE))
    torch.library.opcheck(ops.rope.default, (q.clone().requires_grad_(), cos, sin, None, ROPE))


def test_fake_and_meta_need_no_library(device: str) -> None:
    gate, up = silu_arguments(device)
    with FakeTensorMode() as mode:
        fake = libbitexact.fused_silu_mul(mode.from_tensor(gate), mode.from_tensor(up))
        assert fake.shape == gate.shape and fake.stride() == (64, 1)
    meta = libbitexact.fused_silu_mul(gate.to("meta"), up.to("meta"))
    assert meta.device.type == "meta" and meta.shape == gate.shape


def test_tracing_sees_one_operator(device: str) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    gate, up = silu_arguments(device)
    graph = make_fx(lambda g, u: libbitexact.fused_silu_mul(g, u))(gate, up)
    assert [n.target for n in graph.graph.nodes if n.op == "call_function"] == [ops.silu_mul.default]
    assert_same(graph(gate, up), functional.silu(gate) * up)


def test_a_dispatch_mode_sees_one_operator(device: str) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(function)
            return function(*args, **(kwargs or {}))

    gate, up = silu_arguments(device)
    with Watch():
        result = libbitexact.fused_silu_mul(gate, up)
    assert seen == [ops.silu_mul.default]
    assert_same(result, functional.silu(gate) * up)


def test_gradients_through_the_operator(device: str) -> None:
    gate, up = (t.clone().requires_grad_() for t in silu_arguments(device))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # PyTorch warns of operators that have no word on gradients
        ops.silu_mul(gate, up, SILU).float().sum().backward()
    same = [t.detach().clone().requires_grad_() for t in (gate, up)]
    (functional.silu(same[0]) * same[1]).float().sum().backward()
    assert_same(gate.grad, same[0].grad)
    assert _operators.site(SILU).counts["eager: gradients are wanted"] >= 1


def test_a_site_that_is_gone_is_named() -> None:
    gate, up = silu_arguments("cpu")
    with pytest.raises(LookupError, match="no site 'gone'"):
        ops.silu_mul(gate, up, "gone")


# ---------------------------------------------------------------------------------- compile --


def both(packed: Tensor, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
    gate, up = packed.chunk(2, dim=-1)
    hidden = libbitexact.fused_silu_mul(gate, up)
    return (hidden, *libbitexact.fused_rope(q, k, cos, sin, layout="bhsd"))


def both_eager(packed: Tensor, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
    gate, up = packed.chunk(2, dim=-1)
    how = Rope(rotary_dim=q.shape[-1], layout="bhsd")
    rotated = (chains.rope(x, cos, sin, None, how) for x in (q, k))
    return (functional.silu(gate) * up, *rotated)


def inputs(device: str, tokens: int) -> tuple[Tensor, ...]:
    q = random((2, tokens, 4, 64), torch.bfloat16, device).transpose(1, 2)
    k = random((2, tokens, 2, 64), torch.bfloat16, device, 1).transpose(1, 2)
    return (
        random((2, tokens, 256), torch.bfloat16, device, 2),
        q,
        k,
        *angles((tokens, 64), torch.bfloat16, device),
    )


@pytest.mark.compile
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled_whole_graph(device: str, mode: str) -> None:
    if mode == "reduce-overhead" and device == "cpu":
        pytest.skip("CUDA graphs need CUDA")
    torch._dynamo.reset()
    compiled = torch.compile(both, fullgraph=True, mode=mode)
    with torch.no_grad():
        for tokens in (8, 8, 8):
            for actual, expected in zip(
                compiled(*inputs(device, tokens)), both_eager(*inputs(device, tokens))
            ):
                assert_same(actual, expected)


@pytest.mark.parametrize("limit", [10.0, 3])
def test_traced_with_a_limit(device: str, limit: float) -> None:
    gate, up = (8 * x for x in silu_arguments(device, (4, 128)))
    torch._dynamo.reset()

    def call(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        return libbitexact.fused_silu_mul(gate, up, numerics="clamp_after", limit=limit)

    compiled = torch.compile(call, backend="eager", fullgraph=True)
    for _ in range(2):
        assert_same(compiled(gate, up), chains.silu_mul("clamp_after", limit)(gate, up))


@pytest.mark.compile
def test_compiled_with_dynamic_shapes(device: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(both, fullgraph=True, dynamic=True)
    with torch.no_grad():
        for tokens in (8, 5, 13, 1, 0):
            for actual, expected in zip(
                compiled(*inputs(device, tokens)), both_eager(*inputs(device, tokens))
            ):
                assert_same(actual, expected, strides=tokens > 1)


@pytest.mark.compile
def test_compiled_out_and_in_place(device: str) -> None:
    torch._dynamo.reset()

    def write(gate: Tensor, up: Tensor, out: Tensor) -> Tensor:
        libbitexact.fused_silu_mul(gate, up, out=out)
        return out + 0

    gate, up = silu_arguments(device)
    out = torch.empty_like(gate)
    with torch.no_grad():
        result = torch.compile(write, fullgraph=True)(gate, up, out)
    assert_same(result, functional.silu(gate) * up)
    assert_same(out, functional.silu(gate) * up)


@pytest.mark.compile
def test_compiled_intermediates_keep_eagers_strides(device: str) -> None:
    """A transposed intermediate reaches the operator as eager would hand it over."""
    torch._dynamo.reset()

    def chain(x: Tensor) -> Tensor:
        y = (x * 2).transpose(0, 1).contiguous().transpose(0, 1)
        return libbitexact.fused_silu_mul(y, y)

    x = random((7, 96), torch.bfloat16, device)
    with torch.no_grad():
        actual = torch.compile(chain, fullgraph=True)(x)
    y = (x * 2).transpose(0, 1).contiguous().transpose(0, 1)
    assert_same(actual, functional.silu(y) * y)


@pytest.mark.compile
def test_compiled_with_gradients(device: str) -> None:
    torch._dynamo.reset()
    gate, up = (t.clone().requires_grad_() for t in silu_arguments(device))
    torch.compile(lambda g, u: libbitexact.fused_silu_mul(g, u), fullgraph=True)(
        gate, up
    ).float().sum().backward()
    assert gate.grad is not None and up.grad is not None


@pytest.mark.compile
def test_a_site_inside_a_compiled_function(device: str) -> None:
    torch._dynamo.reset()
    silu, rope = silu_site(), rope_site(Rope(rotary_dim=64))
    q, k, cos, sin = rope_arguments(device)
    gate, up = silu_arguments(device)
    compiled = torch.compile(lambda: (silu(gate, up), *rope(q, k, cos, sin)), fullgraph=True)
    with torch.no_grad():
        for _ in range(3):
            hidden, q_out, _ = compiled()
    assert_same(hidden, functional.silu(gate) * up)
    assert_same(q_out, chains.rope(q, cos, sin, None, rope.rope))
    assert fused_calls(silu) >= 1 and fused_calls(rope) >= 1
