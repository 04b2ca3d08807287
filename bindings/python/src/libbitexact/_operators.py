"""torch.ops.libbitexact.*: the sites as operators, for tracing, compiling and dispatch modes.

Eager calls do not come here: the dispatcher costs several microseconds. Each operator names its site by a
string; a name of the form `silu_mul/<numerics>[/<limit>]` or `rope/<Rope>` needs no site made before.
"""

from __future__ import annotations

import threading
from typing import Any, Callable, Optional

import torch

from . import _site
from ._rope_site import RopeSite
from ._silu_mul_site import SiluMulSite
from ._site import DeclinedError
from .numerics import Rope, silu_mul_parse

__all__ = ["DeclinedError", "RopeSite", "SiluMulSite", "site"]

Tensor = torch.Tensor

_default_sites: dict[str, Any] = {}
_lock = threading.Lock()


def site(name: str) -> Any:
    """The site of that name; default ones are made on demand.

    Raises:
        LookupError: no such site, such as when a compiled graph outlives the patch that it was made with.
    """
    found = _default_sites.get(name) or _site._sites.get(name)
    if found is not None:
        return found
    with _lock:
        if name not in _default_sites:
            kind, _, rest = name.partition("/")
            if kind == "silu_mul":
                numerics, limit = silu_mul_parse(rest)
                _default_sites[name] = SiluMulSite(numerics, name=name, limit=limit)
            elif kind == "rope":
                _default_sites[name] = RopeSite(Rope.parse(rest), name=name)
            else:
                raise LookupError(
                    f"libbitexact has no site {name!r}: patch the model again before running this graph"
                )
        return _default_sites[name]


_library = torch.library.Library("libbitexact", "DEF")
_tags = [tag for name in ("needs_exact_strides",) if (tag := getattr(torch.Tag, name, None)) is not None]
_tables = "Tensor cos, Tensor? sin, Tensor? positions"

for _schema in (
    "silu_mul(Tensor gate, Tensor up, str site) -> Tensor",
    "silu_mul_out(Tensor gate, Tensor up, Tensor(a!) out, str site) -> ()",
    f"rope(Tensor q, {_tables}, str site) -> Tensor",
    f"rope_out(Tensor q, {_tables}, Tensor(a!) q_out, str site) -> ()",
    f"rope_pair(Tensor q, Tensor k, {_tables}, str site) -> (Tensor, Tensor)",
    f"rope_pair_out(Tensor q, Tensor k, {_tables}, Tensor(a!) q_out, Tensor(b!) k_out, str site) -> ()",
):
    _library.define(_schema, tags=_tags)


# ------------------------------------------------------------------------------------- bodies --


def _silu_mul(gate: Tensor, up: Tensor, name: str) -> Tensor:
    return site(name)(gate, up)


def _silu_mul_out(gate: Tensor, up: Tensor, out: Tensor, name: str) -> None:
    site(name)(gate, up, out)


def _rope(q: Tensor, cos: Tensor, sin: Optional[Tensor], positions: Optional[Tensor], name: str) -> Tensor:
    return site(name)(q, None, cos, sin, positions)


def _rope_out(
    q: Tensor, cos: Tensor, sin: Optional[Tensor], positions: Optional[Tensor], q_out: Tensor, name: str
) -> None:
    site(name)(q, None, cos, sin, positions, q_out)


def _rope_pair(
    q: Tensor, k: Tensor, cos: Tensor, sin: Optional[Tensor], positions: Optional[Tensor], name: str
) -> tuple[Tensor, Tensor]:
    return site(name)(q, k, cos, sin, positions)


def _rope_pair_out(
    q: Tensor,
    k: Tensor,
    cos: Tensor,
    sin: Optional[Tensor],
    positions: Optional[Tensor],
    q_out: Tensor,
    k_out: Tensor,
    name: str,
) -> None:
    site(name)(q, k, cos, sin, positions, q_out, k_out)


# The eager chain: what gradients and fake tensors go through. Fake results thus have eager's own strides.


def _silu_mul_chain(gate: Tensor, up: Tensor, name: str) -> Tensor:
    return site(name).reference(gate, up)


def _silu_mul_out_chain(gate: Tensor, up: Tensor, out: Tensor, name: str) -> None:
    out.copy_(site(name).reference(gate, up))


def _rope_chain(
    q: Tensor, cos: Tensor, sin: Optional[Tensor], positions: Optional[Tensor], name: str
) -> Tensor:
    return site(name).reference(q, None, cos, sin, positions)


def _rope_out_chain(
    q: Tensor, cos: Tensor, sin: Optional[Tensor], positions: Optional[Tensor], q_out: Tensor, name: str
) -> None:
    q_out.copy_(site(name).reference(q, None, cos, sin, positions))


def _rope_pair_chain(
    q: Tensor, k: Tensor, cos: Tensor, sin: Optional[Tensor], positions: Optional[Tensor], name: str
) -> tuple[Tensor, Tensor]:
    return site(name).reference(q, k, cos, sin, positions)


def _rope_pair_out_chain(
    q: Tensor,
    k: Tensor,
    cos: Tensor,
    sin: Optional[Tensor],
    positions: Optional[Tensor],
    q_out: Tensor,
    k_out: Tensor,
    name: str,
) -> None:
    q_result, k_result = site(name).reference(q, k, cos, sin, positions)
    q_out.copy_(q_result)
    k_out.copy_(k_result)


def _nothing(*_: Any) -> None:
    """A fake of an operator that only writes."""


def _register(name: str, body: Callable[..., Any], chain: Callable[..., Any]) -> None:
    operator = getattr(torch.ops.libbitexact, name).default

    def differentiable(*arguments: Any) -> Any:
        if _site.wants_grad(*(a for a in arguments if isinstance(a, Tensor))):
            site(arguments[-1])._eager_because("gradients are wanted")
            return chain(*arguments)
        with torch._C._AutoDispatchBelowAutograd():
            return operator(*arguments)

    for key in ("CPU", "CUDA"):
        _library.impl(name, body, key)
    _library.impl(name, differentiable, "Autograd")
    torch.library.register_fake(
        f"libbitexact::{name}", _nothing if name.endswith("_out") else chain, lib=_library
    )


for _name, _body, _chain in (
    ("silu_mul", _silu_mul, _silu_mul_chain),
    ("silu_mul_out", _silu_mul_out, _silu_mul_out_chain),
    ("rope", _rope, _rope_chain),
    ("rope_out", _rope_out, _rope_out_chain),
    ("rope_pair", _rope_pair, _rope_pair_chain),
    ("rope_pair_out", _rope_pair_out, _rope_pair_out_chain),
):
    _register(_name, _body, _chain)
