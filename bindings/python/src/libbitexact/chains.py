"""The eager chains themselves, in torch: what the fused functions are measured against, and what runs
instead.

Every operator is one torch call, as models write them, so that roundings, strides and gradients are eager's
own.
"""

from __future__ import annotations

from functools import partial
from typing import Callable, Optional

import torch
import torch.nn.functional as functional

from .numerics import Rope

Tensor = torch.Tensor


# -------------------------------------------------------------------------------- silu * up --


def _silu_eager(gate: Tensor, up: Tensor) -> Tensor:
    return functional.silu(gate) * up


def _silu_fp32(gate: Tensor, up: Tensor) -> Tensor:
    return (functional.silu(gate.float()) * up.float()).to(gate.dtype)


def _silu_sigmoid(gate: Tensor, up: Tensor) -> Tensor:
    return gate * torch.sigmoid(gate) * up


def _silu_candle(gate: Tensor, up: Tensor) -> Tensor:
    return gate / (1 + torch.exp(-gate)) * up


def _silu_glu(gate: Tensor, up: Tensor) -> Tensor:
    return up * torch.sigmoid(gate)


def _silu_glu_fp32(gate: Tensor, up: Tensor) -> Tensor:
    return functional.glu(torch.cat((up, gate), dim=-1), dim=-1)


def _clamp_before(gate: Tensor, up: Tensor, limit: float) -> Tensor:
    return functional.silu(gate.clamp(max=limit)) * up.clamp(min=-limit, max=limit)


def _clamp_before_fp32(gate: Tensor, up: Tensor, limit: float) -> Tensor:
    return _clamp_before(gate.float(), up.float(), limit).to(gate.dtype)


def _clamp_after(gate: Tensor, up: Tensor, limit: float) -> Tensor:
    return functional.silu(gate).clamp(max=limit) * up.clamp(min=-limit, max=limit)


SILU_MUL: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "eager": _silu_eager,
    "fp32": _silu_fp32,
    "sigmoid": _silu_sigmoid,
    "candle": _silu_candle,
    "glu": _silu_glu,
    "glu_fp32": _silu_glu_fp32,
}
CLAMPED: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "clamp_before": _clamp_before,
    "clamp_before_fp32": _clamp_before_fp32,
    "clamp_after": _clamp_after,
}


def silu_mul(name: str, limit: Optional[float] = None) -> Callable[[Tensor, Tensor], Tensor]:
    """The chain of that name; those that clamp have a limit."""
    return SILU_MUL[name] if limit is None else partial(CLAMPED[name], limit=limit)


# ------------------------------------------------------------------------------------- rope --


def _split(x: Tensor, pairing: str) -> tuple[Tensor, Tensor]:
    if pairing == "interleaved":
        return x[..., 0::2], x[..., 1::2]
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]


def _join(first: Tensor, second: Tensor, pairing: str) -> Tensor:
    if pairing == "interleaved":
        return torch.stack((first, second), dim=-1).flatten(-2)
    return torch.cat((first, second), dim=-1)


def _of_pairs(table: Tensor, rotary_dim: int, pairing: str) -> tuple[Tensor, Tensor]:
    """The entries at the two positions of each pair."""
    return _split(table, pairing) if table.shape[-1] == rotary_dim else (table, table)


def _full(table: Tensor, rotary_dim: int, pairing: str) -> Tensor:
    if table.shape[-1] == rotary_dim:
        return table
    return torch.cat((table, table), dim=-1) if pairing == "half" else table.repeat_interleave(2, dim=-1)


def _rotated(x: Tensor, pairing: str) -> Tensor:
    first, second = _split(x, pairing)
    return _join(-second, first, pairing)


def _separate(x: Tensor, cos: Tensor, sin: Tensor, rope: Rope) -> Tensor:
    width = x.shape[-1]
    if rope.pairing == rope.written:
        return x * _full(cos, width, rope.pairing) + _rotated(x, rope.pairing) * _full(
            sin, width, rope.pairing
        )
    first, second = _split(x, rope.pairing)
    cos1, cos2 = _of_pairs(cos, width, rope.pairing)
    sin1, sin2 = _of_pairs(sin, width, rope.pairing)
    return _join(first * cos1 - second * sin1, second * cos2 + first * sin2, rope.written)


def _separate_in(dtype: Optional[torch.dtype]) -> Callable[..., Tensor]:
    def chain(x: Tensor, cos: Tensor, sin: Tensor, rope: Rope) -> Tensor:
        if dtype is None:
            return _separate(x, cos, sin, rope)
        return _separate(x.to(dtype), cos.to(dtype), sin.to(dtype), rope)

    return chain


def _complex_in(dtype: torch.dtype) -> Callable[..., Tensor]:
    def chain(x: Tensor, cos: Tensor, sin: Tensor, rope: Rope) -> Tensor:
        cos1, _ = _of_pairs(cos, x.shape[-1], rope.pairing)
        sin1, _ = _of_pairs(sin, x.shape[-1], rope.pairing)
        table = torch.complex(cos1.to(dtype), sin1.to(dtype))
        if rope.pairing == "interleaved":
            pairs = torch.view_as_complex(x.to(dtype).unflatten(-1, (-1, 2)))
        else:
            pairs = torch.complex(*(part.contiguous() for part in _split(x.to(dtype), "half")))
        product = torch.view_as_real(pairs * table)
        if rope.written == "interleaved":
            return product.flatten(-2)
        return torch.cat((product[..., 0], product[..., 1]), dim=-1)

    return chain


def _addcmul(dtype: Optional[torch.dtype], cos_orientation: bool) -> Callable[..., Tensor]:
    def chain(x: Tensor, cos: Tensor, sin: Tensor, rope: Rope) -> Tensor:
        compute = dtype or torch.promote_types(x.dtype, cos.dtype)
        first, second = _split(x.to(compute), rope.pairing)
        cos1, cos2 = (part.to(compute) for part in _of_pairs(cos, x.shape[-1], rope.pairing))
        sin1, sin2 = (part.to(compute) for part in _of_pairs(sin, x.shape[-1], rope.pairing))
        real = torch.addcmul(first * cos1, -sin1, second)
        if cos_orientation:
            imaginary = torch.addcmul(second * cos2, sin2, first)
        else:
            imaginary = torch.addcmul(first * sin2, cos2, second)
        return _join(real, imaginary, rope.written)

    return chain


def _matrix_sum(x: Tensor, cos: Tensor, sin: Tensor, rope: Rope) -> Tensor:
    first, second = _split(x, rope.pairing)
    cos1, cos2 = _of_pairs(cos, x.shape[-1], rope.pairing)
    sin1, sin2 = _of_pairs(sin, x.shape[-1], rope.pairing)
    real = torch.stack((cos1 * first, -sin1 * second), dim=-1).sum(-1)
    imaginary = torch.stack((sin2 * first, cos2 * second), dim=-1).sum(-1)
    return _join(real, imaginary, rope.written)


_ROPE: dict[str, Callable[..., Tensor]] = {
    "eager": _separate_in(None),
    "fp32": _separate_in(torch.float32),
    "fp64": _separate_in(torch.float64),
    "complex64": _complex_in(torch.float32),
    "complex128": _complex_in(torch.float64),
    "addcmul": _addcmul(None, cos_orientation=True),
    "addcmul_fp32": _addcmul(torch.float32, cos_orientation=True),
    "addcmul_x1": _addcmul(None, cos_orientation=False),
    "matrix_sum": _matrix_sum,
}


def _aligned(table: Tensor, x: Tensor, rope: Rope, gathered: bool) -> Tensor:
    """The table with the axes of x: as it is if it has as many, else [batch,] row, width."""
    if table.dim() == x.dim() and not gathered:
        return table
    if x.dim() > 2:
        table = table.unsqueeze(-3 if rope.heads_first else -2)
    return table


def rope(x: Tensor, cos: Tensor, sin: Optional[Tensor], positions: Optional[Tensor], how: Rope) -> Tensor:
    """Rotates one tensor by the named chain. Shapes as libbitexact.fused_rope."""
    rotary_dim = how.rotary_dim
    if rotary_dim < 0:
        rotary_dim = cos.shape[-1] * (2 if sin is None or rotary_dim == -2 else 1)
    if how.first_half and sin is not None:
        cos, sin = cos[..., : cos.shape[-1] // 2], sin[..., : sin.shape[-1] // 2]
    if sin is None:
        cos, sin = cos.real, cos.imag
    if positions is not None:
        shape = (*positions.shape, cos.shape[-1])
        cos = cos.index_select(0, positions.reshape(-1)).view(shape)
        sin = sin.index_select(0, positions.reshape(-1)).view(shape)
    cos = _aligned(cos, x, how, positions is not None)
    sin = _aligned(sin, x, how, positions is not None)
    if how.inverse:
        sin = -sin
    whole = rotary_dim == x.shape[-1]
    rotated = _ROPE[how.numerics](x if whole else x[..., :rotary_dim], cos, sin, how).to(x.dtype)
    return rotated if whole else torch.cat((rotated, x[..., rotary_dim:]), dim=-1)
