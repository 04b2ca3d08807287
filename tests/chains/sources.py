"""What the rows are compared with: the models' own functions out of the installed packages.

Where a project is not on the package index, its operators as its source writes them (tests/golden/chains.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from types import CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any, Optional

import chains
import torch
from torch import nn

Tensor = torch.Tensor
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


@dataclass(frozen=True)
class Rotated:
    """A framework's result, and the tables where the model makes its own of what it was given."""

    out: Tensor
    tables: Optional[tuple[Tensor, Tensor]] = None  # full width, (1, token, 1, dim)


@dataclass(frozen=True)
class RopeSource:
    """run(x, cos, sin): x (batch, token, head, dim), tables (1, token, 1 or head, half of what rotates)."""

    name: str
    run: Callable[[Tensor, Tensor, Tensor], Tensor | Rotated]
    package: str = ""  # that must be installed; none for operators
    dtypes: tuple[torch.dtype, ...] = (BF16, F16, F32)
    per_head: bool = False  # each head has tables of its own
    partial: bool = False  # rotates a part, by the width of the tables, and copies the rest
    at_end: bool = False  # that part is the last one


@dataclass(frozen=True)
class SiluMulSource:
    """run(gate, up), both (row, column)."""

    name: str
    run: Callable[[Tensor, Tensor], Tensor]
    package: str = ""
    dtypes: tuple[torch.dtype, ...] = (BF16, F16, F32)
    limit: float = 0.0  # that it clamps with


@dataclass(frozen=True)
class RustSource:
    """A test of candle's own operators in the Rust workspace, which its own runner runs."""

    name: str
    file: str
    tests: tuple[str, ...] = field(default=())


# ------------------------------------------------------------------------------------ helpers --


def transformers(name: str) -> ModuleType:
    return import_module(f"transformers.models.{name}.modeling_{name}")


def diffusers(name: str) -> ModuleType:
    return import_module(f"diffusers.models.{name}")


def nested(outer: Any, name: str) -> Callable[..., Tensor]:
    """A function that another one defines inside itself and that closes over nothing."""
    code = next(c for c in outer.__code__.co_consts if isinstance(c, CodeType) and c.co_name == name)
    assert not code.co_freevars
    return FunctionType(code, outer.__globals__)


def twice(table: Tensor) -> Tensor:
    return torch.cat((table, table), dim=-1)


def repeated(table: Tensor) -> Tensor:
    return table.repeat_interleave(2, dim=-1)


def no_head(table: Tensor) -> Tensor:
    return table[:, :, 0]


def complex_of(cos: Tensor, sin: Tensor) -> Tensor:
    return torch.complex(no_head(cos), no_head(sin))


# --------------------------------------------------------------------------------- transformers --


def q_and_k(name: str, width: Callable[[Tensor], Tensor] = twice, function: str = "apply_rotary_pos_emb") -> Any:
    """f(q, k, cos, sin) with heads first, as nearly every model has it."""

    def run(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        apply = getattr(transformers(name), function)
        x = x.transpose(1, 2)
        return apply(x, x, width(no_head(cos)), width(no_head(sin)))[0].transpose(1, 2)

    return run


def one_tensor(name: str, width: Callable[[Tensor], Tensor]) -> Any:
    def run(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        apply = transformers(name).apply_rotary_pos_emb
        return apply(x.transpose(1, 2), width(no_head(cos)), width(no_head(sin))).transpose(1, 2)

    return run


def gptj(name: str) -> Any:
    def run(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return transformers(name).apply_rotary_pos_emb(x, no_head(sin), no_head(cos))

    return run


def vision(name: str) -> Any:
    """Tokens of all images in one row, heads behind them."""

    def run(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        apply = transformers(name).apply_rotary_pos_emb_vision
        return apply(x, x, twice(no_head(cos)[0]), twice(no_head(sin)[0]))[0]

    return run


def two_dimensional(name: str) -> Any:
    def run(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        module = transformers(name)
        apply = getattr(module, "apply_rotary_pos_emb_2d", None) or module.apply_rotary_pos_emb
        x = x.transpose(1, 2)
        return apply(x, x, repeated(no_head(cos)[0]), repeated(no_head(sin)[0]))[0].transpose(1, 2)

    return run


def vjepa2(x: Tensor, cos: Tensor, sin: Tensor) -> Rotated:
    """Makes its tables from positions: the same operators on the same device give the same bits here."""
    heads_first = x.transpose(1, 2)
    tokens, dim = x.shape[1], x.shape[-1]
    positions = torch.arange(tokens, device=x.device)
    omega = torch.arange(dim // 2, dtype=x.dtype, device=x.device)
    omega /= dim / 2.0
    omega = 1.0 / 10000**omega
    angles = positions.unsqueeze(-1) * omega
    tables = (angles.cos().repeat(1, 2)[None, :, None], angles.sin().repeat(1, 2)[None, :, None])
    out = transformers("vjepa2").rotate_queries_or_keys(heads_first, positions[None, None])
    return Rotated(out.transpose(1, 2), tables)


def llama4(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return transformers("llama4").apply_rotary_emb(x, x, complex_of(cos, sin))[0]


def llama4_vision(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    table = complex_of(cos, sin)[0].unsqueeze(1)  # token, 1, dim / 2
    return transformers("llama4").vision_apply_rotary_emb(x, x, table)[0]


def deepseek_v2(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    x = x.transpose(1, 2)
    return transformers("deepseek_v2").apply_rotary_emb(x, x, complex_of(cos, sin))[0].transpose(1, 2)


def musicflamingo(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    apply = transformers("musicflamingo").apply_rotary_time_emb
    return apply(x, repeated(cos), repeated(sin))


# ------------------------------------------------------------------------------------ diffusers --


def apply_rotary_emb(dim: int, sequence_dim: int) -> Any:
    def run(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        width = repeated if dim == -1 else twice
        tables = (width(no_head(cos)[0]), width(no_head(sin)[0]))
        turned = x.transpose(1, 2) if sequence_dim == 2 else x
        apply = diffusers("embeddings").apply_rotary_emb
        out = apply(turned, tables, use_real_unbind_dim=dim, sequence_dim=sequence_dim)
        return out.transpose(1, 2) if sequence_dim == 2 else out

    return run


def lumina(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return diffusers("embeddings").apply_rotary_emb(x, complex_of(cos, sin), use_real=False)


def wan(name: str, processor: str) -> Any:
    def run(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        call = getattr(diffusers(f"transformers.{name}"), processor).__call__
        return nested(call, "apply_rotary_emb")(x, repeated(cos), repeated(sin))

    return run


def helios(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    both = torch.cat((repeated(no_head(cos)), repeated(no_head(sin))), dim=-1)
    return diffusers("transformers.transformer_helios").apply_rotary_emb_transposed(x, both)


def ltx(name: str, function: str) -> Any:
    """Tables over the whole hidden width, before heads are told apart."""

    def run(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        apply = getattr(diffusers(f"transformers.{name}"), function)
        return apply(x.flatten(2), (repeated(cos).flatten(2), repeated(sin).flatten(2))).unflatten(2, x.shape[2:])

    return run


def mochi(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    call = diffusers("attention_processor").MochiAttnProcessor2_0.__call__
    return nested(call, "apply_rotary_emb")(x, cos, sin)


def hidream(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    apply = diffusers("transformers.transformer_hidream_image").apply_rope
    return apply(x, x, chains.matrix_of(cos, sin))[0]


def prx(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    apply = diffusers("transformers.transformer_prx").apply_rope
    return apply(x.transpose(1, 2), chains.matrix_of(cos, sin).transpose(1, 2)).transpose(1, 2)


def qwen_image(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    apply = diffusers("transformers.transformer_qwenimage").apply_rotary_emb_qwen
    return apply(x, complex_of(cos, sin)[0], use_real=False)


def z_image(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    module = diffusers("transformers.transformer_z_image")
    return nested(module.ZSingleStreamAttnProcessor.__call__, "apply_rotary_emb")(x, complex_of(cos, sin))


def ltx2_split(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    apply = diffusers("transformers.transformer_ltx2").apply_split_rotary_emb
    return apply(x.transpose(1, 2), (cos.transpose(1, 2), sin.transpose(1, 2))).transpose(1, 2)


def kandinsky5(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    module = diffusers("transformers.transformer_kandinsky")
    return nested(module.Kandinsky5AttnProcessor.__call__, "apply_rotary")(x, chains.matrix_of(cos, sin))


def ideogram4(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The whole attention processor, the attention itself replaced by its query."""
    module = diffusers("transformers.transformer_ideogram4")
    processor = module.Ideogram4AttnProcessor()
    attention = SimpleNamespace(
        num_heads=x.shape[2], head_dim=x.shape[3], to_out=[nn.Identity()], norm_q=nn.Identity(), norm_k=nn.Identity()
    )
    attention.to_q = attention.to_k = attention.to_v = nn.Identity()
    original = module.dispatch_attention_fn
    module.dispatch_attention_fn = lambda query, *_, **__: query
    try:
        tables = (twice(no_head(cos)), twice(no_head(sin)))
        return processor(attention, x.flatten(2), None, image_rotary_emb=tables).unflatten(2, x.shape[2:])
    finally:
        module.dispatch_attention_fn = original


def ernie_image(x: Tensor, cos: Tensor, sin: Tensor) -> Rotated:
    """Takes angles, doubled side by side though its pairs are halves: the two places of a pair differ."""
    module = diffusers("transformers.transformer_ernie_image")
    angles = repeated(sin.double().nan_to_num(0.5, 1, 1).float())
    out = nested(module.ErnieImageSingleStreamAttnProcessor.__call__, "apply_rotary_emb")(x, angles)
    return Rotated(out, (angles.cos().to(x.dtype), angles.sin().to(x.dtype)))


# ----------------------------------------------------------------------------------------- rows --


def own(names: str, run: Callable[[str], Any], **more: Any) -> list[RopeSource]:
    return [RopeSource(f"transformers {name}", run(name), "transformers", **more) for name in names.split()]


def image(name: str, run: Callable[..., Any], **more: Any) -> RopeSource:
    return RopeSource(f"diffusers {name}", run, "diffusers", **more)


ROPE: dict[str, list[RopeSource | RustSource]] = {
    "half": [
        *own(
            "llama mistral mixtral qwen2 qwen3 gemma gemma2 gemma3 falcon granite smollm3 seed_oss qwen2_vl", q_and_k
        ),
        RopeSource("transformers gpt_oss", q_and_k("gpt_oss", lambda table: table), "transformers"),
    ],
    "half-partial": own(
        "glm4_moe qwen3_next gpt_neox phi3 nemotron minimax_m2 bamba", q_and_k, partial=True
    ),
    "half-native": [RopeSource("vLLM, SGLang (operators)", chains.chunk_chain)],
    "interleaved-native": [RopeSource("vLLM, SGLang (operators)", chains.stacked_chain)],
    "candle-slow": [
        RustSource(
            "candle rope_slow, rope_i_slow",
            "bindings/rust/bitexact-candle/tests/cpu.rs",
            ("rope_is_candles_slow_rope", "rope_thd_and_batched_tables_are_candles"),
        )
    ],
    "interleaved": [
        *own("gptj codegen", gptj),
        *own("glm glm4 moonshine", q_and_k, partial=True),
        *own("helium", q_and_k),
    ],
    "interleaved-to-half": own(
        "deepseek_v3 longcat_flash", partial(q_and_k, function="apply_rotary_pos_emb_interleave")
    ),
    "ideogram": [image("Ideogram4AttnProcessor", ideogram4)],
    "ernie-image": [image("ErnieImageSingleStreamAttnProcessor", ernie_image)],
    "vjepa2": own("vjepa2", lambda _: vjepa2),
    "interleaved-float32": [
        *own("cohere cohere2", partial(q_and_k, width=repeated)),
        *own("deepseek_v4", lambda name: one_tensor(name, lambda table: table), partial=True, at_end=True),
    ],
    "half-float32": own("esm modernbert", q_and_k),
    "half-float32-table": [
        *own("olmo olmo2 olmo3", q_and_k),
        *own("qwen2_vl qwen2_5_vl qwen3_vl", vision),
    ],
    "interleaved-float32-table": [*own("ernie4_5", q_and_k), *own("sam3 sam2_video", two_dimensional)],
    "diffusers-interleaved": [
        image("apply_rotary_emb, heads first", apply_rotary_emb(-1, 2)),
        image("apply_rotary_emb, tokens first", apply_rotary_emb(-1, 1)),
        image("WanAttnProcessor", wan("transformer_wan", "WanAttnProcessor")),
        image("SkyReelsV2AttnProcessor", wan("transformer_skyreels_v2", "SkyReelsV2AttnProcessor")),
        image("Helios", helios),
        image("LTX-Video", ltx("transformer_ltx", "apply_rotary_emb"), per_head=True),
        image("LTX-2 interleaved", ltx("transformer_ltx2", "apply_interleaved_rotary_emb"), per_head=True),
        image("MochiAttnProcessor2_0", mochi, per_head=True),
        RopeSource("torchtune (operators)", lambda x, cos, sin: chains.float_interleaved(x, repeated(cos), repeated(sin))),
    ],
    "diffusers-half": [
        image("apply_rotary_emb, heads first", apply_rotary_emb(-2, 2)),
        image("apply_rotary_emb, tokens first", apply_rotary_emb(-2, 1)),
    ],
    "matrix": [image("HiDream apply_rope", hidream), image("PRX apply_rope", prx)],
    "complex64": [
        RopeSource("transformers llama4", llama4, "transformers"),
        RopeSource("transformers llama4 vision", llama4_vision, "transformers"),
        RopeSource("transformers deepseek_v2", deepseek_v2, "transformers"),
        image("Qwen-Image", qwen_image),
        image("Z-Image", z_image),
        image("apply_rotary_emb, use_real=False", lumina),
        RopeSource("Llama as published (operators)", chains.complex_chain),
    ],
    "complex128": [
        image("apply_rotary_emb, use_real=False", lumina),
        RopeSource("Wan2.1 as published (operators)", chains.complex_double_chain),
    ],
    "float64": [
        *own("musicflamingo", lambda _: musicflamingo, partial=True),
        RopeSource("SGLang SANA-Video (operators)", chains.strided_store),
    ],
    "ltx2-split": [image("LTX-2 split", ltx2_split, per_head=True)],
    "ltx2-16bit": [RopeSource("SGLang, LightX2V (operators)", chains.addcmul_cos_chain, dtypes=(BF16, F16), per_head=True)],
    "comfyui": [RopeSource("ComfyUI (operators)", chains.addcmul_x1_chain)],
    "kandinsky5": [image("Kandinsky5AttnProcessor", kandinsky5, dtypes=(BF16,))],
    "pe-audio": own("pe_audio", q_and_k),
    "nanochat": own("nanochat", q_and_k),
}


# ------------------------------------------------------------------------------------- silu_mul --


class Given(nn.Module):
    """A projection that returns what it was given instead of computing."""

    def __init__(self, result: Tensor) -> None:
        super().__init__()
        self.result = result

    def forward(self, _: Tensor) -> Tensor:
        return self.result


def mlp(module: type[nn.Module], gate_name: str, up_name: str, down_name: str, **attributes: Any) -> Any:
    """The model's own forward, its three projections replaced."""

    def run(gate: Tensor, up: Tensor) -> Tensor:
        layer = module.__new__(module)
        nn.Module.__init__(layer)
        for name, value in attributes.items():
            setattr(layer, name, value)
        setattr(layer, gate_name, Given(gate))
        setattr(layer, up_name, Given(up))
        setattr(layer, down_name, nn.Identity())
        return layer(gate)

    return run


def packed(module: type[nn.Module], projection: str, down: str, gate_first: bool, **attributes: Any) -> Any:
    def run(gate: Tensor, up: Tensor) -> Tensor:
        layer = module.__new__(module)
        nn.Module.__init__(layer)
        for name, value in attributes.items():
            setattr(layer, name, value)
        both = torch.cat((gate, up) if gate_first else (up, gate), dim=-1)
        if projection:
            setattr(layer, projection, Given(both))
        if down:
            setattr(layer, down, nn.Identity())
        return layer(both)

    return run


def transformers_mlp(name: str, layer: str, **attributes: Any) -> Any:
    def run(gate: Tensor, up: Tensor) -> Tensor:
        activation = import_module("transformers.activations").ACT2FN["silu"]
        module = getattr(transformers(name), layer)
        named = {"act_fn": activation, "config": None, **attributes}
        return mlp(module, "gate_proj", "up_proj", "down_proj", **named)(gate, up)

    return run


def transformers_experts(name: str, layer: str, **attributes: Any) -> Any:
    def run(gate: Tensor, up: Tensor) -> Tensor:
        module = getattr(transformers(name), layer)
        activation = import_module("transformers.activations").ACT2FN["silu"]
        given = SimpleNamespace(act_fn=activation, **attributes)
        return module._apply_gate(given, torch.cat((gate, up), dim=-1))

    return run


def gated_attention(name: str, layer: str, packed_gate: bool) -> Any:
    """The model's own forward, whose projections give the gate and whose attention gives `up`."""

    def run(gate: Tensor, up: Tensor) -> Tensor:
        module, heads = getattr(transformers(name), layer), 4
        by_head = (1, len(gate), heads, gate.shape[1] // heads)
        functions = import_module("transformers.modeling_utils").ALL_ATTENTION_FUNCTIONS
        functions.register("given", lambda *_, **__: (up.view(by_head), None))
        attention = module.__new__(module)
        nn.Module.__init__(attention)
        attention.config = SimpleNamespace(_attn_implementation="given")
        attention.head_dim, attention.layer_idx, attention.scaling = by_head[-1], 0, 1.0
        attention.attention_dropout, attention.is_local_attention, attention.sliding_window = 0.0, False, None
        attention.q_norm = attention.k_norm = attention.o_proj = nn.Identity()
        gates = gate.view(by_head)
        attention.q_proj = Given(torch.cat((gates, gates), dim=-1).flatten(2)) if packed_gate else Given(gate[None])
        attention.k_proj = attention.v_proj = attention.gate_proj = Given(gate[None])
        tables = torch.zeros(1, len(gate), by_head[-1], dtype=gate.dtype, device=gate.device)
        return attention(gate[None], (tables, tables), None)[0][0]

    return run


def phi3(gate: Tensor, up: Tensor) -> Tensor:
    activation = import_module("transformers.activations").ACT2FN["silu"]
    module = transformers("phi3").Phi3MLP
    return packed(module, "gate_up_proj", "down_proj", True, activation_fn=activation)(gate, up)


def ideogram_mlp(gate: Tensor, up: Tensor) -> Tensor:
    return mlp(diffusers("transformers.transformer_ideogram4").Ideogram4MLP, "w1", "w3", "w2")(gate, up)


def z_image_mlp(gate: Tensor, up: Tensor) -> Tensor:
    return mlp(diffusers("transformers.transformer_z_image").FeedForward, "w1", "w3", "w2")(gate, up)


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return packed(diffusers("activations").SwiGLU, "proj", "", False, activation=nn.SiLU())(gate, up)


def flux2(gate: Tensor, up: Tensor) -> Tensor:
    module = diffusers("transformers.transformer_flux2").Flux2SwiGLU
    return packed(module, "", "", True, gate_fn=nn.SiLU())(gate, up)


def lumina_mlp(gate: Tensor, up: Tensor) -> Tensor:
    module, silu = diffusers("attention").LuminaFeedForward, diffusers("activations").FP32SiLU()
    return mlp(module, "linear_1", "linear_3", "linear_2", silu=silu)(gate, up)


def vllm(gate: Tensor, up: Tensor) -> Tensor:
    both = torch.cat((gate, up), dim=-1)
    half = both.shape[-1] // 2
    return nn.functional.silu(both[..., :half]) * both[..., half:]


def gate_in_float32(gate: Tensor, up: Tensor) -> Tensor:
    return (up * torch.sigmoid(gate.float())).to(up.dtype)


SILU_MUL: dict[str, list[SiluMulSource | RustSource]] = {
    "silu-mul": [
        SiluMulSource("transformers LlamaMLP", transformers_mlp("llama", "LlamaMLP"), "transformers"),
        SiluMulSource("transformers Qwen2MLP", transformers_mlp("qwen2", "Qwen2MLP"), "transformers"),
        SiluMulSource("transformers MistralMLP", transformers_mlp("mistral", "MistralMLP"), "transformers"),
        SiluMulSource("transformers Phi3MLP", phi3, "transformers"),
        SiluMulSource("diffusers Ideogram4MLP", ideogram_mlp, "diffusers"),
        SiluMulSource("diffusers Z-Image FeedForward", z_image_mlp, "diffusers"),
        SiluMulSource("diffusers SwiGLU", swiglu, "diffusers"),
        SiluMulSource("diffusers Flux2SwiGLU", flux2, "diffusers"),
        SiluMulSource("vLLM, SGLang SiluAndMul (operators)", vllm),
    ],
    "silu-module-float32": [
        SiluMulSource("diffusers LuminaFeedForward", lumina_mlp, "diffusers"),
    ],
    "silu-mul-float32": [SiluMulSource("DeepSeek-V3.2 (operators)", chains.silu_mul_float32, dtypes=(BF16, F16))],
    "sigmoid": [SiluMulSource("x * sigmoid(x) (operators)", chains.sigmoid_mul)],
    "gated": [
        SiluMulSource(
            "transformers Qwen3NextAttention",
            gated_attention("qwen3_next", "Qwen3NextAttention", True),
            "transformers",
        ),
        SiluMulSource(
            "transformers Qwen3_5Attention", gated_attention("qwen3_5", "Qwen3_5Attention", True), "transformers"
        ),
        SiluMulSource(
            "transformers AfmoeAttention", gated_attention("afmoe", "AfmoeAttention", False), "transformers"
        ),
    ],
    "glu": [
        SiluMulSource("torch.nn.functional.glu", chains.gated_float32, dtypes=(BF16, F16)),
        SiluMulSource("A.X K2 (operators)", gate_in_float32, dtypes=(BF16, F16)),
    ],
    "clamp-before": [
        SiluMulSource(
            "transformers DeepseekV4MLP",
            transformers_mlp("deepseek_v4", "DeepseekV4MLP", limit=10.0),
            "transformers",
            limit=10.0,
        ),
        SiluMulSource(
            "transformers DeepseekV4Experts",
            transformers_experts("deepseek_v4", "DeepseekV4Experts", limit=0.3),
            "transformers",
            limit=0.3,
        ),
        SiluMulSource(
            "transformers Glm5NextTextMLP",
            transformers_mlp("glm5_next", "Glm5NextTextMLP", swiglu_limit=10.0),
            "transformers",
            limit=10.0,
        ),
        SiluMulSource(
            "transformers HYV4Experts",
            transformers_experts("hy_v4", "HYV4Experts", swiglu_limit=7.03),
            "transformers",
            limit=7.03,
        ),
    ],
    "clamp-before-float32": [
        SiluMulSource(
            "DeepSeek-V4 as published (operators)", chains.clamp_before_float32, dtypes=(BF16, F16), limit=10.0
        )
    ],
    "clamp-after": [
        SiluMulSource(
            "transformers Step3p7MLP", transformers_mlp("step3p7", "Step3p7MLP", limit=16.0), "transformers", limit=16.0
        ),
        SiluMulSource(
            "transformers Step3p7Experts",
            transformers_experts("step3p7", "Step3p7Experts", limit=0.3),
            "transformers",
            limit=0.3,
        ),
    ],
    "candle-silu": [
        RustSource(
            "candle silu",
            "bindings/rust/bitexact-candle/tests/cpu.rs",
            ("silu_mul_of_every_16_bit_input_is_candles_chain", "swiglu_and_strided_gates_are_candles_chain"),
        )
    ],
}
