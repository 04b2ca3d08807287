"""The gate: who is believed, what a decline says, what runs eager and why."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as functional

import libbitexact
from helpers import angles, assert_same, fused_calls, only_accepted, random, rope_site, silu_site, states
from libbitexact import _craft, capi, chains
from libbitexact.numerics import ROPE, Rope

Tensor = torch.Tensor


def rope_tensors(device: str, dtype: torch.dtype = torch.bfloat16, tokens: int = 7) -> tuple[Tensor, ...]:
    q, k = random((2, tokens, 4, 64), dtype, device), random((2, tokens, 2, 64), dtype, device, 1)
    return (q, k, *angles((tokens, 64), dtype, device))


# ------------------------------------------------------------------------ wrong chain names --


@pytest.mark.parametrize("wrong", ["fp32", "sigmoid", "candle"])
def test_a_wrong_silu_name_declines_and_gives_eagers_bytes(device: str, wrong: str) -> None:
    gate, up = random((64, 64), torch.bfloat16, device), random((64, 64), torch.bfloat16, device, 1)
    site = silu_site(wrong, lambda g, u: functional.silu(g) * u)
    for _ in range(3):
        assert_same(site(gate, up), functional.silu(gate) * up)
    assert fused_calls(site) == 0
    if not any("UNSUPPORTED" in reason or "HOST_LIBM" in reason for reason in site.counts):
        assert capi.STATE_DECLINED in states(site)
        assert "it matches eager" in site.notes[-1]


@pytest.mark.parametrize("truth", ROPE)
def test_a_wrong_rope_name_declines_on_a_small_call(device: str, truth: str) -> None:
    """Even where chains differ in 2 of 100,000 outputs, and the first call is small."""
    table = torch.float64 if truth in ("fp64", "complex128") else torch.float32
    q = random((1, 2, 2, 32), torch.bfloat16, device)
    cos, sin = angles((2, 16), table, device)
    how = Rope(truth, rotary_dim=32)

    def chain(q: Any, k: Any, cos: Any, sin: Any, positions: Any) -> Any:
        return chains.rope(q, cos, sin, positions, how)

    right = rope_site(how, chain)
    expected = chain(q, None, cos, sin, None)
    for _ in range(2):
        assert_same(right(q, None, cos, sin), expected)
    assert fused_calls(right) == 1
    for wrong in ("eager", "fp32", "addcmul"):
        if wrong == truth or (table == torch.float64 and wrong == "fp32"):
            continue
        site = rope_site(Rope(wrong, rotary_dim=32), chain)
        for _ in range(2):
            assert_same(site(q, None, cos, sin), expected)
        if fused_calls(site):  # some builds give that name these bits: then on every input
            many = (
                random((1, 4096, 8, 32), torch.bfloat16, device, 3),
                None,
                *angles((4096, 16), table, device, 4),
            )
            assert_same(site(*many), chain(*many, None))


def test_a_closed_gate_stays_closed_for_other_kernels(device: str) -> None:
    """On the first call any two chains agree, and another kernel serves it than the crafted tensors."""
    site = silu_site("sigmoid", lambda g, u: functional.silu(g) * u)
    nothing = torch.zeros(4, dtype=torch.bfloat16, device=device)[1:]
    for _ in range(3):
        assert_same(site(nothing, nothing), torch.zeros(3, dtype=torch.bfloat16, device=device))
    values = random((9999,), torch.bfloat16, device)[1:]
    for _ in range(3):
        assert_same(site(values, values), functional.silu(values) * values)
    assert fused_calls(site) == 0


def test_a_decline_explains_itself(device: str, caplog: pytest.LogCaptureFixture) -> None:
    q, k, cos, sin = rope_tensors(device)
    site = rope_site(
        Rope("eager", rotary_dim=64), lambda q, k, cos, sin, p: q * cos[:, None] - q * sin[:, None]
    )
    with caplog.at_level(logging.INFO, "libbitexact"):
        for _ in range(5):
            site(q, None, cos, sin)
    (declined,) = [v for v in site.verdicts() if v["state"] == capi.STATE_DECLINED]
    assert declined["mismatches"] > 0 and declined["mismatch_expected"] != declined["mismatch_actual"]
    assert "matches no named chain" in site.notes[-1]
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    text = str(libbitexact.report())
    assert site.name in text and f"{declined['mismatch_expected']:#06x}" in text
    assert torch.__version__ in text


def test_a_decline_names_the_right_chain(device: str) -> None:
    q, k, cos, sin = rope_tensors(device)
    how = Rope("fp32", "interleaved", rotary_dim=64)
    site = rope_site(Rope("eager", rotary_dim=64), lambda q, k, c, s, p: chains.rope(q, c, s, p, how))
    site(q, None, cos, sin)
    assert "fp32 (interleaved)" in site.notes[-1]


def test_several_rotations_are_tried(device: str) -> None:
    q, k, cos, sin = rope_tensors(device)
    how = Rope("fp32", "interleaved", rotary_dim=64)
    tried = [Rope(n, p, rotary_dim=64) for n in ("eager", "fp32") for p in ("half", "interleaved")]
    site = rope_site(tried, lambda q, k, c, s, p: chains.rope(q, c, s, p, how))
    for _ in range(3):
        assert_same(site(q, None, cos, sin), chains.rope(q, cos, sin, None, how))
    assert fused_calls(site) == 2 and only_accepted(site)


def test_another_result_dtype_is_not_taken(device: str) -> None:
    gate, up = random((4, 64), torch.bfloat16, device), random((4, 64), torch.bfloat16, device, 1)
    site = silu_site("eager", lambda g, u: functional.silu(g.float()) * u.float())
    for _ in range(2):
        assert site(gate, up).dtype == torch.float32
    assert fused_calls(site) == 0 and "nothing here computes that" in site.notes[-1]


# ------------------------------------------------------------------------ what runs eager --


def test_gradients_run_eager_and_are_right(device: str) -> None:
    gate, up = random((4, 64), torch.bfloat16, device), random((4, 64), torch.bfloat16, device, 1)
    site = silu_site()
    site(gate, up)
    leaves = [t.clone().requires_grad_() for t in (gate, up, gate, up)]
    site(*leaves[:2]).float().sum().backward()
    (functional.silu(leaves[2]) * leaves[3]).float().sum().backward()
    assert_same(leaves[0].grad, leaves[2].grad)
    assert_same(leaves[1].grad, leaves[3].grad)
    assert site.last_reason == "gradients are wanted"
    with torch.no_grad():
        site(*leaves[:2])
    with torch.inference_mode():
        assert_same(site(gate, up), functional.silu(gate) * up)
    assert fused_calls(site) == 2


class Tagged(torch.Tensor):
    pass


def test_subclasses_run_eager_by_name(device: str) -> None:
    gate = random((4, 64), torch.bfloat16, device).as_subclass(Tagged)
    site = silu_site()
    for _ in range(2):
        assert type(site(gate, gate)) is Tagged
    assert fused_calls(site) == 0 and "Tagged" in site.last_reason


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this PyTorch has no distributed package")
def test_dtensors_run_eager_by_name(tmp_path: Path) -> None:
    from torch.distributed.tensor import DTensor, Replicate, distribute_tensor, init_device_mesh

    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        gate = distribute_tensor(random((4, 64), torch.bfloat16, "cpu"), mesh, [Replicate()])
        site = silu_site()
        for _ in range(2):
            result = site(gate, gate)
            assert isinstance(result, DTensor)
            assert_same(result.to_local(), functional.silu(gate.to_local()) * gate.to_local())
        assert fused_calls(site) == 0 and "DTensor" in site.last_reason
    finally:
        torch.distributed.destroy_process_group()


def test_parameters_are_plain(device: str) -> None:
    weight = torch.nn.Parameter(random((4, 64), torch.bfloat16, device), requires_grad=False)
    site = silu_site()
    for _ in range(2):
        site(weight, weight)
    assert fused_calls(site) == 1


def test_lazy_negation_is_not_read_raw(device: str) -> None:
    angle = random((5, 16), torch.float32, device)
    table = torch.polar(torch.ones_like(angle), angle).conj()
    q = random((5, 2, 32), torch.float32, device)
    site = rope_site(Rope("fp32", rotary_dim=32))
    expected = chains.rope(q, table.real.clone(), table.imag.clone(), None, site.rope)
    for _ in range(2):
        assert_same(site(q, None, table.real, table.imag), expected)
    assert table.imag.is_neg() and "negated" in site.last_reason


def test_function_transforms_run_eager(device: str) -> None:
    gate, up = random((3, 4, 64), torch.bfloat16, device), random((3, 4, 64), torch.bfloat16, device, 1)
    site = silu_site()
    for _ in range(2):
        assert_same(torch.vmap(site)(gate, up), functional.silu(gate) * up)
    _, tangent = torch.func.jvp(site, (gate, up), (torch.ones_like(gate), torch.zeros_like(up)))
    _, expected = torch.func.jvp(
        lambda g, u: functional.silu(g) * u, (gate, up), (torch.ones_like(gate), torch.zeros_like(up))
    )
    assert_same(tangent, expected)
    assert fused_calls(site) == 0


def test_odd_dtypes_and_mixed_devices_run_eager() -> None:
    site = silu_site()
    wide = random((4, 64), torch.float64, "cpu")
    assert_same(site(wide, wide), functional.silu(wide) * wide)
    assert "dtype" in site.last_reason
    half = random((4, 64), torch.bfloat16, "cpu")
    assert site(half, half.float()).dtype == torch.float32
    assert site(half.to("meta"), half.to("meta")).device.type == "meta"


def test_an_exception_of_the_check_falls_back(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("planted")

    monkeypatch.setattr(_craft, "silu_mul", broken)
    gate = random((4, 64), torch.bfloat16, device)
    site = silu_site()
    for _ in range(2):
        assert_same(site(gate, gate), functional.silu(gate) * gate)
    assert "planted" in site.notes[-1]


def test_autocast_changes_nothing(device: str) -> None:
    gate, up = random((4, 64), torch.bfloat16, device), random((4, 64), torch.bfloat16, device, 1)
    q, k, cos, sin = rope_tensors(device)
    site, rope = silu_site(), rope_site(Rope(rotary_dim=64))
    with torch.autocast(device, dtype=torch.bfloat16):
        for _ in range(2):
            assert_same(site(gate, up), functional.silu(gate) * up)
            assert_same(rope(q, k, cos, sin)[0], chains.rope(q, cos, sin, None, rope.rope))
    assert fused_calls(site) == 1 and fused_calls(rope) == 1


def test_reset_and_names() -> None:
    gate = random((4, 64), torch.bfloat16, "cpu")
    site = libbitexact.SiluMulSite(name="the only one")
    site(gate, gate)
    site.reset()
    assert not site.counts and not list(site.verdicts())
    with pytest.raises(ValueError, match="the only one"):
        libbitexact.RopeSite(name="the only one")


def test_sites_of_ones_own_do_not_become_the_default() -> None:
    gate = random((4, 64), torch.bfloat16, "cpu")

    def other(g: Tensor, u: Tensor) -> Tensor:
        return g + u

    site = libbitexact.SiluMulSite("eager", other)
    assert_same(site(gate, gate), gate + gate)
    assert_same(torch.ops.libbitexact.silu_mul(gate, gate, "silu_mul/eager"), functional.silu(gate) * gate)
    with pytest.raises(ValueError, match="is kept for"):
        libbitexact.SiluMulSite("eager", other, "silu_mul/eager")
    with pytest.raises(ValueError, match="is kept for"):
        libbitexact.SiluMulSite("candle", name="silu_mul/sigmoid")


def test_a_reference_of_ones_own(device: str) -> None:
    gate, up = random((4, 64), torch.bfloat16, device), random((4, 64), torch.bfloat16, device, 1)
    calls = []

    def mine(g: Tensor, u: Tensor) -> Tensor:
        calls.append(g.device.type)
        return functional.silu(g) * u

    for _ in range(4):
        assert_same(libbitexact.fused_silu_mul(gate, up, reference=mine), functional.silu(gate) * up)
    assert calls.count(gate.device.type) == 2  # crafted and live tensors, once


# -------------------------------------------------------------------------------- threads --


def test_threads_get_eagers_bytes_from_the_start(device: str) -> None:
    gate, up = random((33, 64), torch.bfloat16, device), random((33, 64), torch.bfloat16, device, 1)
    expected = functional.silu(gate) * up
    site = silu_site()
    start, failures = threading.Barrier(8), []

    def work() -> None:
        start.wait()
        for _ in range(50):
            try:
                assert_same(site(gate, up), expected)
            except Exception as error:
                failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and only_accepted(site)
    assert sum(v["checks"] for v in site.verdicts()) == 2  # probe and live, by one thread
    if device == "cuda":
        torch.cuda.synchronize()


def test_threads_that_come_first_share_one_context(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, up = random((33, 64), torch.bfloat16, device), random((33, 64), torch.bfloat16, device, 1)
    made, real = [], capi.Context

    def slow(*arguments: object, **options: object) -> capi.Context:
        if "log" in options:  # the site's own, not one that only tries crafted tensors
            made.append(threading.get_ident())
            time.sleep(0.05)  # so that the others arrive meanwhile
        return real(*arguments, **options)

    site = silu_site()
    monkeypatch.setattr(capi, "Context", slow)
    threads = [threading.Thread(target=site, args=(gate, up)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1


# -------------------------------------------------------------------------------- policies --

POLICY = """
import sys, torch, torch.nn.functional as functional, libbitexact
gate = torch.randn(8, 64).bfloat16()
site = libbitexact.SiluMulSite(sys.argv[1], lambda g, u: functional.silu(g) * u, "s")
try:
    for _ in range(3):
        assert torch.equal(site(gate, gate), functional.silu(gate) * gate)
except libbitexact.DeclinedError as error:
    print("raised", error)
verdicts = list(site.verdicts())
print("fused", sum(v["fused_calls"] for v in verdicts), "checks", sum(v["checks"] for v in verdicts))
print(dict(site.counts))
"""


def run_with_policy(policy: str, numerics: str) -> str:
    environment = {**os.environ, "BITEXACT_GATE": policy}
    done = subprocess.run(
        [sys.executable, "-c", POLICY, numerics], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_policies() -> None:
    assert "fused 2" in run_with_policy("verify", "eager")
    reference = run_with_policy("reference", "eager")
    assert "fused 0" in reference and "policy reference" in reference
    assert "fused 3 checks 0" in run_with_policy("trust", "eager")
    audit = run_with_policy("audit", "eager")
    assert "checks 4" in audit  # a probe, and each call
    strict = run_with_policy("strict", "sigmoid")
    assert "raised s: declined" in strict and "matches eager" in strict
    assert "fused 2" in run_with_policy("strict", "eager")


def test_an_unknown_policy_is_told() -> None:
    assert "BITEXACT_GATE" in run_with_policy("maybe", "eager")
