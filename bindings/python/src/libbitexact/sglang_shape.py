"""The two functions in the call shape of a diffusion engine: for Ideogram-4 and models built like it.

Mount points in such a model: the MLP computes `fused_silu_mul_bitexact(w1(x), w3(x))`, the attention rotates
with `fused_rope_rotate_half_bitexact(q, k, cos, sin)` right after its query and key norms, with tables made
once and cast to the hidden dtype.
"""

from __future__ import annotations

from typing import Any

from ._functions import fused_rope, fused_silu_mul


def fused_silu_mul_bitexact(gate: Any, up: Any) -> Any:
    """F.silu(gate) * up.

    Args:
        gate, up: (..., width), one dtype of bfloat16, float16, float32.

    Returns:
        A new tensor of that shape and dtype. Errors as libbitexact.fused_silu_mul.
    """
    return fused_silu_mul(gate, up)


def fused_rope_rotate_half_bitexact(q: Any, k: Any, cos: Any, sin: Any) -> tuple[Any, Any]:
    """q * cos + rotate_half(q) * sin, and the same for k, each operator rounded to the tensors' dtype.

    Args:
        q, k: (batch, token, head, dim); head counts may differ.
        cos, sin: (batch, token, dim) in q's dtype; broadcast over heads.

    Returns:
        New tensors for q and k. Errors as libbitexact.fused_rope.
    """
    return fused_rope(q, k, cos, sin)
