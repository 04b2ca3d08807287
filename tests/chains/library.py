"""The library's calls on torch tensors, of either device."""

from __future__ import annotations

from functools import lru_cache

import torch
from libbitexact import capi

Tensor = torch.Tensor
DTYPES = {
    torch.float32: capi.DTYPE_FLOAT32,
    torch.float16: capi.DTYPE_FLOAT16,
    torch.bfloat16: capi.DTYPE_BFLOAT16,
    torch.float64: capi.DTYPE_FLOAT64,
}


@lru_cache
def context(device: str) -> capi.Context:
    """STRICT: a kernel that is declined is an error, not a fallback to the reference."""
    return capi.Context(0 if device == "cuda" else capi.DEVICE_HOST, capi.POLICY_STRICT)


def stream(device: str) -> int:
    return torch.cuda.current_stream().cuda_stream if device == "cuda" else 0


def rope(x: Tensor, cos: Tensor, sin: Tensor, fields: dict[str, int]) -> Tensor:
    """x (batch, token, head, dim), its last dimension contiguous; tables (1, token, 1 or head, width).

    The first dimensions that the table covers are rotated, the rest is copied.
    """
    out = torch.empty_like(x)
    batches, tokens, heads, dim = x.shape
    width = cos.shape[-1]
    full = fields.pop("full_table", 0)
    params = capi.RopeParams(
        dtype=DTYPES[x.dtype],
        batches=batches,
        tokens=tokens,
        q_heads=heads,
        head_dim=dim,
        rotary_dim=width if full else 2 * width,
        table_width=width,
        table_rows=tokens,
        **fields,
    )
    assert DTYPES[cos.dtype] == (params.table_dtype or params.dtype), "the tables are of another dtype"
    for name, tensor in (("q_in", x), ("q_out", out)):
        setattr(params, name, tensor.data_ptr())
        for axis, stride in zip(("batch", "token", "head"), tensor.stride()):
            setattr(params, f"{name}_{axis}_stride", stride)
    for name, table in (("cos", cos), ("sin", sin)):
        setattr(params, name, table.data_ptr())
        strides = [0 if size == 1 else stride for size, stride in zip(table.shape, table.stride())]
        for axis, stride in zip(("batch", "token", "head"), strides):
            setattr(params, f"{name}_{axis}_stride", stride)
        setattr(params, f"{name}_element_stride", table.stride(-1))
    context(x.device.type).fused_rope(params, stream(x.device.type))
    return out


def silu_mul(gate: Tensor, up: Tensor, fields: dict[str, int]) -> Tensor:
    out = torch.empty_like(gate)
    params = capi.SiluMulParams(
        dtype=DTYPES[gate.dtype],
        batches=1,
        rows=gate.shape[0],
        cols=gate.shape[1],
        gate=gate.data_ptr(),
        gate_row_stride=gate.stride(0),
        up=up.data_ptr(),
        up_row_stride=up.stride(0),
        out=out.data_ptr(),
        out_row_stride=out.stride(0),
        **fields,
    )
    context(gate.device.type).fused_silu_mul(params, stream(gate.device.type))
    return out
