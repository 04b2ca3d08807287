"""Inputs that tell chains apart: ordinary numbers, cancellations, special values and any bits."""

from __future__ import annotations

from functools import lru_cache

import torch

Tensor = torch.Tensor
INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(INTEGERS[tensor.element_size()])


def special(dtype: torch.dtype) -> Tensor:
    """Both zeros, least and greatest subnormals and normals, infinities, NaN; ones and their neighbours."""
    f = torch.finfo(dtype)
    least = f.smallest_normal * f.eps
    values = [0.0, least, f.smallest_normal - least, f.smallest_normal, 1.0, 1 + f.eps, 1 - f.eps / 2, 0.5, f.max]
    tensor = torch.tensor([*values, float("inf"), float("nan")], dtype=torch.float64).to(dtype)
    return torch.cat((tensor, -tensor))


def picked(values: Tensor, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return values[torch.randint(len(values), shape, generator=generator)]


def any_bits(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    size = torch.empty((), dtype=dtype).element_size()
    integers = torch.randint(-(2 ** (8 * size - 1)), 2 ** (8 * size - 1) - 1, shape, generator=generator)
    return integers.to(INTEGERS[size]).view(dtype)


def some(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Two thirds ordinary; each other element special or any bits."""
    ordinary = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    kind = torch.randint(6, shape, generator=generator)
    result = torch.where(kind == 4, picked(special(dtype), shape, generator), ordinary)
    return torch.where(kind == 5, any_bits(shape, dtype, generator), result)


@lru_cache
def rope(
    shape: tuple[int, int, int, int], heads: int, x_dtype: torch.dtype, table: torch.dtype, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """x (batch, token, head, dim); cos and sin (1, token, heads, dim / 2), which broadcast over x's."""
    generator = torch.Generator().manual_seed(seed)
    batch, tokens, _, dim = shape
    table_shape = (1, tokens, heads, dim // 2)
    angle = torch.rand(table_shape, generator=generator, dtype=torch.float64) * 6000
    cos, sin = angle.cos().to(table), angle.sin().to(table)
    special_token = (torch.arange(tokens) % 8 == 7)[None, :, None, None]
    cos = torch.where(special_token, some(table_shape, table, generator), cos)
    sin = torch.where(special_token, some(table_shape, table, generator), sin)
    x = some(shape, x_dtype, generator)
    # x1 near sin and x2 near cos: x1 * cos - x2 * sin nearly cancels.
    near = torch.rand(shape, generator=generator) < 0.2
    halves = torch.cat((sin, cos), dim=-1).expand(shape).to(x_dtype)
    pairs = torch.stack((sin, cos), dim=-1).flatten(-2).expand(shape).to(x_dtype)
    token = torch.arange(tokens)[None, :, None, None]
    x = torch.where(near, torch.where(token % 2 == 0, halves, pairs), x)
    # And sin such that it cancels as well as the table's dtype can: what is left shows which product was rounded.
    x1, x2 = ((1 + torch.rand(table_shape, generator=generator)).to(x_dtype) for _ in range(2))
    ratio = x1.double() / x2.double()
    for remainder, layout in ((5, torch.cat((x1, x2), dim=-1)), (6, torch.stack((x1, x2), dim=-1).flatten(-2))):
        chosen = token % 8 == remainder
        x = torch.where(chosen, layout.expand(shape), x)
        sin = torch.where(chosen, (cos.double() * ratio).to(table), sin)
    return x, cos, sin


@lru_cache
def silu_mul(shape: tuple[int, int], dtype: torch.dtype, seed: int) -> tuple[Tensor, Tensor]:
    """Every gate there is in a 16-bit type, several times."""
    generator = torch.Generator().manual_seed(seed)
    gate, up = some(shape, dtype, generator), some(shape, dtype, generator)
    if gate.element_size() == 2:
        gate = torch.arange(gate.numel()).to(torch.int16).view(dtype).reshape(shape)
    return gate, up
