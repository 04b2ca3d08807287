"""CUDA only: streams, graphs, devices, sizes beyond 32 bits."""

from __future__ import annotations

from typing import Any, Callable

import pytest
import torch
import torch.nn.functional as functional

from helpers import angles, assert_same, fused_calls, only_accepted, random, rope_site, silu_site
from libbitexact import capi, chains
from libbitexact.numerics import Rope

pytestmark = pytest.mark.gpu
Tensor = torch.Tensor


def captured(work: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = work()
    return graph, result


def test_a_graph_replays_the_fused_kernels() -> None:
    gate, up = random((33, 512), torch.bfloat16, "cuda"), random((33, 512), torch.bfloat16, "cuda", 1)
    q, k = random((2, 9, 4, 64), torch.bfloat16, "cuda"), random((2, 9, 2, 64), torch.bfloat16, "cuda", 1)
    cos, sin = angles((9, 64), torch.bfloat16, "cuda")
    silu, rope = silu_site(), rope_site(Rope(rotary_dim=64))
    for _ in range(2):
        silu(gate, up)
        rope(q, k, cos, sin)
    before = fused_calls(silu), fused_calls(rope)
    graph, (hidden, (q_out, k_out)) = captured(lambda: (silu(gate, up), rope(q, k, cos, sin)))
    assert (fused_calls(silu), fused_calls(rope)) == (before[0] + 1, before[1] + 1)
    for seed in (3, 4):
        gate.copy_(random((33, 512), torch.bfloat16, "cuda", seed))
        q.copy_(random((2, 9, 4, 64), torch.bfloat16, "cuda", seed))
        graph.replay()
        assert_same(hidden, functional.silu(gate) * up)
        assert_same(q_out, chains.rope(q, cos, sin, None, rope.rope))
        assert_same(k_out, chains.rope(k, cos, sin, None, rope.rope))


def test_an_undecided_kernel_runs_eager_in_a_capture() -> None:
    gate, up = random((33, 512), torch.bfloat16, "cuda"), random((33, 512), torch.bfloat16, "cuda", 1)
    site = silu_site()
    functional.silu(gate) * up
    torch.cuda.synchronize()
    graph, result = captured(lambda: site(gate, up))
    graph.replay()
    assert_same(result, functional.silu(gate) * up)
    assert fused_calls(site) == 0 and "capture" in site.last_reason
    for _ in range(2):
        site(gate, up)
    assert only_accepted(site) and fused_calls(site) == 1


def test_a_stream_is_the_callers() -> None:
    gate, up = random((512, 4096), torch.bfloat16, "cuda"), random((512, 4096), torch.bfloat16, "cuda", 1)
    site = silu_site()
    for _ in range(2):
        site(gate, up)
    expected = functional.silu(gate) * up
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
        late = gate * 1
        result = site(late, up)
        assert not side.query(), "the call waited for the stream"
    side.synchronize()
    assert_same(result, expected)


def test_mixed_devices_run_eager() -> None:
    site = silu_site()
    gate = random((4, 64), torch.bfloat16, "cuda")
    with pytest.raises(RuntimeError):  # as eager does
        site(gate, gate.cpu())


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_another_device_than_the_current_one() -> None:
    gate, up = random((4, 64), torch.bfloat16, "cuda:1"), random((4, 64), torch.bfloat16, "cuda:1", 1)
    site = silu_site()
    with torch.cuda.device(0):
        for _ in range(2):
            assert_same(site(gate, up), functional.silu(gate) * up)
        assert torch.cuda.current_device() == 0
    assert fused_calls(site) == 1


def test_more_than_two_to_the_31_elements() -> None:
    free, _ = torch.cuda.mem_get_info()
    rows, columns = 1 << 16, (1 << 15) + 64
    if free < 5 * 2 * rows * columns:
        pytest.skip(f"needs {10 * rows * columns >> 30} GiB of free GPU memory")
    gate = torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)
    up = torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)
    site = silu_site()
    site(gate, up)
    result = site(gate, up)
    assert fused_calls(site) == 1
    for first in range(0, rows, 4096):
        part = slice(first, first + 4096)
        assert torch.equal(
            result[part].view(torch.int16), (functional.silu(gate[part]) * up[part]).view(torch.int16)
        )


def test_positions_outside_the_table_are_nan_and_counted() -> None:
    q = random((1, 4, 2, 32), torch.bfloat16, "cuda")
    cos, sin = angles((8, 32), torch.bfloat16, "cuda")
    good = torch.tensor([0, 1, 2, 3], device="cuda")
    site = rope_site(Rope(rotary_dim=32))
    for _ in range(2):
        site(q, None, cos, sin, good)
    out = site(q, None, cos, sin, torch.tensor([0, 1, 8, -1], device="cuda"))
    assert torch.isfinite(out[:, :2]).all() and torch.isnan(out[:, 2:]).all()
    assert site._contexts[0].info().position_errors == 2


def test_cuda_facts_are_reported() -> None:
    info = capi.Context(0).info()
    assert (
        info.architecture
        == 10 * torch.cuda.get_device_capability()[0] + torch.cuda.get_device_capability()[1]
    )
    assert info.image in (capi.IMAGE_SASS, capi.IMAGE_PTX)
