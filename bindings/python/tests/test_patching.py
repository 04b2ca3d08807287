"""Patched models of transformers and diffusers give the bytes that they gave before."""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from typing import Any, Callable

import pytest
import torch

import libbitexact
import models
from helpers import DTYPES, assert_same, fused_calls
from libbitexact import capi, patching

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

Run = Callable[[], torch.Tensor]


def language(name: str, dtype: torch.dtype, device: str) -> tuple[torch.nn.Module, Run]:
    model = models.seeded(models.LANGUAGE[name]()).to(device, dtype)
    inputs = models.language_inputs(device)
    return model, lambda: model(**inputs).logits


def diffusion(name: str, dtype: torch.dtype, device: str) -> tuple[torch.nn.Module, Run]:
    pytest.importorskip("diffusers", reason="diffusers is not installed")
    model, inputs = models.DIFFUSION[name]()
    model, inputs = models.seeded(model).to(device, dtype), models.moved(inputs, dtype, device)

    def run() -> torch.Tensor:
        result = model(**inputs, return_dict=False)[0]
        return result[0] if isinstance(result, (list, tuple)) else result

    return model, run


def fused(handle: patching.Patch, operation: str) -> int:
    return sum(fused_calls(site) for site in handle.sites if site.operation == operation)


def check(name: str, model: torch.nn.Module, run: Run, device: str, dtype: torch.dtype) -> None:
    with torch.no_grad():
        expected = run()
        assert torch.isfinite(expected).all()
        with libbitexact.patch(model) as handle:
            for _ in range(2):
                assert_same(run(), expected)
            if name not in models.NO_ROPE:
                assert fused(handle, "fused_rope") > 0, libbitexact.report()
            if name not in models.NO_SILU and (device == "cuda" or dtype != torch.float32):
                assert fused(handle, "fused_silu_mul") > 0, libbitexact.report()
        assert_same(run(), expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", models.LANGUAGE)
def test_language_models(device: str, name: str, dtype: torch.dtype) -> None:
    model, run = language(name, dtype, device)
    check(name, model, run, device, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", models.DIFFUSION)
def test_diffusion_models(device: str, name: str, dtype: torch.dtype) -> None:
    model, run = diffusion(name, dtype, device)
    check(name, model, run, device, dtype)


def test_gates_of_attention_are_mounted(device: str) -> None:
    model, run = language("Afmoe", torch.bfloat16, device)
    with torch.no_grad():
        expected = run()
        with libbitexact.patch(model) as handle:
            assert_same(run(), expected)
            assert_same(run(), expected)
            sources = [mount.source for mount in handle.mounted]
            assert sources.count("output * torch.sigmoid(gate_states)") == 2
            (site,) = (site for site in handle.sites if "sigmoid * up" in site.name)
            assert fused_calls(site) == 3, site.counts  # of two layers, run twice: all but the first
            # Experts are reached through a decorator of their class, which chooses how they are computed.
            assert any("experts" in path and "decorator" in reason for path, reason in handle.left), str(handle)


@pytest.mark.parametrize("name", ["Llama", "Qwen3"])
def test_generation_with_a_cache(device: str, name: str) -> None:
    model, _ = language(name, torch.bfloat16, device)
    inputs = models.language_inputs(device)

    def run() -> torch.Tensor:
        return model.generate(
            **inputs, max_new_tokens=8, do_sample=False, output_logits=True, return_dict_in_generate=True
        )

    expected = run()
    with libbitexact.patch(model) as handle:
        actual = run()
        assert fused(handle, "fused_rope") > 0
    assert_same(actual.sequences, expected.sequences)
    for a, e in zip(actual.logits, expected.logits):
        assert_same(a, e)


@pytest.mark.compile
@pytest.mark.parametrize("name", ["Llama", "Qwen3"])
def test_compiled_language_models(device: str, name: str) -> None:
    """The fused operations inside a compiled model give the eager chains' bits: Inductor's own would differ.

    Everything but them runs eager (backend "eager" keeps operators as they are), so that the whole output can
    be compared; that Inductor accepts the graph is checked too. The attention is the models' own: the one of
    PyTorch gets another mask, hence another kernel, while it is compiled.
    """
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        torch._dynamo.reset()
        model, run = language(name, dtype, device)
        model.set_attn_implementation("eager")
        with torch.no_grad():
            expected = run()
            with libbitexact.patch(model) as handle:
                run()
                model.compile(fullgraph=True, backend="eager")
                for _ in range(2):
                    assert_same(run(), expected)
                assert fused(handle, "fused_rope") > 0


class Closed:
    """Stands in for a site's fast path: every call is left to eager."""

    @staticmethod
    def silu_mul(*_: Any) -> int:
        return capi.STATUS_DECLINED

    rope = silu_mul


MODES = ["default", pytest.param("reduce-overhead", marks=pytest.mark.gpu)]


@pytest.mark.compile
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["Llama", "Qwen3"])
def test_inductor_takes_a_patched_model(device: str, name: str, mode: str) -> None:
    """The same compiled graph gives the same bytes whether its operators run fused or eager."""
    if mode == "reduce-overhead" and device == "cpu":
        pytest.skip("CUDA graphs need CUDA")
    torch._dynamo.reset()
    model, run = language(name, torch.bfloat16, device)
    with torch.no_grad(), libbitexact.patch(model) as handle:
        run()
        before = fused(handle, "fused_rope"), fused(handle, "fused_silu_mul")
        model.compile(fullgraph=True, mode=mode)
        compiled = [run().clone() for _ in range(3)]
        after = fused(handle, "fused_rope"), fused(handle, "fused_silu_mul")
        assert after[0] >= before[0] + 2 and after[1] >= before[1] + 2
        for site in handle.sites:
            site._native = Closed()
        torch.compiler.cudagraph_mark_step_begin()
        if mode == "reduce-overhead":
            torch._dynamo.reset()  # replays hold the fused kernels
        eager = run()
        assert (fused(handle, "fused_rope"), fused(handle, "fused_silu_mul")) == after
        for output in compiled:
            assert_same(output, eager)


@pytest.mark.compile
@pytest.mark.parametrize("name", ["Flux", "Wan", "ZImage"])
def test_compiled_diffusion_models(device: str, name: str) -> None:
    torch._dynamo.reset()
    model, run = diffusion(name, torch.bfloat16, device)
    with torch.no_grad():
        expected = run()
        with libbitexact.patch(model) as handle:
            run()
            model.compile(backend="eager")
            for _ in range(2):
                assert_same(run(), expected)
            assert fused(handle, "fused_rope") > 0


# -------------------------------------------------------------------------------- undo, scope --


def methods(model: torch.nn.Module) -> dict[str, Any]:
    found = {}
    for path, module in model.named_modules():
        found.update({f"{path}.{k}": v for k, v in module.__dict__.items() if callable(v)})
    return found


@pytest.mark.parametrize("make, name", [(diffusion, "HunyuanVideo"), (language, "Llama")])
def test_undo_restores_identity(make: Any, name: str) -> None:
    model, run = make(name, torch.float32, "cpu")
    before = methods(model)
    handle = libbitexact.patch(model)
    assert methods(model) != before and handle.active
    assert libbitexact.patch(model) is handle
    assert libbitexact.unpatch(model) and not handle.active
    after = methods(model)
    assert before.keys() == after.keys() and all(after[name] is value for name, value in before.items())
    assert not libbitexact.unpatch(model)
    handle.undo()


def test_only_the_given_instance_changes() -> None:
    model, run = language("Llama", torch.bfloat16, "cpu")
    other = copy.deepcopy(model)
    cls = type(model.model.layers[0].mlp)
    forward = cls.forward
    with libbitexact.patch(model):
        assert cls.forward is forward
        assert "forward" in model.model.layers[0].mlp.__dict__
        assert not methods(other).keys() & {"model.layers.0.mlp.forward"}


def test_parts_and_choices() -> None:
    model, _ = language("Llama", torch.bfloat16, "cpu")
    with libbitexact.patch(model, rope=False) as handle:
        assert {m.operation for m in handle.mounted} == {"silu_mul"}
    with libbitexact.patch(model, silu_mul=False) as handle:
        assert {m.operation for m in handle.mounted} == {"rope"}
    with libbitexact.patch(model.model.layers[0]) as handle:
        assert len(handle.mounted) == 2


def test_what_stays_says_why() -> None:
    model, _ = language("Gemma", torch.bfloat16, "cpu")
    with libbitexact.patch(model) as handle:
        assert any("GELU" in reason for _, reason in handle.left)
        assert "left" in str(handle)


def test_a_hooked_method_is_left() -> None:
    model, run = language("Llama", torch.bfloat16, "cpu")
    mlp = model.model.layers[0].mlp
    mine = mlp.forward
    mlp.forward = lambda x: mine(x)
    with libbitexact.patch(model) as handle:
        assert any("replaced before" in reason for _, reason in handle.left)
    assert "forward" in mlp.__dict__


def test_a_hook_on_the_activation_is_respected() -> None:
    model, run = language("Llama", torch.bfloat16, "cpu")
    calls = []
    model.model.layers[0].mlp.act_fn.register_forward_hook(lambda *_: calls.append(1))
    with torch.no_grad(), libbitexact.patch(model):
        for _ in range(3):
            run()
    assert len(calls) == 3


def test_gradients_flow_through_a_patched_model() -> None:
    model, run = language("Llama", torch.float32, "cpu")
    run().sum().backward()
    expected = {n: p.grad.clone() for n, p in model.named_parameters()}
    model.zero_grad()
    with libbitexact.patch(model) as handle:
        run().sum().backward()
        assert any("gradients are wanted" in reason for site in handle.sites for reason in site.counts)
    for name, parameter in model.named_parameters():
        assert_same(parameter.grad, expected[name])


def test_patching_from_threads() -> None:
    model, run = language("Llama", torch.bfloat16, "cpu")
    with torch.no_grad():
        expected = run()
        handles: list[Any] = []
        threads = [
            threading.Thread(target=lambda: handles.append(libbitexact.patch(model))) for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({id(handle) for handle in handles}) == 1
        assert_same(run(), expected)
        libbitexact.unpatch(model)


def test_a_patched_model_can_go_away() -> None:
    model, run = language("Llama", torch.bfloat16, "cpu")
    libbitexact.patch(model)
    gone = weakref.ref(model)
    del model, run
    gc.collect()
    assert gone() is None


def test_tracebacks_name_the_models_own_lines() -> None:
    model, run = language("Llama", torch.bfloat16, "cpu")
    with libbitexact.patch(model):
        code = model.model.layers[0].mlp.forward.__func__.__code__
        original = type(model.model.layers[0].mlp).forward.__code__
        assert (code.co_filename, code.co_firstlineno) == (original.co_filename, original.co_firstlineno)


def rotate_mine(x: torch.Tensor, table: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    half = x.shape[-1] // 2
    return x * table[0] + torch.cat((-x[..., half:], x[..., :half]), -1) * table[1]


class Mine(torch.nn.Module):
    def forward(self, x: torch.Tensor, table: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return rotate_mine(x, table)


class MineAdapter(patching._adapters.Adapter):
    def __init__(self, original: Any, owner: str) -> None:
        super().__init__(original, owner)
        self.add(None, [libbitexact.numerics.Rope()], lambda q, k, cos, sin, p: original(q, (cos, sin)))

    def __call__(self, x: torch.Tensor, table: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return self.sites[None](x, None, *table)


def test_registering_another_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patching._adapters, "_factories", dict(patching._adapters._factories))
    patching.register("rotate_mine", MineAdapter)
    model = Mine()
    x, table = (
        torch.randn(7, 4, 32).bfloat16(),
        (torch.randn(7, 1, 32).bfloat16(), torch.randn(7, 1, 32).bfloat16()),
    )
    expected = model(x, table)
    with libbitexact.patch(model) as handle:
        for _ in range(2):
            assert_same(model(x, table), expected)
        assert len(handle.mounted) == 1 and fused(handle, "fused_rope") == 1


# ------------------------------------------------------- the call shape of sglang's functions --


def test_functions_in_the_shape_of_sglang(device: str) -> None:
    from libbitexact import sglang_shape

    gate = torch.randn(5, 64, device=device).bfloat16()
    up = torch.randn(5, 64, device=device).bfloat16()
    q, k = (torch.randn(2, 7, 3, 64, device=device).bfloat16() for _ in range(2))
    cos, sin = (torch.randn(2, 7, 64, device=device).bfloat16() for _ in range(2))
    for _ in range(2):
        assert_same(sglang_shape.fused_silu_mul_bitexact(gate, up), torch.nn.functional.silu(gate) * up)
        rotated = sglang_shape.fused_rope_rotate_half_bitexact(q, k, cos, sin)
        for out, x in zip(rotated, (q, k)):
            turned = torch.cat((-x[..., 32:], x[..., :32]), -1)
            assert_same(out, x * cos.unsqueeze(2) + turned * sin.unsqueeze(2))


# -------------------------------------------------------------- transformers' own switch --


@pytest.mark.parametrize("name", ["Llama", "GptOss", "Olmo2"])
def test_a_mapping_of_kernels(device: str, name: str) -> None:
    """The same layer name stands for different chains in different models: each model's own is the truth."""
    kernels = pytest.importorskip("kernels", reason="kernels is not installed")
    from libbitexact import hf_kernels

    model, run = language(name, torch.bfloat16, device)
    with torch.no_grad():
        expected = run()
        with kernels.use_kernel_mapping(hf_kernels.mapping(), inherit_mapping=False):
            kernels.kernelize(model, mode=kernels.Mode.INFERENCE, device=device)
        before = sum(fused_calls(s) for a in hf_kernels._adapters.values() for s in a.sites.values())
        for _ in range(2):
            assert_same(run(), expected)
        after = sum(fused_calls(s) for a in hf_kernels._adapters.values() for s in a.sites.values())
        assert after > before
