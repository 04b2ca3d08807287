"""Comparing bits, and making sites that no other test has touched."""

from __future__ import annotations

import itertools
from typing import Any, Optional

import torch

from libbitexact import RopeSite, SiluMulSite, capi
from libbitexact.numerics import Rope

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_names = (f"test {number}" for number in itertools.count())


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().view(_INTEGERS[tensor.element_size()])


def assert_same(actual: torch.Tensor, expected: torch.Tensor, strides: bool = True) -> None:
    """Same dtype, device, shape, bits and (unless said) strides."""
    assert actual.dtype == expected.dtype and actual.device == expected.device
    assert actual.shape == expected.shape
    different = (bits(actual) != bits(expected)).flatten().nonzero()
    assert different.numel() == 0, (
        f"{different.numel()} of {actual.numel()} differ, first at {int(different[0])}"
    )
    if strides:
        assert actual.stride() == expected.stride()


def silu_site(
    numerics: Optional[str] = "eager", reference: Any = None, limit: Optional[float] = None
) -> SiluMulSite:
    return SiluMulSite(numerics, reference, next(_names), limit)


def rope_site(rope: Any = Rope(), reference: Any = None) -> RopeSite:
    return RopeSite(rope, reference, next(_names))


def states(site: Any) -> set[int]:
    return {verdict["state"] for verdict in site.verdicts()}


def fused_calls(site: Any) -> int:
    return sum(verdict["fused_calls"] for verdict in site.verdicts())


def only_accepted(site: Any) -> bool:
    """Kernels of candidates that another one was taken before stay undecided."""
    return states(site) - {capi.STATE_UNDECIDED} == {capi.STATE_ACCEPTED}


def random(shape: tuple[int, ...], dtype: torch.dtype, device: str, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, generator=generator, dtype=torch.float64)
    return values.to(dtype).to(device)


def angles(
    shape: tuple[int, ...], dtype: torch.dtype, device: str, seed: int = 7
) -> tuple[torch.Tensor, torch.Tensor]:
    values = random(shape, torch.float64, "cpu", seed) * 3
    return values.cos().to(dtype).to(device), values.sin().to(dtype).to(device)
