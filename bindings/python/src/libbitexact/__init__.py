"""Fused RoPE and SiLU-mul whose output bits equal the eager operator chain.

Importing this touches no GPU and imports no framework; torch is imported when a function for it is first
used.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import capi, numerics
from .capi import Error, build_info, version

if TYPE_CHECKING:
    from ._functions import fused_rope, fused_silu_mul
    from ._operators import DeclinedError, RopeSite, SiluMulSite
    from ._report import Report, report
    from .patching import Mount, Patch, patch, register, unpatch

__version__ = version()

_LAZY = {
    "fused_rope": "_functions",
    "fused_silu_mul": "_functions",
    "Report": "_report",
    "report": "_report",
    "DeclinedError": "_operators",
    "RopeSite": "_operators",
    "SiluMulSite": "_operators",
    "Mount": "patching",
    "Patch": "patching",
    "patch": "patching",
    "register": "patching",
    "unpatch": "patching",
}

__all__ = ["Error", "build_info", "capi", "numerics", "version", *_LAZY]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in ("fused_rope", "fused_silu_mul") and "torch" not in sys.modules:
        return getattr(import_module(".arrays", __name__), name)  # not kept: torch may be imported later
    value = getattr(import_module(f".{_LAZY[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
