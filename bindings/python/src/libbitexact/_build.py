"""Fills the C interface's structs from views of memory, for callers that do not have the fast path.

Does what _native does, on ctypes structs; tests hold the two together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Sequence

from . import capi
from .numerics import PAIRINGS, Rope, RopeNumerics, SiluNumerics


class Refused(ValueError):
    """Tensors that the C interface cannot express; `reason` is a short word."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True)
class View:
    """Memory of one tensor. Strides count elements; of a complex one the parts."""

    pointer: int
    dtype: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: int
    is_complex: bool = False

    @property
    def size(self) -> int:
        """Bytes of an element; of a part, if complex."""
        return {
            capi.DTYPE_FLOAT16: 2,
            capi.DTYPE_BFLOAT16: 2,
            capi.DTYPE_FLOAT64: 8,
            capi.DTYPE_INT64: 8,
        }.get(self.dtype, 4)


_FLOATING = (capi.DTYPE_FLOAT32, capi.DTYPE_FLOAT16, capi.DTYPE_BFLOAT16)


def _same_kind(a: View, b: View) -> None:
    if a.device != b.device:
        raise Refused("device", f"tensors on devices {a.device} and {b.device}")
    if a.dtype != b.dtype or a.is_complex or b.is_complex:
        raise Refused("dtype", f"dtypes {capi.DTYPE_NAMES[a.dtype]} and {capi.DTYPE_NAMES[b.dtype]}")
    if a.shape != b.shape:
        raise Refused("shape", f"shapes {a.shape} and {b.shape}")


def _floating(view: View) -> None:
    if view.dtype not in _FLOATING or view.is_complex:
        raise Refused("dtype", f"dtype {capi.DTYPE_NAMES[view.dtype]}; accepted: float32, float16, bfloat16")


# --------------------------------------------------------------------------------- silu_mul --


_Axis = tuple[int, tuple[int, ...]]  # size, one stride for each tensor


def _fold(shape: Sequence[int], out: int, *strides: Sequence[int]) -> list[_Axis]:
    """The axes as (batches, rows, cols), the same for all tensors; `out` is the one whose strides give the
    order."""
    axes = [(size, s) for size, s in zip(shape, zip(*strides)) if size != 1]
    axes.sort(key=lambda axis: -axis[1][out])
    kept: list[_Axis] = []
    for size, inner in axes:
        if kept and all(o == i * size for o, i in zip(kept[-1][1], inner)):
            kept[-1] = (kept[-1][0] * size, inner)
        else:
            kept.append((size, inner))
    dense = (1,) * len(strides)
    if not kept or kept[-1][1] != dense:
        if len(kept) > 2:
            raise Refused("layout", "columns are not contiguous")
        kept.append((1, dense))
    if len(kept) > 3:
        raise Refused("layout", "more than three axes that do not fold")
    return [(1, (0,) * len(strides))] * (3 - len(kept)) + kept


def silu_mul_params(
    gate: View, up: View, out: View, numerics: SiluNumerics, expected: Optional[View] = None
) -> tuple[capi.SiluMulParams, capi.SiluMulReference]:
    """The call, and for a check the result that is expected. Raises Refused."""
    expected = expected or out
    _floating(gate)
    for other in (up, out, expected):
        _same_kind(gate, other)
    p = capi.SiluMulParams(dtype=gate.dtype, silu=numerics.silu, compute_dtype=numerics.compute)
    p.clamp, p.limit_bits = numerics.clamp, numerics.limit_bits
    r = capi.SiluMulReference(out=expected.pointer)
    p.gate, p.up, p.out = gate.pointer, up.pointer, out.pointer
    if 0 in gate.shape:
        return p, r
    batch, row, col = _fold(gate.shape, 2, gate.strides, up.strides, out.strides, expected.strides)
    p.batches, (p.gate_batch_stride, p.up_batch_stride, p.out_batch_stride, r.out_batch_stride) = batch
    p.rows, (p.gate_row_stride, p.up_row_stride, p.out_row_stride, r.out_row_stride) = row
    p.cols = col[0]
    return p, r


# ------------------------------------------------------------------------------------- rope --

_Axes = tuple[Optional[int], Optional[int], Optional[int]]  # batch, token, head


def _axes_of(ndim: int, heads_first: bool) -> _Axes:
    if ndim == 2:
        return None, 0, None
    if ndim not in (3, 4):
        raise Refused("shape", f"{ndim} axes; accepted: 2 to 4")
    first = ndim - 3
    token, head = (first + 1, first) if heads_first else (first, first + 1)
    return (0 if ndim == 4 else None), token, head


def _table_axes(table: View, q: View, axes: _Axes, gathered: bool) -> _Axes:
    if len(table.shape) == len(q.shape) and not gathered:
        return axes
    if len(table.shape) == 2:
        return None, 0, None
    if len(table.shape) == 3 and len(q.shape) == 4 and not gathered:
        return 0, 1, None
    raise Refused("shape", f"a table of shape {table.shape} for a tensor of shape {q.shape}")


def _sizes(view: View, axes: _Axes) -> list[int]:
    return [1 if axis is None else view.shape[axis] for axis in axes]


def _strides(view: View, axes: _Axes) -> list[int]:
    return [0 if axis is None or view.shape[axis] == 1 else view.strides[axis] for axis in axes]


def _put(p: capi.RopeParams, name: str, view: View, axes: _Axes) -> None:
    setattr(p, name, view.pointer)
    for axis, stride in zip(("batch", "token", "head"), _strides(view, axes)):
        setattr(p, f"{name}_{axis}_stride", stride)


def _tables(
    p: capi.RopeParams, how: Rope, q: View, axes: _Axes, cos: View, sin: Optional[View], gathered: bool
) -> None:
    if cos.is_complex:
        if sin is not None:
            raise Refused("dtype", "a complex table comes alone")
        sin = View(cos.pointer + cos.size, cos.dtype, cos.shape, cos.strides, cos.device)
    elif sin is None or sin.is_complex:
        raise Refused("dtype", "sin is missing or complex")
    if cos.device != q.device or sin.device != q.device:
        raise Refused("device", "the tables are on another device")
    if cos.dtype != sin.dtype or cos.dtype >= capi.DTYPE_INT32:
        raise Refused("dtype", "cos and sin must have one floating dtype")
    given = cos.shape[-1]
    width = given // 2 if how.first_half else given
    of_cos, of_sin = (_table_axes(t, q, axes, gathered) for t in (cos, sin))
    rows = _sizes(cos, of_cos)[1]
    if sin.shape[-1] != given or _sizes(sin, of_sin)[1] != rows:
        raise Refused("shape", f"tables of shapes {cos.shape} and {sin.shape}")
    for table, of in ((cos, of_cos), (sin, of_sin)):
        batch, token, heads = _sizes(table, of)
        fits = batch in (1, p.batches) and (gathered or token in (1, p.tokens)) and heads in (1, p.q_heads)
        if not fits or (p.k_in is not None and heads not in (1, p.k_heads)):
            raise Refused("shape", f"a table of shape {table.shape} does not broadcast to {q.shape}")
    p.table_dtype, p.table_width = cos.dtype, width
    p.table_rows = max(p.tokens, 1) if not gathered and rows == 1 else rows
    for name, table, of in (("cos", cos, of_cos), ("sin", sin, of_sin)):
        _put(p, name, table, of)
        setattr(p, f"{name}_element_stride", table.strides[-1] if cos.is_complex or width > 1 else 1)


def rotary_dim_of(how: Rope, cos: View) -> int:
    """How many elements of a head rotate."""
    if how.rotary_dim >= 0:
        return how.rotary_dim
    return cos.shape[-1] * (2 if cos.is_complex or how.rotary_dim == -2 else 1)


def rope_params(
    how: Rope,
    numerics: RopeNumerics,
    q: View,
    k: Optional[View],
    cos: View,
    sin: Optional[View],
    positions: Optional[View],
    q_out: View,
    k_out: Optional[View],
) -> capi.RopeParams:
    """Raises Refused."""
    _floating(q)
    axes = _axes_of(len(q.shape), how.heads_first)
    _same_kind(q, q_out)
    for view in (q, q_out, k, k_out):
        if view is not None and view.shape[-1] > 1 and view.strides[-1] != 1:
            raise Refused("layout", "head_dim is not contiguous")
    p = capi.RopeParams(dtype=q.dtype, compute_dtype=numerics.compute, combine=numerics.combine)
    p.flags = numerics.flags | (capi.ROPE_INVERSE if how.inverse else 0)
    p.pairing_in, p.pairing_out = PAIRINGS[how.pairing], PAIRINGS[how.written]
    p.batches, p.tokens, p.q_heads = _sizes(q, axes)
    p.head_dim = q.shape[-1]
    _put(p, "q_in", q, axes)
    _put(p, "q_out", q_out, axes)
    if k is not None and k_out is not None:
        _same_kind(k, k_out)
        if k.device != q.device or k.dtype != q.dtype:
            raise Refused("dtype", "q and k differ in device or dtype")
        if len(k.shape) != len(q.shape):
            raise Refused("shape", f"q has shape {q.shape}, k {k.shape}")
        batches, tokens, p.k_heads = _sizes(k, axes)
        if (batches, tokens, k.shape[-1]) != (p.batches, p.tokens, p.head_dim):
            raise Refused("shape", f"q has shape {q.shape}, k {k.shape}")
        _put(p, "k_in", k, axes)
        _put(p, "k_out", k_out, axes)
    _tables(p, how, q, axes, cos, sin, positions is not None)
    p.rotary_dim = rotary_dim_of(how, cos)
    if positions is not None:
        shape = positions.shape
        if positions.dtype not in (capi.DTYPE_INT32, capi.DTYPE_INT64) or positions.device != q.device:
            raise Refused("dtype", "positions must be int32 or int64 on the tensors' device")
        if (
            len(shape) not in (1, 2)
            or shape[-1] != p.tokens
            or (len(shape) == 2 and shape[0] not in (1, p.batches))
        ):
            raise Refused("shape", f"positions of shape {shape}")
        p.positions, p.positions_dtype = positions.pointer, positions.dtype
        own = (0 if len(shape) == 2 else None, len(shape) - 1, None)
        p.positions_batch_stride, p.positions_token_stride, _ = _strides(positions, own)
    return p


def rope_reference(p: capi.RopeParams) -> capi.RopeReference:
    """The expected result, where p are the params with it as outputs."""
    r = capi.RopeReference(q=p.q_out, k=p.k_out)
    for axis in ("batch", "token", "head"):
        setattr(r, f"q_{axis}_stride", getattr(p, f"q_out_{axis}_stride"))
        setattr(r, f"k_{axis}_stride", getattr(p, f"k_out_{axis}_stride"))
    return r
