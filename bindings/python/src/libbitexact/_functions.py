"""libbitexact.fused_silu_mul and libbitexact.fused_rope for torch tensors."""

from __future__ import annotations

import weakref
from typing import Any, Callable, Optional

import torch

from . import _operators, chains
from ._rope_site import RopeSite
from ._silu_mul_site import SiluMulSite
from .numerics import Rope, silu_mul_candidates, silu_mul_name

Tensor = torch.Tensor

_by_reference: "weakref.WeakKeyDictionary[Any, dict[Any, Any]]" = weakref.WeakKeyDictionary()


def _site_of(reference: Callable[..., Any], key: Any, make: Callable[[], Any]) -> Any:
    """One site for each callable and way of use, for as long as the callable lives.

    The site must not keep its callable alive: a bound method or lambda made anew for each call would never go
        away.
    """
    sites = _by_reference.setdefault(reference, {})
    if key not in sites:
        sites[key] = make()
    return sites[key]


_silu_sites: dict[tuple[str, Optional[float]], SiluMulSite] = {}
_rope_sites: dict[Rope, RopeSite] = {}


def _silu_site(numerics: str, limit: Optional[float]) -> SiluMulSite:
    found = _silu_sites.get((numerics, limit))
    if found is None:
        silu_mul_candidates(numerics, limit)  # refuses before a name is made of them
        found = _operators.site(f"silu_mul/{silu_mul_name(numerics, limit)}")
        _silu_sites[numerics, limit] = found
    return found


def _rope_site(how: Rope) -> RopeSite:
    found = _rope_sites.get(how)
    if found is None:
        found = _rope_sites[how] = _operators.site(f"rope/{how}")
    return found


def _weak(reference: Callable[..., Any]) -> Callable[..., Any]:
    held = weakref.ref(reference)

    def call(*arguments: Any) -> Any:
        return held()(*arguments)  # type: ignore[misc]

    return call


def fused_silu_mul(
    gate: Tensor,
    up: Tensor,
    *,
    out: Optional[Tensor] = None,
    numerics: str = "eager",
    limit: Optional[float] = None,
    reference: Optional[Callable[[Tensor, Tensor], Tensor]] = None,
) -> Tensor:
    """silu(gate) * up in one kernel, with the bits of the eager chain.

    The first call of each kernel runs eager and compares; if one bit differs, eager runs for good. Calls that
    no kernel serves (gradients wanted, tensor subclasses, strides that cannot be expressed) run eager: see
    report().

    Args:
        gate: any shape; bfloat16, float16 or float32; CUDA or CPU. Slices, views and packed halves need no
            copy.
        up: shape, dtype and device of gate.
        out: result goes here; may be gate or up. None: a new tensor with the strides that eager would give
            it.
        numerics: name of the chain: "eager" is F.silu(gate) * up, "fp32" is
            (F.silu(gate.float()) * up.float()).to(gate.dtype), "sigmoid" is gate * sigmoid(gate) * up,
            "candle" is gate / (1 + exp(-gate)) * up with every step in gate's dtype; "glu" is
            up * sigmoid(gate), "glu_fp32" is F.glu, which rounds once. Three have a limit:
            "clamp_before" is F.silu(gate.clamp(max=limit)) * up.clamp(-limit, limit),
            "clamp_before_fp32" the same on gate.float() and up.float() and cast once, and "clamp_after" is
            F.silu(gate).clamp(max=limit) * up.clamp(-limit, limit).
        limit: a finite float32 number above 0 where the chain has one.
        reference: your own chain as the truth, (gate, up) -> result, in place of PyTorch's operators;
            inside torch.compile use a SiluMulSite that has it.

    Returns:
        out, or a new tensor of gate's shape, dtype and device.

    Raises:
        ValueError: an unknown numerics; a limit that does not fit it; out overlaps itself, or an input without
            being exactly in place.
        DeclinedError: the gate is closed and BITEXACT_GATE is strict.

    Source: the roundings are PyTorch's own on CUDA, defined in bitexact.h (bitexact_silu_mul_params).
    """
    if torch.compiler.is_compiling() and reference is None:
        if not (torch.is_grad_enabled() and (gate.requires_grad or up.requires_grad)):
            name = f"silu_mul/{silu_mul_name(numerics, limit)}"
            if out is None:
                return torch.ops.libbitexact.silu_mul(gate, up, name)
            torch.ops.libbitexact.silu_mul_out(gate, up, out, name)
            return out
        if out is None:
            return chains.silu_mul(numerics, limit)(gate, up)
    if reference is not None:
        key = "silu_mul", numerics, limit
        site = _site_of(reference, key, lambda: SiluMulSite(numerics, _weak(reference), limit=limit))
    else:
        site = _silu_site(numerics, limit)
    return site(gate, up, out)


def fused_rope(
    q: Tensor,
    k: Optional[Tensor] = None,
    cos: Optional[Tensor] = None,
    sin: Optional[Tensor] = None,
    *,
    positions: Optional[Tensor] = None,
    pairing: str = "half",
    pairing_out: Optional[str] = None,
    rotary_dim: Optional[int] = None,
    layout: str = "bshd",
    head_dim: Optional[int] = None,
    inverse: bool = False,
    numerics: str = "eager",
    q_out: Optional[Tensor] = None,
    k_out: Optional[Tensor] = None,
    reference: Optional[Callable[..., Any]] = None,
) -> Any:
    """Rotary position embedding of q, and of k if given, in one kernel, with the bits of the eager chain.

    Gate, fallback and report as for fused_silu_mul().

    Args:
        q: (batch, token, head, dim), (token, head, dim) or (token, dim) for layout "bshd"; (batch, head,
            token, dim) or (head, token, dim) for "bhsd"; (..., token, head * dim) if head_dim is given.
            bfloat16, float16 or float32; CUDA or CPU; any strides with a contiguous last axis.
        k: as q, with any number of heads.
        cos: (row, width), (batch, row, width), or as many axes as q, broadcasting; float32, float64 or q's
            dtype; width rotary_dim or rotary_dim / 2. Row is token, unless positions are given. Or a complex
            table, sin left out.
        sin: shape and dtype of cos.
        positions: (token,) or (batch, token), int32 or int64: the row of each token, in [0, rows).
        pairing: "half" rotates element j with j + rotary_dim / 2, "interleaved" 2j with 2j + 1.
        pairing_out: pairing of the result; None: as the input.
        rotary_dim: how many elements of a head rotate, the rest is copied. None: the width of cos (twice that
            if complex), which must then be dim; tables of half width need it said.
        layout: order of the axes, "bshd" or "bhsd".
        head_dim: splits the last axis of packed tensors into heads.
        inverse: rotate backwards (sin negated).
        numerics: name of the chain, a key of libbitexact.numerics.ROPE: "eager" (operators in the promoted
            dtype), "fp32", "fp64" (upcast first), "complex64", "complex128", "addcmul", "addcmul_fp32",
            "addcmul_x1", "matrix_sum".
        q_out, k_out: results go here; q_out may be q, k_out may be k. None: new tensors with eager's strides.
        reference: your own chain as the truth, (q, k, cos, sin, positions) -> result or pair of results;
            inside torch.compile use a RopeSite that has it.

    Returns:
        The rotated q, or the pair (q, k) if k was given.

    Raises:
        ValueError: an unknown name; no rotary_dim where it cannot be told; an output that overlaps.
        DeclinedError: the gate is closed and BITEXACT_GATE is strict.

    Source: the roundings are PyTorch's own on CUDA, defined in bitexact.h (bitexact_rope_params).
    """
    if cos is None:
        raise ValueError("cos is missing; accepted: cos and sin, or a complex table as cos")
    if head_dim is not None:
        views: list[Any] = [
            None if t is None else t.unflatten(-1, (-1, head_dim)) for t in (q, k, q_out, k_out)
        ]
        rotated = fused_rope(
            views[0],
            views[1],
            cos,
            sin,
            positions=positions,
            pairing=pairing,
            pairing_out=pairing_out,
            rotary_dim=rotary_dim,
            layout=layout,
            inverse=inverse,
            numerics=numerics,
            q_out=views[2],
            k_out=views[3],
            reference=reference,
        )
        return rotated.flatten(-2) if k is None else tuple(t.flatten(-2) for t in rotated)
    if rotary_dim is None:
        rotary_dim = cos.shape[-1] * (2 if sin is None else 1)
        if rotary_dim != q.shape[-1]:
            raise ValueError(
                f"tables of width {cos.shape[-1]} for a head of {q.shape[-1]}: say rotary_dim "
                "(the width, or twice it)"
            )
    if torch.compiler.is_compiling() and reference is None:
        tensors = [t for t in (q, k, cos, sin) if t is not None]
        if not (torch.is_grad_enabled() and any(t.requires_grad for t in tensors)):
            # As str(Rope) gives it; spelled out, since Dynamo does not follow a dataclass into a string.
            written, switches = pairing_out or pairing, "i" if inverse else "-"
            name = f"rope/{numerics}/{pairing}/{written}/{int(rotary_dim)}/{layout}/{switches}"
            return _traced_rope(q, k, cos, sin, positions, q_out, k_out, name)
    how = Rope(numerics, pairing, pairing_out, int(rotary_dim), layout, inverse)
    if reference is not None:
        site = _site_of(reference, how, lambda: RopeSite(how, _weak(reference)))
    else:
        site = _rope_site(how)
    return site(q, k, cos, sin, positions, q_out, k_out)


def _traced_rope(
    q: Any, k: Any, cos: Any, sin: Any, positions: Any, q_out: Any, k_out: Any, name: str
) -> Any:
    ops = torch.ops.libbitexact
    if q_out is None and k_out is None:
        if k is None:
            return ops.rope(q, cos, sin, positions, name)
        return ops.rope_pair(q, k, cos, sin, positions, name)
    if k is None:
        ops.rope_out(q, cos, sin, positions, q_out, name)
        return q_out
    q_result = q_out if q_out is not None else torch.empty_like(q)
    k_result = k_out if k_out is not None else torch.empty_like(k)
    ops.rope_pair_out(q, k, cos, sin, positions, q_result, k_result, name)
    return q_result, k_result
