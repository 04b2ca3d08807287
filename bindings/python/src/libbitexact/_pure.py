"""What _native does, in Python over ctypes: for wheels without the fast path, and to hold it against.

Same names, arguments and results; slower by some microseconds a call.
"""

from __future__ import annotations

import threading
from ctypes import byref, c_int32
from typing import Any, Optional, Sequence, Union

import torch

from . import _build, capi
from ._codes import Code
from .numerics import PAIRINGS, Rope, RopeNumerics, SiluNumerics

_DTYPES = {
    torch.float32: capi.DTYPE_FLOAT32,
    torch.float16: capi.DTYPE_FLOAT16,
    torch.bfloat16: capi.DTYPE_BFLOAT16,
    torch.float64: capi.DTYPE_FLOAT64,
    torch.int32: capi.DTYPE_INT32,
    torch.int64: capi.DTYPE_INT64,
    torch.complex64: capi.DTYPE_FLOAT32,
    torch.complex128: capi.DTYPE_FLOAT64,
}
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_Five = tuple[Any, Any, Any, Any, Any]
_REASONS = {"device": Code.DEVICE, "dtype": Code.DTYPE, "layout": Code.LAYOUT, "shape": Code.SHAPE}


class _Stop(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def _view(tensor: Any) -> Any:
    """A tensor of exactly torch.Tensor or Parameter whose bytes are what they look like."""
    if type(tensor) not in _PLAIN:
        raise _Stop(Code.NOT_TORCH)
    if tensor.requires_grad and torch.is_grad_enabled():
        raise _Stop(Code.WANTS_GRAD)
    if tensor.layout != torch.strided or tensor.is_nested:
        raise _Stop(Code.LAYOUT)
    dtype = _DTYPES.get(tensor.dtype)
    if dtype is None:
        raise _Stop(Code.DTYPE)
    if tensor.device.type not in ("cpu", "cuda"):
        raise _Stop(Code.DEVICE)
    if tensor.is_neg() or tensor.is_conj():
        raise _Stop(Code.LAZY_BITS)
    device = capi.DEVICE_HOST if tensor.device.type == "cpu" else tensor.device.index
    parts = 2 if tensor.is_complex() else 1
    strides = tuple(stride * parts for stride in tensor.stride())
    return _build.View(tensor.data_ptr(), dtype, tuple(tensor.shape), strides, device, parts == 2)


def _optional(tensor: Any) -> Any:
    return None if tensor is None else _view(tensor)


def _mode_is_active() -> bool:
    return bool(
        torch._C._len_torch_dispatch_stack()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._get_tracing_state() is not None
        or torch.autograd.forward_ad._current_level >= 0
    )


def _stream(device: int) -> int:
    if device == capi.DEVICE_HOST:
        return 0
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return raw(device) if raw else torch.cuda.current_stream(device).cuda_stream


SiluSpec = SiluNumerics


def RopeSpec(
    pairing_in: int,
    pairing_out: int,
    combine: int,
    compute: int,
    flags: int,
    rotary_dim: int,
    heads_first: bool,
    first_half: bool,
) -> tuple[Rope, RopeNumerics]:
    """How a rope call reads its tensors, and its arithmetic."""
    names = {value: name for name, value in PAIRINGS.items()}
    how = Rope(
        pairing=names[pairing_in],
        pairing_out=names[pairing_out],
        rotary_dim=rotary_dim,
        layout="bhsd" if heads_first else "bshd",
        inverse=bool(flags & capi.ROPE_INVERSE),
        first_half=first_half,
    )
    return how, RopeNumerics(combine, compute, flags & ~capi.ROPE_INVERSE)


def _order(view: _build.View) -> tuple[int, ...]:
    """The axes by stride, innermost first; of equal ones the axis of size 1 lies inside."""
    return tuple(
        sorted(reversed(range(len(view.shape))), key=lambda d: (view.strides[d], view.shape[d] != 1))
    )


def _dense_strides(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    strides, run = [0] * len(shape), 1
    for d in order:
        strides[d] = run
        run *= max(shape[d], 1)
    return tuple(strides)


def _is_dense(view: _build.View, order: tuple[int, ...]) -> bool:
    return _dense_strides(view.shape, order) == view.strides


def _look(view: Optional[_build.View]) -> Any:
    if view is None:
        return None
    order = _order(view)
    ties = tuple(view.strides[a] == view.strides[b] for a, b in zip(order, order[1:]))
    ones = tuple(size == 1 for size in view.shape)
    broadcast = tuple(stride == 0 for stride in view.strides)
    return order, ties, ones, broadcast, _is_dense(view, order), 0 in view.shape


def views_key(views: Sequence[Any]) -> list[Any]:
    return [(v.shape, v.strides) if v is not None else None for v in views]


def _rope_key(how: Rope, views: Sequence[Any]) -> Any:
    q, cos = views[0], views[2]
    rotary_dim = _build.rotary_dim_of(how, cos)
    whole, full = rotary_dim == q.shape[-1], rotary_dim == cos.shape[-1]
    return (
        "rope",
        how.pairing,
        how.written,
        whole,
        full,
        cos.is_complex,
        how.first_half,
        how.layout,
        cos.dtype,
        q.dtype,
    )


class Site:
    """Contexts by device, and how results lie by the look of arguments."""

    def __init__(self) -> None:
        self._contexts: dict[int, int] = {}
        self._layouts: dict[Any, Any] = {}
        self._lock = threading.Lock()

    def set_context(self, device: int, context: int) -> None:
        self._contexts[device] = context

    def _context(self, device: int) -> int:
        context = self._contexts.get(device)
        if not context:
            raise _Stop(Code.NO_CONTEXT)
        return context

    def _layout(self, key: Any, views: Sequence[Any]) -> Any:
        look = (key, *map(_look, views))
        with self._lock:
            found = self._layouts.get(look)
            if found == "exact":
                found = self._layouts.get((key, *views_key(views)))
        if found is None:
            raise _Stop(Code.NO_LAYOUT)
        return found

    def _learn(self, key: Any, views: Sequence[Any], *results: Any) -> int:
        """Remembers how eager's result lies: see src/native/layout.h."""
        layouts = [None if r is None else (_order(r), r.strides) for r in results]
        rule = all(r is None or _is_dense(r, _order(r)) for r in results)
        with self._lock:
            if len(self._layouts) >= 4096:
                self._layouts.clear()
            look = (key, *map(_look, views))
            self._layouts[look] = [rule, *layouts] if rule else "exact"
            if not rule:
                self._layouts[(key, *views_key(views))] = [rule, *layouts]
        return 0

    @staticmethod
    def _allocate(tensor: Any, view: Any, rule: bool, layout: Any) -> Any:
        order, strides = layout
        return tensor.new_empty_strided(view.shape, _dense_strides(view.shape, order) if rule else strides)

    def _inputs(self, *tensors: Any) -> Any:
        if any(tensor is not None and type(tensor) not in _PLAIN for tensor in tensors):
            raise _Stop(Code.NOT_TORCH)
        if _mode_is_active():
            raise _Stop(Code.HAS_MODE)
        return tuple(_optional(tensor) for tensor in tensors)

    # ------------------------------------------------------------------------- silu_mul --

    def silu_mul(self, spec: SiluNumerics, gate: Any, up: Any, out: Any) -> Any:
        try:
            g, u = self._inputs(gate, up)
            result = out
            if out is None:
                _build._same_kind(g, u)
                rule, layout = self._layout(("silu_mul", spec), [g, u])
                result = self._allocate(gate, g, rule, layout)
            p, _ = _build.silu_mul_params(g, u, _view(result), spec)
            status = capi.api.fused_silu_mul(self._context(g.device), byref(p), _stream(g.device))
        except (_Stop, _build.Refused) as stop:
            return _code(stop)
        if status == capi.STATUS_OK and out is not None:
            _bump_version(out)
        return result if status == capi.STATUS_OK else status

    def silu_mul_verify(
        self, spec: SiluNumerics, gate: Any, up: Any, out: Any, reference: Any
    ) -> tuple[int, int]:
        verdict = c_int32()
        try:
            g, u, o, r = self._inputs(gate, up, out, reference)
            p, expected = _build.silu_mul_params(g, u, o, spec, r)
            status = capi.api.fused_silu_mul_verify(
                self._context(g.device), byref(p), byref(expected), _stream(g.device), byref(verdict)
            )
        except (_Stop, _build.Refused) as stop:
            return _code(stop), 0
        return status, verdict.value

    def learn_silu_mul(self, spec: SiluNumerics, gate: Any, up: Any, result: Any) -> int:
        try:
            g, u, r = self._inputs(gate, up, result)
            _build._same_kind(g, r)
        except (_Stop, _build.Refused) as stop:
            return _code(stop)
        return self._learn(("silu_mul", spec), [g, u], r)

    # ----------------------------------------------------------------------------- rope --

    def rope(
        self, spec: Any, q: Any, k: Any, cos: Any, sin: Any, positions: Any, q_out: Any, k_out: Any
    ) -> Any:
        how, numerics = spec
        try:
            views: _Five = self._inputs(q, k, cos, sin, positions)
            q_result, k_result = q_out, k_out
            if q_out is None or (k is not None and k_out is None):
                rule, q_layout, k_layout = self._layout(_rope_key(how, views), views)
                if q_out is None:
                    q_result = self._allocate(q, views[0], rule, q_layout)
                if k is not None and k_out is None:
                    k_result = self._allocate(k, views[1], rule, k_layout)
            p = _build.rope_params(
                how, numerics, *views, _view(q_result), _optional(k_result if k is not None else None)
            )
            device = views[0].device
            status = capi.api.fused_rope(self._context(device), byref(p), _stream(device))
        except (_Stop, _build.Refused) as stop:
            return _code(stop)
        if status != capi.STATUS_OK:
            return status
        for given in (q_out, k_out if k is not None else None):
            if given is not None:
                _bump_version(given)
        return q_result if k is None else (q_result, k_result)

    def rope_verify(
        self,
        spec: Any,
        q: Any,
        k: Any,
        cos: Any,
        sin: Any,
        positions: Any,
        q_out: Any,
        k_out: Any,
        q_expected: Any,
        k_expected: Any,
    ) -> tuple[int, int]:
        how, numerics = spec
        verdict = c_int32()
        if k is None:
            k_out = k_expected = None
        try:
            views: _Five = self._inputs(q, k, cos, sin, positions)
            p = _build.rope_params(how, numerics, *views, _view(q_out), _optional(k_out))
            e = _build.rope_params(how, numerics, *views, _view(q_expected), _optional(k_expected))
            device = views[0].device
            status = capi.api.fused_rope_verify(
                self._context(device),
                byref(p),
                byref(_build.rope_reference(e)),
                _stream(device),
                byref(verdict),
            )
        except (_Stop, _build.Refused) as stop:
            return _code(stop), 0
        return status, verdict.value

    def learn_rope(
        self, spec: Any, q: Any, k: Any, cos: Any, sin: Any, positions: Any, q_result: Any, k_result: Any
    ) -> int:
        try:
            views = self._inputs(q, k, cos, sin, positions)
            results: list[Any] = [_view(q_result), _optional(k_result if k is not None else None)]
            for own, result in zip(views, results):
                if own is not None:
                    _build._same_kind(own, result)
        except (_Stop, _build.Refused) as stop:
            return _code(stop)
        return self._learn(_rope_key(spec[0], views), views, *results)


def _code(stop: Union[_Stop, _build.Refused]) -> int:
    return stop.code if isinstance(stop, _Stop) else _REASONS[stop.reason]


def _bump_version(tensor: torch.Tensor) -> None:
    if not tensor.is_inference():
        torch.autograd.graph.increment_version(tensor)
