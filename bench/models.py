"""Three models in plain PyTorch, written as such models are, with seeded weights: where they rotate and where
they gate, they call what they were given."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from cases import Rope

Tensor = torch.Tensor


@dataclass
class Mounts:
    """The calls that may be replaced; eager by default."""

    silu_mul: Callable[[Tensor, Tensor], Tensor]
    rope: Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]  # q, k of (tokens, heads, dim)


class Parts:
    """Names the part of a model that runs, for a profiler; costs nothing otherwise."""

    profiling = False

    def __call__(self, name: str) -> Any:
        return torch.profiler.record_function("part:" + name) if self.profiling else contextlib.nullcontext()


part = Parts()


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))

    def forward(self, x: Tensor) -> Tensor:
        with part("norm"):
            return F.rms_norm(x, x.shape[-1:], self.weight, 1e-6)


def modulate(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    with part("modulate"):
        return x * (1 + scale) + shift


def add_gated(x: Tensor, gate: Tensor, y: Tensor) -> Tensor:
    with part("residual"):
        return x + gate * y


def linear(layer: nn.Linear, x: Tensor) -> Tensor:
    with part("linear"):
        return layer(x)


def attend(q: Tensor, k: Tensor, v: Tensor, grouped: bool = False) -> Tensor:
    """Of (batch, tokens, heads, dim), to (batch, tokens, heads * dim). With few kv heads by the flash kernel: of one
    query token cuDNN's, which PyTorch would take, gives other bits from run to run."""
    choice = sdpa_kernel(SDPBackend.FLASH_ATTENTION) if grouped and q.is_cuda else contextlib.nullcontext()
    with part("attention"), choice:
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=grouped).transpose(1, 2).flatten(2)


def rotate(mounts: Mounts, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Of (1, tokens, heads, dim)."""
    with part("rope"):
        q, k = mounts.rope(q[0], k[0], cos, sin)
        return q[None], k[None]


# ------------------------------------------------------------- Ideogram-4: one stream, SwiGLU --


class IdeogramBlock(nn.Module):
    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.modulation = nn.Linear(width, 6 * width)
        self.norm1, self.norm2 = RMSNorm(width), RMSNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.q_norm, self.k_norm = RMSNorm(width // heads), RMSNorm(width // heads)
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, mounts: Mounts, x: Tensor, vector: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        shift1, scale1, gate1, shift2, scale2, gate2 = linear(self.modulation, vector)[:, None].chunk(
            6, dim=-1
        )
        h = modulate(self.norm1(x), scale1, shift1)
        q, k, v = (linear(layer, h).unflatten(-1, (self.heads, -1)) for layer in (self.q, self.k, self.v))
        q, k = rotate(mounts, self.q_norm(q), self.k_norm(k), cos, sin)
        x = add_gated(x, gate1, linear(self.o, attend(q, k, v)))
        h = modulate(self.norm2(x), scale2, shift2)
        gate, up = linear(self.gate, h), linear(self.up, h)
        with part("silu_mul"):
            h = mounts.silu_mul(gate[0], up[0])[None]
        return add_gated(x, gate2, linear(self.down, h))


class Ideogram(nn.Module):
    """A step with classifier-free guidance: two passes and their combination."""

    def __init__(self, layers: int, heads: int, dim: int, inner: int, tokens: int) -> None:
        super().__init__()
        width = heads * dim
        self.case = Rope("Ideogram-4", tokens, heads, heads, dim)
        self.blocks = nn.ModuleList(IdeogramBlock(width, heads, inner) for _ in range(layers))
        self.out = RMSNorm(width)

    def inputs(self, make: Callable[..., Tensor]) -> dict[str, Tensor]:
        tokens, width = self.case.tokens, self.case.q_heads * self.case.dim
        cos, sin = self.case.tables(make(1).device)
        return {
            "x": make(1, tokens, width),
            "prompt": make(1, width),
            "none": make(1, width),
            "cos": cos,
            "sin": sin,
        }

    def forward(
        self, mounts: Mounts, x: Tensor, prompt: Tensor, none: Tensor, cos: Tensor, sin: Tensor
    ) -> Tensor:
        passes = []
        for vector in (prompt, none):
            h = x
            for block in self.blocks:
                h = block(mounts, h, vector, cos, sin)
            passes.append(self.out(h))
        with part("residual"):
            return passes[1] + 4.0 * (passes[0] - passes[1])


# ----------------------------------------------------- Flux: two streams, then one; GELU MLPs --


class FluxDouble(nn.Module):
    """Image and text, with their own weights, attend together."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        sides = range(2)
        self.modulation = nn.ModuleList(nn.Linear(width, 6 * width) for _ in sides)
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in sides)
        self.q_norm = nn.ModuleList(RMSNorm(width // heads) for _ in sides)
        self.k_norm = nn.ModuleList(RMSNorm(width // heads) for _ in sides)
        self.o = nn.ModuleList(nn.Linear(width, width) for _ in sides)
        self.up = nn.ModuleList(nn.Linear(width, 4 * width) for _ in sides)
        self.down = nn.ModuleList(nn.Linear(4 * width, width) for _ in sides)

    def forward(
        self, mounts: Mounts, text: Tensor, image: Tensor, vector: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor]:
        streams, parts, heads = [text, image], [], []
        for side, x in enumerate(streams):
            parts.append(linear(self.modulation[side], F.silu(vector))[:, None].chunk(6, dim=-1))
            h = modulate(layer_norm(x), parts[side][1], parts[side][0])
            q, k, v = linear(self.qkv[side], h).unflatten(-1, (3, self.heads, -1)).unbind(2)
            heads.append((self.q_norm[side](q), self.k_norm[side](k), v))
        with part("cat"):
            q, k, v = (torch.cat(pair, dim=1) for pair in zip(*heads))
        q, k = rotate(mounts, q, k, cos, sin)
        attended = attend(q, k, v).split([text.shape[1], image.shape[1]], dim=1)
        for side, x in enumerate(streams):
            _, _, gate1, shift2, scale2, gate2 = parts[side]
            x = add_gated(x, gate1, linear(self.o[side], attended[side]))
            h = linear(self.up[side], modulate(layer_norm(x), scale2, shift2))
            streams[side] = add_gated(x, gate2, linear(self.down[side], gelu(h)))
        return streams[0], streams[1]


class FluxSingle(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.modulation = nn.Linear(width, 3 * width)
        self.inward, self.outward = nn.Linear(width, 7 * width), nn.Linear(5 * width, width)
        self.q_norm, self.k_norm = RMSNorm(width // heads), RMSNorm(width // heads)

    def forward(self, mounts: Mounts, x: Tensor, vector: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        width = x.shape[-1]
        shift, scale, gate = linear(self.modulation, F.silu(vector))[:, None].chunk(3, dim=-1)
        qkv, inner = linear(self.inward, modulate(layer_norm(x), scale, shift)).split(
            [3 * width, 4 * width], dim=-1
        )
        q, k, v = qkv.unflatten(-1, (3, self.heads, -1)).unbind(2)
        q, k = rotate(mounts, self.q_norm(q), self.k_norm(k), cos, sin)
        with part("cat"):
            h = torch.cat((attend(q, k, v), gelu(inner)), dim=-1)
        return add_gated(x, gate, linear(self.outward, h))


def layer_norm(x: Tensor) -> Tensor:
    with part("norm"):
        return F.layer_norm(x, x.shape[-1:], eps=1e-6)


def gelu(x: Tensor) -> Tensor:
    with part("gelu"):
        return F.gelu(x, approximate="tanh")


class Flux(nn.Module):
    def __init__(self, double: int, single: int, heads: int, dim: int, text: int, tokens: int) -> None:
        super().__init__()
        width = heads * dim
        self.text = text
        self.case = Rope("Flux", tokens, heads, heads, dim, table_dtype=torch.float32, interleaved=True)
        self.doubles = nn.ModuleList(FluxDouble(width, heads) for _ in range(double))
        self.singles = nn.ModuleList(FluxSingle(width, heads) for _ in range(single))

    def inputs(self, make: Callable[..., Tensor]) -> dict[str, Tensor]:
        tokens, width = self.case.tokens, self.case.q_heads * self.case.dim
        cos, sin = self.case.tables(make(1).device)
        return {"x": make(1, tokens, width), "vector": make(1, width), "cos": cos, "sin": sin}

    def forward(self, mounts: Mounts, x: Tensor, vector: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        text, image = x.split([self.text, x.shape[1] - self.text], dim=1)
        for block in self.doubles:
            text, image = block(mounts, text, image, vector, cos, sin)
        with part("cat"):
            x = torch.cat((text, image), dim=1)
        for block in self.singles:
            x = block(mounts, x, vector, cos, sin)
        return layer_norm(x)


# ----------------------------------------------------------------------- Llama: decoding a step --


class LlamaBlock(nn.Module):
    def __init__(self, heads: int, kv_heads: int, dim: int, inner: int) -> None:
        super().__init__()
        width = heads * dim
        self.dim = dim
        self.norm1, self.norm2 = RMSNorm(width), RMSNorm(width)
        self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, kv_heads * dim, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, mounts: Mounts, x: Tensor, cache: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        h = self.norm1(x)
        q, k, v = (linear(layer, h).unflatten(-1, (-1, self.dim)) for layer in (self.q, self.k, self.v))
        with part("rope"):  # sequences stand one behind the other, as tokens of one long one
            q, k = mounts.rope(q.flatten(0, 1), k.flatten(0, 1), cos, sin)
        with part("cache"):
            cache[0, :, -1], cache[1, :, -1] = k, v[:, 0]
        attended = attend(q[:, None], cache[0], cache[1], grouped=True)
        with part("residual"):
            x = x + linear(self.o, attended)
        h = self.norm2(x)
        gate, up = linear(self.gate, h), linear(self.up, h)
        with part("silu_mul"):
            h = mounts.silu_mul(gate[:, 0], up[:, 0])[:, None]
        with part("residual"):
            return x + linear(self.down, h)


class Llama(nn.Module):
    """One token for each of several sequences whose caches are full but for it."""

    def __init__(
        self, layers: int, heads: int, kv_heads: int, dim: int, inner: int, batch: int, past: int
    ) -> None:
        super().__init__()
        self.case = Rope("Llama-3 8B", batch, heads, kv_heads, dim)
        self.past = past
        self.blocks = nn.ModuleList(LlamaBlock(heads, kv_heads, dim, inner) for _ in range(layers))
        self.norm = RMSNorm(heads * dim)

    def inputs(self, make: Callable[..., Tensor]) -> dict[str, Tensor]:
        case = self.case
        cos, sin = case.tables(make(1).device)
        cache = make(len(self.blocks), 2, case.tokens, self.past + 1, case.k_heads, case.dim)
        last = [table[-1:].expand(case.tokens, -1).contiguous() for table in (cos, sin)]
        return {
            "x": make(case.tokens, 1, case.q_heads * case.dim),
            "cache": cache,
            "cos": last[0],
            "sin": last[1],
        }

    def forward(self, mounts: Mounts, x: Tensor, cache: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        for i, block in enumerate(self.blocks):
            x = block(mounts, x, cache[i], cos, sin)
        return self.norm(x)


# -------------------------------------------------------------------------------------- making --

SIZES: dict[str, tuple[type, dict[str, int], dict[str, int]]] = {
    "Ideogram-4": (
        Ideogram,
        {"layers": 34, "heads": 18, "dim": 256, "inner": 12288, "tokens": 4400},
        {"layers": 2, "heads": 2, "dim": 16, "inner": 64, "tokens": 10},
    ),
    "Flux": (
        Flux,
        {"double": 19, "single": 38, "heads": 24, "dim": 128, "text": 512, "tokens": 4608},
        {"double": 1, "single": 2, "heads": 2, "dim": 16, "text": 3, "tokens": 10},
    ),
    "Llama-3 8B decode": (
        Llama,
        {"layers": 32, "heads": 32, "kv_heads": 8, "dim": 128, "inner": 14336, "batch": 16, "past": 1023},
        {"layers": 2, "heads": 4, "kv_heads": 2, "dim": 16, "inner": 64, "batch": 3, "past": 7},
    ),
}


def make_model(name: str, device: torch.device, tiny: bool) -> tuple[nn.Module, dict[str, Tensor]]:
    """The model in bfloat16 with seeded weights, and seeded inputs."""
    kind, full, small = SIZES[name]
    generator = torch.Generator(device).manual_seed(0)

    def make(*shape: int) -> Tensor:
        return torch.empty(shape, device=device, dtype=torch.bfloat16).normal_(generator=generator)

    with torch.device("meta"):
        model = kind(**(small if tiny else full)).to(torch.bfloat16)
    model.to_empty(device=device)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.fill_(1.0)
            else:
                parameter.normal_(0, 1 / math.sqrt(parameter.shape[1]), generator=generator)
    return model.eval().requires_grad_(False), model.inputs(make)
