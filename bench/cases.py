"""Shapes that models use, their inputs, and the eager chains that are the truth."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

Tensor = torch.Tensor
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@dataclass(frozen=True)
class SiluMul:
    model: str
    tokens: int
    width: int
    dtype: torch.dtype = BF16
    packed: bool = False

    operation = "silu_mul"

    @property
    def name(self) -> str:
        return (
            f"{self.model} {self.tokens} x {self.width} {short(self.dtype)}{' packed' if self.packed else ''}"
        )

    @property
    def input_elements(self) -> int:
        return 2 * self.tokens * self.width

    @property
    def moved_bytes(self) -> int:
        return 3 * self.tokens * self.width * self.dtype.itemsize

    def inputs(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        """Gate and up as views of one buffer."""
        if self.packed:
            return flat.view(self.tokens, 2 * self.width).chunk(2, dim=-1)
        return flat.view(2, self.tokens, self.width).unbind()

    def eager(self, gate: Tensor, up: Tensor) -> Tensor:
        return torch.nn.functional.silu(gate) * up


@dataclass(frozen=True)
class Rope:
    model: str
    tokens: int
    q_heads: int
    k_heads: int
    dim: int
    dtype: torch.dtype = BF16
    table_dtype: torch.dtype = BF16
    half_table: bool = False
    interleaved: bool = False

    operation = "rope"

    @property
    def name(self) -> str:
        return (
            f"{self.model} {self.tokens} x ({self.q_heads},{self.k_heads}) x {self.dim} {short(self.dtype)}, "
            f"{'half' if self.half_table else 'full'} {short(self.table_dtype)}"
            f"{' interleaved' if self.interleaved else ''}"
        )

    @property
    def input_elements(self) -> int:
        return self.tokens * (self.q_heads + self.k_heads) * self.dim

    @property
    def moved_bytes(self) -> int:
        return 2 * self.input_elements * self.dtype.itemsize

    def inputs(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        """q and k as views of one buffer."""
        split = self.tokens * self.q_heads * self.dim
        return flat[:split].view(self.tokens, self.q_heads, self.dim), flat[split:].view(
            self.tokens, self.k_heads, self.dim
        )

    def tables(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """cos and sin of the usual angles, shared by all sets as by the layers of a model."""
        frequencies = 10000.0 ** -(
            torch.arange(self.dim // 2, device=device, dtype=torch.float64) * 2 / self.dim
        )
        angles = torch.arange(self.tokens, device=device, dtype=torch.float64)[:, None] * frequencies
        if not self.half_table:
            angles = (
                angles.repeat_interleave(2, dim=-1) if self.interleaved else torch.cat((angles, angles), -1)
            )
        return angles.cos().to(self.table_dtype), angles.sin().to(self.table_dtype)

    def halves(self, table: Tensor) -> Tensor:
        """The table with one entry for each pair."""
        if self.half_table:
            return table
        return (table[:, ::2] if self.interleaved else table[:, : self.dim // 2]).contiguous()

    def eager(self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """As the models write it: diffusers (float32 tables, interleaved), gpt-oss (half tables), Llama."""
        c, s = cos[:, None, :], sin[:, None, :]
        if self.half_table:
            return self.turn_halves(q, c, s), self.turn_halves(k, c, s)
        if self.table_dtype != self.dtype:
            return tuple((x.float() * c + self.quarter_turn(x).float() * s).to(x.dtype) for x in (q, k))
        return q * c + self.quarter_turn(q) * s, k * c + self.quarter_turn(k) * s

    def quarter_turn(self, x: Tensor) -> Tensor:
        if self.interleaved:
            even, odd = x.reshape(*x.shape[:-1], -1, 2).unbind(-1)
            return torch.stack((-odd, even), dim=-1).flatten(-2)
        first, second = x.chunk(2, dim=-1)
        return torch.cat((-second, first), dim=-1)

    def turn_halves(self, x: Tensor, c: Tensor, s: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=-1)
        return torch.cat((first * c - second * s, second * c + first * s), dim=-1)


def sets_of(case: Any, count: int, device: torch.device) -> list[Tensor]:
    """Buffers of normal random numbers."""
    return [torch.randn(case.input_elements, device=device, dtype=case.dtype) for _ in range(count)]


def peer_cases() -> list[Any]:
    """What peers are measured on, the most telling ones first: a run that is short of time ends early."""
    video = {"table_dtype": F32, "interleaved": True}
    return [
        SiluMul("Ideogram-4", 4400, 12288),
        Rope("Ideogram-4", 4400, 18, 18, 256),
        Rope("Flux", 4608, 24, 24, 128, **video),
        SiluMul("Llama-3 8B", 1, 14336, packed=True),
        SiluMul("Llama-3 8B", 16, 14336),
        SiluMul("Llama-3 8B", 256, 14336),
        SiluMul("Llama-3 8B", 8192, 14336, packed=True),
        Rope("Llama-3 8B", 1, 32, 8, 128),
        Rope("Llama-3 8B", 16, 32, 8, 128),
        Rope("Llama-3 8B", 256, 32, 8, 128),
        Rope("Llama-3 8B", 8192, 32, 8, 128),
        Rope("Wan", 75600, 40, 40, 128, **video),
        Rope("gpt-oss", 8192, 64, 8, 64, half_table=True),
        Rope("HunyuanVideo", 118800, 24, 24, 128, **video),
        SiluMul("Llama-3 70B", 1, 28672),
        SiluMul("Llama-3 70B", 16, 28672, packed=True),
        SiluMul("Llama-3 70B", 8192, 28672),
        Rope("Llama-3 70B", 1, 64, 8, 128),
        Rope("Llama-3 70B", 16, 64, 8, 128),
        Rope("Llama-3 70B", 8192, 64, 8, 128),
        Rope("Qwen3", 8192, 40, 8, 128),
        SiluMul("Qwen3", 8192, 17408),
        SiluMul("Ideogram-4", 4400, 12288, dtype=F16),
        SiluMul("Ideogram-4", 4400, 12288, dtype=F32),
        Rope("Flux", 4608, 24, 24, 128, dtype=F16, table_dtype=F16),
        Rope("Flux", 4608, 24, 24, 128, dtype=F32, table_dtype=F32),
        Rope("odd", 257, 16, 16, 80),
        SiluMul("odd", 1026, 3584),
    ]


def growth_cases(largest: int = 100_000) -> list[Any]:
    """From one token over five decades, in a Llama's shape."""
    tokens = [10**i for i in range(int(math.log10(largest)) + 1)]
    return [SiluMul("growth", t, 14336) for t in tokens] + [Rope("growth", t, 32, 8, 128) for t in tokens]


def tiny_cases() -> list[Any]:
    """Every kind of case, in sizes for a CPU."""
    return [
        SiluMul("tiny", 5, 48),
        SiluMul("tiny", 5, 48, packed=True),
        SiluMul("tiny", 5, 48, dtype=F16),
        Rope("tiny", 5, 4, 2, 16),
        Rope("tiny", 5, 4, 2, 16, table_dtype=F32, interleaved=True),
        Rope("tiny", 5, 4, 2, 16, half_table=True),
        Rope("tiny", 5, 4, 2, 16, dtype=F16, table_dtype=F16),
    ]
