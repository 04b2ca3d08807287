"""Mounts the fused operations in models of transformers and diffusers (or registered ones), and takes them
out.

    handle = libbitexact.patch(model)     # or: with libbitexact.patch(model): ...
    print(handle)                         # what was mounted, what was left, and why
    handle.undo()

Only the given instances change: their methods are bound again with `silu(a) * b`, `sigmoid(a) * b` and calls of
rotary functions replaced; classes, modules and other models stay as they are. The replaced code is the truth that
the gate compares with, so that a chain which no kernel computes stays eager.
"""

from __future__ import annotations

from ._adapters import register
from ._mount import Mount, Patch, patch, unpatch

__all__ = ["Mount", "Patch", "patch", "register", "unpatch"]
