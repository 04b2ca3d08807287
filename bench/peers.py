"""What a user would run instead of bitexact, each behind one call: inputs of a case in, outputs out.

A factory takes a case and its tables and returns the call. It raises Unsupported where the peer has no such
operation; any other exception, a missing package among them, is that peer's row in the report.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from cases import Rope, SiluMul
from fused import Fused

Tensor = torch.Tensor
Call = Callable[[Tensor, Tensor], Any]  # (gate, up) or (q, k)


class Unsupported(Exception):
    """The peer does not offer this case."""


def need(condition: bool, what: str) -> None:
    if not condition:
        raise Unsupported(what)


@dataclass(frozen=True)
class Tables:
    """Of a RoPE case; empty for others. Peers want them in different forms: those are made ahead."""

    case: Any
    device: torch.device

    @functools.cached_property
    def pair(self) -> tuple[Tensor, Tensor]:
        return self.case.tables(self.device)

    @functools.cached_property
    def halves(self) -> tuple[Tensor, Tensor]:
        return self.case.halves(self.pair[0]), self.case.halves(self.pair[1])

    def cache(self, dtype: torch.dtype) -> Tensor:
        """(tokens, dim): cosines, then sines."""
        return torch.cat(self.halves, dim=-1).to(dtype)

    @functools.cached_property
    def positions(self) -> Tensor:
        return torch.arange(self.case.tokens, device=self.device)


# ----------------------------------------------------------------------------------- PyTorch --


def eager(case: Any, tables: Tables) -> Call:
    if case.operation == "silu_mul":
        return case.eager
    cos, sin = tables.pair
    return lambda q, k: case.eager(q, k, cos, sin)


def compiled(case: Any, tables: Tables, **options: bool) -> Call:
    function = torch.compile(case.eager, dynamic=False, options=options)
    if case.operation == "silu_mul":
        return function
    cos, sin = tables.pair
    return lambda q, k: function(q, k, cos, sin)


# ------------------------------------------------------------------------------------- peers --


def liger(case: Any, tables: Tables) -> Call:
    if case.operation == "silu_mul":
        need(not case.packed, "copies a packed tensor's halves")
        from liger_kernel.ops.swiglu import LigerSiLUMulFunction

        return LigerSiLUMulFunction.apply
    need(not case.interleaved, "half pairing only")
    from liger_kernel.ops.rope import LigerRopeFunction

    cos, sin = (t[None] for t in tables.pair)

    def rope(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        turned = LigerRopeFunction.apply(
            q[None].transpose(1, 2), k[None].transpose(1, 2), cos, sin, None, 1, case.dim
        )
        return tuple(t.transpose(1, 2)[0] for t in turned)

    return rope


def conch(case: Any, tables: Tables) -> Call:
    if case.operation == "silu_mul":
        need(case.packed, "packed tensors only")
        from conch.ops.activation.silu_and_mul import silu_and_mul

        return lambda gate, up: silu_and_mul(whole(gate))
    need(not case.interleaved, "half pairing only")
    from conch.ops.embedding.rotary_embedding import rotary_embedding

    cache, positions = tables.cache(case.table_dtype), tables.positions
    return lambda q, k: tuple(
        t.view(case.tokens, -1, case.dim)
        for t in rotary_embedding(positions, q.flatten(1), k.flatten(1), case.dim, cache)
    )


def flag_gems(case: Any, tables: Tables) -> Call:
    if case.operation == "silu_mul":
        from flag_gems.fused.silu_and_mul import silu_and_mul

        return silu_and_mul
    from flag_gems.fused.rotary_embedding import apply_rotary_pos_emb

    (cos, sin), positions = tables.halves, tables.positions
    return lambda q, k: apply_rotary_pos_emb(q, k, cos, sin, positions, case.interleaved)


def flashinfer(case: Any, tables: Tables) -> Call:
    need(case.dtype != torch.float32, "16-bit tensors only")
    import flashinfer as library

    if case.operation == "silu_mul":
        need(case.packed, "packed tensors only")
        return lambda gate, up: library.silu_and_mul(whole(gate))
    cache, positions = tables.cache(torch.float32), tables.positions
    return lambda q, k: tuple(
        t.view(case.tokens, -1, case.dim)
        for t in library.apply_rope_with_cos_sin_cache(
            positions, q.flatten(1), k.flatten(1), case.dim, cache, not case.interleaved
        )
    )


def whole(gate: Tensor) -> Tensor:
    """The packed tensor whose first half is `gate`."""
    rows, columns = gate.shape
    return gate.as_strided((rows, 2 * columns), (2 * columns, 1))


def gated_triton(case: Any, tables: Tables) -> Call:
    import gated_triton as own

    if case.operation == "silu_mul":
        return own.Gated(own.silu_mul, case.eager)
    cos, sin = tables.pair
    fused = lambda q, k: own.rope(q, k, cos, sin, case.interleaved)  # noqa: E731
    return own.Gated(fused, eager(case, tables))


# ---------------------------------------------------------------------------------- bitexact --


def bitexact(fused: Fused, case: Any, tables: Tables) -> Call:
    if case.operation == "silu_mul":
        return fused.silu_mul
    cos, sin = tables.pair
    return lambda q, k: fused.rope(q, k, cos, sin, case.interleaved)


def libbitexact(case: Any, tables: Tables) -> Call:
    """The Python package, whose gate takes eager's result as the truth."""
    import libbitexact as package

    if case.operation == "silu_mul":
        return package.fused_silu_mul
    cos, sin = tables.pair
    return functools.partial(
        package.fused_rope,
        cos=cos,
        sin=sin,
        pairing="interleaved" if case.interleaved else "half",
        rotary_dim=case.dim,
        numerics="eager" if case.table_dtype == case.dtype else "fp32",
    )


# ------------------------------------------------------------------------------------ limits --


def limits(case: Any) -> dict[str, Callable[[Tensor], Any]]:
    """One pass over the same bytes, of the flat buffer that holds a set's inputs."""
    if isinstance(case, SiluMul):
        return {
            "copy": lambda flat: flat[: flat.numel() * 3 // 4].clone(),
            "torch.add": lambda flat: torch.add(*flat.view(2, -1).unbind()),
        }
    assert isinstance(case, Rope)
    return {"copy": torch.clone, "torch.add": lambda flat: torch.add(flat, 1)}


def all_peers(fused: Fused) -> dict[str, Callable[[Any, Tables], Call]]:
    """In the order of the report; eager first, since its bits are the truth."""
    return {
        "eager": eager,
        "torch.compile": compiled,
        "torch.compile, precision casts": functools.partial(compiled, emulate_precision_casts=True),
        "Liger": liger,
        "Conch": conch,
        "FlagGems": flag_gems,
        "FlashInfer": flashinfer,
        "gated Triton": gated_triton,
        "bitexact": functools.partial(bitexact, fused),
        "bitexact, Python package": libbitexact,
    }


IN_PLACE = ("Liger", "Conch")  # their RoPE overwrites q and k
