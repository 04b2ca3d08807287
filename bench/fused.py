"""Calls bitexact through its C interface: nothing but the shared library is needed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch

Tensor = torch.Tensor


def load(library: Path) -> Any:
    """The ctypes binding of this checkout, or an installed one, on the library named."""
    os.environ["BITEXACT_LIBRARY"] = str(library.resolve())
    os.environ["BITEXACT_GATE"] = "strict"  # the Python package must not fall back to eager unseen
    sys.path.append(str(Path(__file__).resolve().parent.parent / "bindings" / "python" / "src"))
    from libbitexact import capi

    return capi


class Fused:
    """Both operations on torch tensors. Computes with the fused kernels or raises: the policy is STRICT."""

    def __init__(self, capi: Any, device: torch.device) -> None:
        self.capi = capi
        self.cuda = device.type == "cuda"
        ordinal = torch.cuda.current_device() if self.cuda else capi.DEVICE_HOST
        self.context = capi.Context(ordinal, policy=capi.POLICY_STRICT)
        self.dtypes = {
            torch.float32: capi.DTYPE_FLOAT32,
            torch.float16: capi.DTYPE_FLOAT16,
            torch.bfloat16: capi.DTYPE_BFLOAT16,
        }

    def stream(self) -> int:
        return torch.cuda.current_stream().cuda_stream if self.cuda else 0

    def silu_mul(self, gate: Tensor, up: Tensor) -> Tensor:
        """F.silu(gate) * up of (..., columns), whose rows have one stride."""
        out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
        cols = gate.shape[-1]
        p = self.capi.SiluMulParams(
            dtype=self.dtypes[gate.dtype],
            batches=1,
            rows=gate.numel() // cols,
            cols=cols,
            gate=gate.data_ptr(),
            gate_row_stride=gate.stride(-2),
            up=up.data_ptr(),
            up_row_stride=up.stride(-2),
            out=out.data_ptr(),
            out_row_stride=cols,
        )
        self.context.fused_silu_mul(p, self.stream())
        return out

    def rope(
        self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False, batches: int = 1
    ) -> tuple[Tensor, Tensor]:
        """Rotates q and k of (batches * tokens, heads, dim) with tables of (tokens, dim or dim / 2)."""
        q_out, k_out = torch.empty_like(q), torch.empty_like(k)
        pairing = self.capi.PAIRING_INTERLEAVED if interleaved else self.capi.PAIRING_HALF
        tokens, dim = q.shape[0] // batches, q.shape[2]
        p = self.capi.RopeParams(
            dtype=self.dtypes[q.dtype],
            table_dtype=self.dtypes[cos.dtype],
            pairing_in=pairing,
            pairing_out=pairing,
            batches=batches,
            tokens=tokens,
            q_heads=q.shape[1],
            k_heads=k.shape[1],
            head_dim=dim,
            rotary_dim=dim,
            table_width=cos.shape[-1],
            table_rows=tokens,
        )
        for name, tensor in (("q_in", q), ("q_out", q_out), ("k_in", k), ("k_out", k_out)):
            setattr(p, name, tensor.data_ptr())
            setattr(p, name + "_batch_stride", tensor.stride(0) * tokens)
            setattr(p, name + "_token_stride", tensor.stride(0))
            setattr(p, name + "_head_stride", tensor.stride(1))
        for name, tensor in (("cos", cos), ("sin", sin)):
            setattr(p, name, tensor.data_ptr())
            setattr(p, name + "_token_stride", tensor.stride(0))
            setattr(p, name + "_element_stride", tensor.stride(1))
        self.context.fused_rope(p, self.stream())
        return q_out, k_out
