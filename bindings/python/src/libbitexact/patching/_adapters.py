"""Rotary functions of the frameworks, by name and signature: how their arguments become those of a RopeSite.

An adapter stands in for one function in one model. It calls its sites where it understands the call, and the
function itself otherwise.
"""

from __future__ import annotations

import inspect
from typing import Any, Callable, Optional, Sequence

import torch

from .._operators import RopeSite
from .._site import unique_name
from ..numerics import Rope
from ._rewrite import INLINE

Tensor = torch.Tensor
Original = Callable[..., Any]


def real_chains(layout: str) -> list[Rope]:
    """What a function with real tables may compute, likeliest first."""
    pairings: Sequence[tuple[str, Optional[str]]] = (
        ("half", None),
        ("interleaved", None),
        ("interleaved", "half"),
    )
    tables = ((-1, False), (-1, True), (-2, False))  # one entry an element; doubled; one entry a pair
    return [
        Rope(numerics, pairing, out, rotary_dim, layout, first_half=first_half)
        for rotary_dim, first_half in tables
        for pairing, out in pairings
        for numerics in ("eager", "fp32")
    ]


def complex_chains(layout: str) -> list[Rope]:
    return [Rope(n, "interleaved", None, -1, layout) for n in ("complex64", "complex128")]


class Adapter:
    """Base: `sites` by a key that the arguments give."""

    def __init__(self, original: Original, owner: str) -> None:
        self.original = original
        self.owner = owner
        self.sites: dict[Any, RopeSite] = {}
        self.name = getattr(original, "__name__", "rotary")

    def add(self, key: Any, ropes: Sequence[Rope], reference: Callable[..., Any]) -> None:
        suffix = "" if key is None else f" {key}"
        self.sites[key] = RopeSite(ropes, reference, unique_name(f"{self.owner}/{self.name}{suffix}"))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


class QueryAndKey(Adapter):
    """transformers: (q, k, cos, sin, unsqueeze_dim=1) -> (q, k)."""

    def __init__(self, original: Original, owner: str) -> None:
        super().__init__(original, owner)
        for axis, layout in ((1, "bhsd"), (2, "bshd")):

            def reference(
                q: Tensor, k: Optional[Tensor], cos: Tensor, sin: Tensor, positions: Any, axis: int = axis
            ) -> Any:
                return original(q, k, cos, sin, axis)

            self.add(axis, real_chains(layout), reference)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 5 and not kwargs:
            q, k, cos, sin, axis = args
        elif len(args) == 4 and (not kwargs or tuple(kwargs) == ("unsqueeze_dim",)):
            q, k, cos, sin = args
            axis = kwargs.get("unsqueeze_dim", 1)
        else:
            return self.original(*args, **kwargs)
        if axis not in self.sites or q.dim() != 4 or cos.dim() != 3:
            return self.original(*args, **kwargs)
        return self.sites[axis](q, k, cos, sin)


class OneTensor(Adapter):
    """transformers, newer Gemma: (x, cos, sin, unsqueeze_dim=1) -> x."""

    def __init__(self, original: Original, owner: str) -> None:
        super().__init__(original, owner)
        for axis, layout in ((1, "bhsd"), (2, "bshd")):

            def reference(
                q: Tensor, k: Any, cos: Tensor, sin: Tensor, positions: Any, axis: int = axis
            ) -> Any:
                return original(q, cos, sin, axis)

            self.add(axis, real_chains(layout), reference)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 4 and not kwargs:
            x, cos, sin, axis = args
        elif len(args) == 3 and (not kwargs or tuple(kwargs) == ("unsqueeze_dim",)):
            x, cos, sin = args
            axis = kwargs.get("unsqueeze_dim", 1)
        else:
            return self.original(*args, **kwargs)
        if axis not in self.sites or x.dim() != 4 or cos.dim() != 3:
            return self.original(*args, **kwargs)
        return self.sites[axis](x, None, cos, sin)


class Diffusers(Adapter):
    """diffusers: (x, freqs_cis, use_real=True, use_real_unbind_dim=-1, sequence_dim=2) and those without the
    last."""

    def __init__(self, original: Original, owner: str) -> None:
        super().__init__(original, owner)
        self.has_sequence_dim = "sequence_dim" in inspect.signature(original).parameters
        for sequence_dim, layout in ((1, "bshd"), (2, "bhsd")):
            last = {"sequence_dim": sequence_dim} if self.has_sequence_dim else {}
            if not last and sequence_dim == 2:
                continue
            for unbind_dim in (-1, -2):

                def reference(
                    q: Tensor,
                    k: Any,
                    cos: Tensor,
                    sin: Tensor,
                    p: Any,
                    unbind_dim: int = unbind_dim,
                    last: Any = last,
                ) -> Any:
                    return original(q, (cos, sin), use_real=True, use_real_unbind_dim=unbind_dim, **last)

                self.add((unbind_dim, sequence_dim), real_chains(layout), reference)

        def complex_reference(q: Tensor, k: Any, cos: Tensor, sin: Any, positions: Any) -> Any:
            return original(q, cos, use_real=False)

        self.add("complex", complex_chains("bshd"), complex_reference)

    def __call__(
        self,
        x: Tensor,
        freqs_cis: Any,
        use_real: bool = True,
        use_real_unbind_dim: int = -1,
        sequence_dim: Optional[int] = None,
    ) -> Any:
        if x.dim() == 4:
            if not use_real:
                if isinstance(freqs_cis, Tensor) and freqs_cis.is_complex() and freqs_cis.dim() in (2, 3):
                    return self.sites["complex"](x, None, freqs_cis)
            else:
                axis = sequence_dim if sequence_dim is not None else (2 if self.has_sequence_dim else 1)
                site = self.sites.get((use_real_unbind_dim, axis))
                if site is not None and isinstance(freqs_cis, (tuple, list)) and freqs_cis[0].dim() == 2:
                    return site(x, None, freqs_cis[0], freqs_cis[1])
        named = {} if sequence_dim is None else {"sequence_dim": sequence_dim}
        return self.original(x, freqs_cis, use_real, use_real_unbind_dim, **named)


class ComplexTable(Adapter):
    """Z-Image: (x, freqs_cis) with freqs_cis (batch, token, pair) -> x."""

    def __init__(self, original: Original, owner: str) -> None:
        super().__init__(original, owner)

        def reference(q: Tensor, k: Any, cos: Tensor, sin: Any, positions: Any) -> Any:
            return original(q, cos)

        self.add(None, complex_chains("bshd"), reference)

    def __call__(self, x: Tensor, freqs_cis: Any) -> Any:
        if isinstance(freqs_cis, Tensor) and freqs_cis.is_complex() and x.dim() == 4 and freqs_cis.dim() == 3:
            return self.sites[None](x, None, freqs_cis)
        return self.original(x, freqs_cis)


class WholeWidth(Adapter):
    """LTX-Video: (x, (cos, sin)) over all heads at once, (batch, token, heads * dim) -> x."""

    def __init__(self, original: Original, owner: str) -> None:
        super().__init__(original, owner)

        def reference(q: Tensor, k: Any, cos: Tensor, sin: Tensor, positions: Any) -> Any:
            return original(q.squeeze(2), (cos, sin)).unsqueeze(2)

        self.add(None, real_chains("bshd"), reference)

    def __call__(self, x: Tensor, freqs: Any) -> Any:
        if isinstance(freqs, (tuple, list)) and x.dim() == 3 and freqs[0].dim() == 3:
            return self.sites[None](x.unsqueeze(2), None, freqs[0], freqs[1]).squeeze(2)
        return self.original(x, freqs)


class EvenAndOdd(Adapter):
    """Wan: (x, cos, sin) with tables whose entries come in pairs; reads cos at even and sin at odd places."""

    def __init__(self, original: Original, owner: str) -> None:
        super().__init__(original, owner)

        def reference(q: Tensor, k: Any, cos: Tensor, sin: Tensor, positions: Any) -> Any:
            return original(q, cos.repeat_interleave(2, dim=-1), sin.repeat_interleave(2, dim=-1))

        self.add(None, [Rope(numerics, "interleaved", None, -2) for numerics in ("eager", "fp32")], reference)

    def __call__(self, x: Tensor, cos: Tensor, sin: Tensor) -> Any:
        if x.dim() == 4 and cos.dim() == 4:
            return self.sites[None](x, None, cos[..., 0::2], sin[..., 1::2])
        return self.original(x, cos, sin)


class Inline(Adapter):
    """A rotation written out, x * cos + rotate_half(x) * sin, whose tables have the axes of x."""

    def __init__(self, original: Original, owner: str) -> None:
        super().__init__(original, owner)

        def reference(q: Tensor, k: Any, cos: Tensor, sin: Tensor, positions: Any) -> Any:
            return q * cos + original(q) * sin

        self.reference = reference
        for layout in ("bshd", "bhsd"):
            self.add(layout, [Rope("eager", layout=layout)], reference)

    def __call__(self, x: Tensor, cos: Tensor, sin: Tensor) -> Any:
        if isinstance(x, Tensor) and x.dim() == 4 and isinstance(cos, Tensor) and cos.dim() == 4:
            return self.sites["bhsd" if cos.shape[1] == 1 else "bshd"](x, None, cos, sin)
        return self.reference(x, None, cos, sin, None)


# ----------------------------------------------------------------------------------- choosing --

Factory = Callable[[Original, str], Optional[Adapter]]
_factories: dict[str, list[Factory]] = {}


def register(function_name: str, factory: Factory) -> None:
    """Teaches patch() a rotary function of another model.

    Args:
        function_name: the name by which model code calls it.
        factory: (function, name of the model) -> Adapter, a callable that stands in for the function and
            whose `sites` are RopeSites; or None if it is not a function that the factory knows. Later
            registrations are asked first.
    """
    _factories.setdefault(function_name, []).insert(0, factory)


def known_names() -> set[str]:
    return set(_factories) - {INLINE}


def adapter_for(name: str, original: Original, owner: str) -> Optional[Adapter]:
    for factory in _factories.get(name, []):
        adapter = factory(original, owner)
        if adapter is not None:
            return adapter
    return None


def parameters_of(original: Original) -> list[str]:
    """Names of a function's parameters; `kernels` makes a module of a function, whose forward tells them."""
    if isinstance(original, torch.nn.Module):
        original = type(original).forward.__get__(original)
    return list(inspect.signature(original).parameters)


def _by_signature(original: Original, owner: str) -> Optional[Adapter]:
    names = parameters_of(original)
    if names[:4] == ["q", "k", "cos", "sin"] and names[-1] == "unsqueeze_dim":
        return QueryAndKey(original, owner)
    if names[:3] == ["x", "cos", "sin"] and names[-1] == "unsqueeze_dim":
        return OneTensor(original, owner)
    if names[:4] == ["x", "freqs_cis", "use_real", "use_real_unbind_dim"]:
        return Diffusers(original, owner)
    if names == ["x_in", "freqs_cis"]:
        return ComplexTable(original, owner)
    if names == ["x", "freqs"]:
        return WholeWidth(original, owner)
    if names == ["hidden_states", "freqs_cos", "freqs_sin"]:
        return EvenAndOdd(original, owner)
    return None


for _name in ("apply_rotary_pos_emb", "apply_rotary_emb", "apply_rotary_emb_qwen"):
    register(_name, _by_signature)
register(INLINE, Inline)
