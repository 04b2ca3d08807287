"""Eager chains as models write them: every operator a kernel of its own, none of ours.

Every rope chain takes x (batch, token, head, rotary_dim) and tables that broadcast against it: (batch or 1,
token, head or 1, width), width as the chain's own comment says. It returns x's dtype, as its model does.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as functional

Tensor = torch.Tensor
Rope = Callable[[Tensor, Tensor, Tensor], Tensor]


# ------------------------------------------------------------------------------- helpers --


def twice(table: Tensor) -> Tensor:
    return torch.cat((table, table), dim=-1)


def rotate_half(x: Tensor) -> Tensor:
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((-x2, x1), dim=-1)


def rotate_half_backwards(x: Tensor) -> Tensor:
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((x2, -x1), dim=-1)


def rotate_every_two(x: Tensor) -> Tensor:
    return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)


# --------------------------------------------------------------- SEPARATE, half pairing --


def rotate_half_chain(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Llama, Qwen and most of transformers. Full width, the tensor's dtype."""
    return (x * cos) + (rotate_half(x) * sin)


def rotate_half_doubled(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The same where the model keeps half tables and doubles them."""
    return rotate_half_chain(x, twice(cos), twice(sin))


def rotate_half_inverse(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """nanochat: the rotation runs backwards. Full width."""
    return (x * cos) + (rotate_half_backwards(x) * sin)


def chunk_chain(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """gpt-oss. Half width."""
    x1, x2 = torch.chunk(x, 2, dim=-1)
    return torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin), dim=-1)


def promoting_half(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """OLMo: wider tables promote, one cast at the end. Full width."""
    return ((x * cos) + (rotate_half(x) * sin)).to(x.dtype)


def float_half(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Vision towers of Qwen-VL and diffusers with unbind_dim -2. Full width."""
    real, imaginary = x.reshape(*x.shape[:-1], 2, -1).unbind(-2)
    rotated = torch.cat([-imaginary, real], dim=-1)
    return (x.float() * cos + rotated.float() * sin).to(x.dtype)


def double_half(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Everything in float64 by request. Full width."""
    wide = x.double()
    return (wide * cos.double() + rotate_half(wide) * sin.double()).to(x.dtype)


# -------------------------------------------------------- SEPARATE, interleaved pairing --


def every_two_chain(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """GPT-J, GLM, and V-JEPA 2 whose two entries of a pair differ. Full width."""
    return (x * cos) + (rotate_every_two(x) * sin)


def stacked_chain(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """vLLM's native interleaved form. Half width."""
    x1, x2 = x[..., ::2], x[..., 1::2]
    return torch.stack((x1 * cos - x2 * sin, x2 * cos + x1 * sin), dim=-1).flatten(-2)


def float_interleaved(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """diffusers apply_rotary_emb with unbind_dim -1: Flux, HunyuanVideo, CogVideoX; Cohere. Full width."""
    real, imaginary = x.reshape(*x.shape[:-1], -1, 2).unbind(-1)
    rotated = torch.stack([-imaginary, real], dim=-1).flatten(3)
    return (x.float() * cos + rotated.float() * sin).to(x.dtype)


def strided_store(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Wan in diffusers, SANA-Video: wider tables promote, storing into x's dtype rounds. Half width."""
    x1, x2 = x.unflatten(-1, (-1, 2)).unbind(-1)
    out = torch.empty_like(x)
    out[..., 0::2] = x1 * cos - x2 * sin
    out[..., 1::2] = x1 * sin + x2 * cos
    return out


def deinterleaving_chain(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """DeepSeek in transformers: reads pairs side by side, writes halves. Half width, doubled as there."""
    batch, token, head, dim = x.shape
    x = x.view(batch, token, head, dim // 2, 2).transpose(4, 3).reshape(batch, token, head, dim)
    return rotate_half_doubled(x, cos, sin)


# ------------------------------------------------------------------------- fused forms --


def complex_chain(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Llama as published, Qwen-Image, Z-Image: complex64. Lumina 2: complex128 tables. Half width."""
    x_complex = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(x_complex * torch.complex(cos, sin)).flatten(3).type_as(x)


def complex_inverse_chain(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The same backwards, by the conjugate. Half width."""
    x_complex = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(x_complex * torch.complex(cos, sin).conj()).flatten(3).type_as(x)


def complex_double_chain(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Wan as published: complex128 throughout, float32 before the cast. Half width."""
    x_complex = torch.view_as_complex(x.to(torch.float64).reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(x_complex * torch.complex(cos, sin)).flatten(3).float().to(x.dtype)


def addcmul_cos_chain(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """LTX-2's split form: the cosine product is rounded, the sine product added in one go. Half width."""
    split = x.to(cos.dtype).reshape(*x.shape[:-1], 2, -1)
    first, second = split[..., :1, :], split[..., 1:, :]
    out = split * cos.unsqueeze(-2)
    out[..., :1, :].addcmul_(-sin.unsqueeze(-2), second)
    out[..., 1:, :].addcmul_(sin.unsqueeze(-2), first)
    return out.reshape(x.shape).to(x.dtype)


def matrix_of(cos: Tensor, sin: Tensor) -> Tensor:
    return torch.stack((cos, -sin, sin, cos), dim=-1).unflatten(-1, (2, 2))


def addcmul_x1_chain(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """ComfyUI: the column of x1 is rounded, that of x2 added in one go. Half width."""
    matrix = matrix_of(cos, sin)
    pairs = x.to(matrix.dtype).reshape(*x.shape[:-1], -1, 1, 2)
    out = matrix[..., 0] * pairs[..., 0]
    out.addcmul_(matrix[..., 1], pairs[..., 1])
    return out.reshape(x.shape).type_as(x)


def matrix_sum_chain(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Kandinsky 5, Perception Encoder: 2x2 matrices and a sum, which starts at +0. Half width."""
    pairs = x.reshape(*x.shape[:-1], -1, 1, 2)
    return (matrix_of(cos, sin) * pairs).sum(dim=-1).reshape(x.shape).to(x.dtype)


# --------------------------------------------------------------------------- silu * up --


def silu_mul(gate: Tensor, up: Tensor) -> Tensor:
    return functional.silu(gate) * up


def sigmoid_mul(gate: Tensor, up: Tensor) -> Tensor:
    return (gate * torch.sigmoid(gate)) * up


def candle_mul(gate: Tensor, up: Tensor) -> Tensor:
    """candle's silu in a 16-bit type, operator by operator."""
    return (gate / (1 + torch.exp(-gate))) * up


def silu_mul_float32(gate: Tensor, up: Tensor) -> Tensor:
    return (functional.silu(gate.float()) * up.float()).to(gate.dtype)


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """Attention outputs of Qwen3-Next, Qwen3.5, AFMoE."""
    return up * torch.sigmoid(gate)


def gated_float32(gate: Tensor, up: Tensor) -> Tensor:
    """One operator, rounded once."""
    return functional.glu(torch.cat((up, gate), dim=-1), dim=-1)


def clamp_before(gate: Tensor, up: Tensor, limit: float = 10.0) -> Tensor:
    """DeepSeek-V4 in transformers, GLM-5, HY-V4."""
    return functional.silu(gate.clamp(max=limit)) * up.clamp(min=-limit, max=limit)


def clamp_before_float32(gate: Tensor, up: Tensor, limit: float = 10.0) -> Tensor:
    """DeepSeek-V4 as published."""
    gate_32 = torch.clamp(gate.float(), max=limit)
    up_32 = torch.clamp(up.float(), min=-limit, max=limit)
    return (functional.silu(gate_32) * up_32).to(gate.dtype)


def clamp_after(gate: Tensor, up: Tensor, limit: float = 10.0) -> Tensor:
    """Step-3.7."""
    return functional.silu(gate).clamp(max=limit) * up.clamp(min=-limit, max=limit)
