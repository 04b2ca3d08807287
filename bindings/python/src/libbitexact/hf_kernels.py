"""The rotary kernel for transformers' own switch, `kernels`: a mapping that downloads nothing.

    from kernels import Mode, kernelize, use_kernel_mapping
    with use_kernel_mapping(libbitexact.hf_kernels.mapping(), inherit_mapping=False):
        model = kernelize(model, mode=Mode.INFERENCE, device="cuda")

The model's own function stays the truth, as with libbitexact.patch(), which finds more places and can be
undone.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import nn

from .patching._adapters import QueryAndKey

_adapters: dict[type, QueryAndKey] = {}
_lock = threading.Lock()


def _adapter(cls: type) -> QueryAndKey:
    """One gate for each rotary function: `kernels` makes a module class of each."""
    found = _adapters.get(cls)
    if found is None:
        with _lock:
            if cls not in _adapters:
                module = cls()  # a function as a module: it has no state

                def original(q: Any, k: Any, cos: Any, sin: Any, unsqueeze_dim: int = 1) -> Any:
                    return cls.forward(module, q, k, cos, sin, unsqueeze_dim)  # type: ignore[attr-defined]

                _adapters[cls] = QueryAndKey(original, f"kernels/{cls.__module__}.{cls.__qualname__}")
        found = _adapters[cls]
    return found


class RotaryPosEmb(nn.Module):
    """Stands in for a function (q, k, cos, sin, unsqueeze_dim=1) -> (q, k).

    Its forward is bound to the module that held the function, whose class still has the function itself.
    """

    has_backward = True
    can_torch_compile = False  # a site is made at the first call; patch() makes them ahead

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, unsqueeze_dim: int = 1
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return _adapter(type(self))(q, k, cos, sin, unsqueeze_dim)


class Repository:
    """What a mapping of `kernels` holds: something that loads a layer class."""

    def load(self) -> type[nn.Module]:
        return RotaryPosEmb

    def __str__(self) -> str:
        return "libbitexact"


_repository = Repository()


def mapping() -> dict[str, dict[str, Repository]]:
    """Layer name -> device -> repository, for kernels.use_kernel_mapping or register_kernel_mapping."""
    return {"rotary_pos_emb": {"cuda": _repository, "cpu": _repository}}
