"""Inputs on which chains that nearly agree do not.

On ordinary values a fused multiply-add changes about 2 of 100,000 bf16 outputs, so that a first call may be
too small to tell two chains apart. Here about a quarter of the pairs nearly cancel: what is left of them is
rounding.
"""

from __future__ import annotations

from typing import Optional, Sequence

import torch

Tensor = torch.Tensor

# Mantissas that fit bf16 and leave a remainder in every product.
_LEVELS = (1.2109375, 1.6640625, 0.8203125)
_SEED = 20240229


def _generator() -> torch.Generator:
    generator = torch.Generator()
    generator.manual_seed(_SEED)
    return generator


# About how many elements it takes to tell any two chains apart for certain.
_ENOUGH = 65536


def _rotated(shape: Sequence[int], like: Tensor, generator: torch.Generator) -> Tensor:
    ordinary = torch.randn(shape, generator=generator, dtype=torch.float64)
    levels = torch.tensor(_LEVELS, dtype=torch.float64)[torch.randint(0, 3, shape, generator=generator)]
    signs = torch.randint(0, 2, shape, generator=generator).double() * 2 - 1
    values = torch.where(torch.rand(shape, generator=generator) < 0.5, levels * signs, ordinary)
    zeros = torch.rand(shape, generator=generator) < 0.05
    values = torch.where(zeros, torch.copysign(torch.zeros((), dtype=torch.float64), signs), values)
    return values.to(like.dtype).to(like.device)


def _table(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """About 0.73, each at a relative distance from it that is anything down to nothing."""
    exponent = torch.randint(-26, -3, shape, generator=generator).double()
    distance = torch.randn(shape, generator=generator, dtype=torch.float64) * torch.exp2(exponent)
    return 0.7300848 * (1 + distance)


def rope(
    q: Tensor,
    k: Optional[Tensor],
    cos: Tensor,
    sin: Optional[Tensor],
    positions: Optional[Tensor],
    heads_first: bool,
) -> tuple[Tensor, Optional[Tensor], Tensor, Optional[Tensor], Optional[Tensor]]:
    """Tensors like these on a token axis of another length: enough to tell, and not more."""
    generator = _generator()
    axis = q.dim() - 2 if q.dim() == 2 or heads_first else q.dim() - 3
    tokens = q.shape[axis]
    count = max(2, -(-_ENOUGH * tokens // max(q.numel(), 1)))

    def resized(tensor: Tensor, axis: int) -> list[int]:
        shape = list(tensor.shape)
        shape[axis] = count if shape[axis] == tokens else shape[axis]
        return shape

    q_new = _rotated(resized(q, axis), q, generator)
    k_new = _rotated(resized(k, axis), k, generator) if k is not None else None
    shape = list(cos.shape)
    if positions is None:
        own = axis if cos.dim() == q.dim() else cos.dim() - 2
        # One token has one row, which is no broadcast.
        shape = resized(cos, own)
    else:
        rows = torch.randint(
            0, max(shape[0], 1), resized(positions, positions.dim() - 1), generator=generator
        )
        positions = rows.to(positions.dtype).to(positions.device)
    real, imaginary = _table(shape, generator), _table(shape, generator)
    if sin is None:
        return q_new, k_new, torch.complex(real, imaginary).to(cos.dtype).to(cos.device), None, positions
    tables = (values.to(cos.dtype).to(cos.device) for values in (real, imaginary))
    return (q_new, k_new, *tables, positions)  # type: ignore[return-value]


def silu_mul(gate: Tensor, limit: float = 1.0) -> tuple[Tensor, Tensor]:
    """Every finite bit pattern of a 16-bit gate (65,536 fp32 gates of every size), each with some other
    factor, to both sides of the limit."""
    generator = _generator()
    if gate.dtype in (torch.float16, torch.bfloat16):
        gates = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(gate.dtype)
        gates = torch.where(torch.isfinite(gates), gates, torch.ones((), dtype=gate.dtype))
    else:
        gates = torch.randn(65536, generator=generator) * torch.exp2(
            torch.randint(-30, 7, (65536,), generator=generator).float()
        )
    ups = (torch.randn(65536, generator=generator) * limit).to(gate.dtype)
    shape = (256, 256)
    return gates.to(gate.dtype).view(shape).to(gate.device), ups.view(shape).to(gate.device)
