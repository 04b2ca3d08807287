"""NumPy, JAX, CuPy and other DLPack arrays. The truth here is the library's own slow reference, not a
framework.

Host arrays are read where they lie. CUDA arrays run on the stream of their framework (CuPy), or by way of
torch where the framework gives no stream (JAX). Results are arrays of the framework of the first argument.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from dataclasses import dataclass
from typing import Any, NoReturn, Optional

from . import _build, capi
from ._build import View
from .numerics import Rope, silu_mul_candidates

_NAMES = {
    "float32": capi.DTYPE_FLOAT32,
    "float16": capi.DTYPE_FLOAT16,
    "bfloat16": capi.DTYPE_BFLOAT16,
    "float64": capi.DTYPE_FLOAT64,
    "int32": capi.DTYPE_INT32,
    "int64": capi.DTYPE_INT64,
    "complex64": capi.DTYPE_FLOAT32,
    "complex128": capi.DTYPE_FLOAT64,
}

# ------------------------------------------------------------------------------------- DLPack --


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED = 1, 2, 3, 13
_KINDS = {
    (2, 16): "float16",
    (2, 32): "float32",
    (2, 64): "float64",
    (4, 16): "bfloat16",
    (0, 32): "int32",
    (0, 64): "int64",
    (5, 64): "complex64",
    (5, 128): "complex128",
}

_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_get_pointer.restype = ctypes.c_void_p


@dataclass
class _Array:
    """An array as its framework has it, its memory, and what keeps that memory alive."""

    framework: str
    array: Any
    view: View
    keeper: Any


def _refuse(text: str) -> NoReturn:
    raise TypeError(text)


def _dlpack_view(array: Any, stream: Optional[int]) -> tuple[View, Any]:
    device_type, _ = array.__dlpack_device__()
    on_cuda = int(device_type) in (_CUDA, _CUDA_MANAGED)
    capsule = array.__dlpack__(stream=stream) if on_cuda else array.__dlpack__()
    # Unversioned capsules only: __dlpack__ hands out a versioned one to those who ask for it.
    tensor = _Tensor.from_address(_get_pointer(capsule, b"dltensor"))
    kind = _KINDS.get((tensor.code, tensor.bits))
    if kind is None or tensor.lanes != 1:
        _refuse(f"DLPack type code {tensor.code} with {tensor.bits} bits; accepted: {', '.join(_NAMES)}")
    if tensor.device_type not in (_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED):
        _refuse(f"DLPack device type {tensor.device_type}; accepted: CPU, CUDA")
    shape = tuple(tensor.shape[: tensor.ndim])
    if tensor.strides:
        strides = tuple(tensor.strides[: tensor.ndim])
    else:
        strides = _contiguous(shape)
    device = tensor.device_id if on_cuda else capi.DEVICE_HOST
    pointer = (tensor.data or 0) + tensor.byte_offset
    return _view(pointer, kind, shape, strides, device), capsule


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, run = [], 1
    for size in reversed(shape):
        strides.append(run)
        run *= max(size, 1)
    return tuple(reversed(strides))


def _view(pointer: int, kind: str, shape: tuple[int, ...], strides: tuple[int, ...], device: int) -> View:
    parts = 2 if kind.startswith("complex") else 1
    return View(pointer, _NAMES[kind], shape, tuple(s * parts for s in strides), device, parts == 2)


def _read(array: Any) -> _Array:
    framework = type(array).__module__.partition(".")[0]
    if framework == "numpy" or hasattr(array, "__array_interface__"):
        kind = array.dtype.name
        if kind not in _NAMES:
            _refuse(f"dtype {kind}; accepted: {', '.join(_NAMES)}")
        if any(stride % array.itemsize for stride in array.strides):
            _refuse("strides that are no multiple of the item size")
        strides = tuple(stride // array.itemsize for stride in array.strides)
        pointer = array.__array_interface__["data"][0] if array.size else 0
        return _Array("numpy", array, _view(pointer, kind, array.shape, strides, capi.DEVICE_HOST), array)
    if not hasattr(array, "__dlpack__"):
        _refuse(f"{type(array).__name__} has no __dlpack__; accepted: NumPy, JAX, CuPy, torch, DLPack")
    if framework in ("jax", "jaxlib"):
        array.block_until_ready()
        return _Array("jax", array, *_dlpack_view(array, None))
    return _Array(framework, array, *_dlpack_view(array, _stream(framework)))


def _stream(framework: str) -> int:
    if framework == "cupy":
        return int(sys.modules["cupy"].cuda.get_current_stream().ptr) or 1
    return 1


# ------------------------------------------------------------------------------------ results --


def _new(like: _Array) -> tuple[Any, _Array]:
    """(what the caller gets, what the library writes); the second may need _finish."""
    if like.framework == "numpy":
        numpy = sys.modules["numpy"]
        array = numpy.empty_like(like.array, order="K", subok=False)
        return array, _read(array)
    if like.framework == "jax":
        import numpy

        array = numpy.empty(like.array.shape, dtype=like.array.dtype)
        return array, _read(array)
    if like.framework == "cupy":
        array = sys.modules["cupy"].empty_like(like.array)
        return array, _read(array)
    raise TypeError(
        f"{like.framework}: pass out, an array that can be written; new ones are made for NumPy, JAX, CuPy"
    )


def _finish(like: _Array, result: Any) -> Any:
    if like.framework == "jax":
        import jax

        return jax.device_put(result)
    return result


def _through_torch(first: _Array) -> bool:
    """JAX on CUDA tells nobody its stream; torch's DLPack import waits for it."""
    return first.framework == "jax" and first.view.device != capi.DEVICE_HOST


def _as_torch(array: Any) -> Any:
    if array is None:
        return None
    try:
        import torch
    except ImportError as error:
        raise TypeError("JAX arrays on CUDA go by way of torch, which is not installed") from error
    return torch.from_dlpack(array)


# ----------------------------------------------------------------------------------- contexts --

_contexts: dict[tuple[int, int], capi.Context] = {}
_lock = threading.Lock()


def context(device: int) -> capi.Context:
    """The context of this process for arrays on a device (capi.DEVICE_HOST for the host); its gate tells
    verdicts."""
    key = os.getpid(), device
    with _lock:
        if key not in _contexts:
            _contexts[key] = capi.Context(device)
        return _contexts[key]


# ---------------------------------------------------------------------------------- functions --


def fused_silu_mul(
    gate: Any,
    up: Any,
    *,
    out: Any = None,
    numerics: str = "eager",
    limit: Optional[float] = None,
    reference: Any = None,
) -> Any:
    """silu(gate) * up for arrays.

    Args:
        gate, up: one shape and dtype (bfloat16 by ml_dtypes, float16; float32 on CUDA), one device.
        out: an array to write; None: a new one.
        numerics, limit: as for torch; they name the chain of PyTorch on CUDA.
        reference: not for arrays.

    Returns:
        out, or an array of gate's framework.

    Raises:
        TypeError: an array that cannot be read, or a framework without arrays to write.
        ValueError: shapes, dtypes or strides that no kernel takes.
        Error: any status of the library.
    """
    if _is_torch(gate):
        from ._functions import fused_silu_mul as torch_silu_mul

        return torch_silu_mul(gate, up, out=out, numerics=numerics, limit=limit, reference=reference)
    if reference is not None:
        raise ValueError(
            "reference is for torch tensors; arrays are checked against the library's own reference"
        )
    (fields,) = silu_mul_candidates(numerics, limit)
    g, u = _read(gate), _read(up)
    if _through_torch(g):
        from ._functions import fused_silu_mul as torch_silu_mul

        return _back(torch_silu_mul(_as_torch(gate), _as_torch(up), numerics=numerics, limit=limit))
    result, o = (out, _read(out)) if out is not None else _new(g)
    params, _ = _build.silu_mul_params(g.view, u.view, o.view, fields)
    context(g.view.device).fused_silu_mul(params, _raw_stream(g))
    return result if out is not None else _finish(g, result)


def fused_rope(
    q: Any,
    k: Any = None,
    cos: Any = None,
    sin: Any = None,
    *,
    positions: Any = None,
    pairing: str = "half",
    pairing_out: Optional[str] = None,
    rotary_dim: Optional[int] = None,
    layout: str = "bshd",
    head_dim: Optional[int] = None,
    inverse: bool = False,
    numerics: str = "eager",
    q_out: Any = None,
    k_out: Any = None,
    reference: Any = None,
) -> Any:
    """Rotary embedding for arrays; arguments as for torch (libbitexact._functions.fused_rope), without
    head_dim.

    Returns:
        The rotated q, or the pair (q, k).

    Raises:
        As fused_silu_mul.
    """
    if _is_torch(q):
        from ._functions import fused_rope as torch_rope

        return torch_rope(
            q,
            k,
            cos,
            sin,
            positions=positions,
            pairing=pairing,
            pairing_out=pairing_out,
            rotary_dim=rotary_dim,
            layout=layout,
            head_dim=head_dim,
            inverse=inverse,
            numerics=numerics,
            q_out=q_out,
            k_out=k_out,
            reference=reference,
        )
    if reference is not None or head_dim is not None:
        raise ValueError("reference and head_dim are for torch tensors; reshape packed arrays")
    if cos is None:
        raise ValueError("cos is missing; accepted: cos and sin, or a complex table as cos")
    how = Rope(numerics, pairing, pairing_out, -1 if rotary_dim is None else rotary_dim, layout, inverse)
    if rotary_dim is None and cos.shape[-1] * (2 if sin is None else 1) != q.shape[-1]:
        raise ValueError(f"tables of width {cos.shape[-1]} for a head of {q.shape[-1]}: say rotary_dim")
    return rope(how, q, k, cos, sin, positions, q_out, k_out)


def rope(how: Rope, q: Any, k: Any, cos: Any, sin: Any, positions: Any, q_out: Any, k_out: Any) -> Any:
    """fused_rope with everything but the arrays in a Rope."""
    first = _read(q)
    if _through_torch(first):
        from ._functions import _rope_site

        tensors = [_as_torch(array) for array in (q, k, cos, sin, positions)]
        rotated = _rope_site(how)(*tensors)
        return _back(rotated) if k is None else tuple(map(_back, rotated))
    others: list[Any] = [None if array is None else _read(array) for array in (k, cos, sin, positions)]
    outputs: list[Any] = []
    for array, own, out in ((q, first, q_out), (k, others[0], k_out)):
        if array is None:
            outputs.append((None, None))
        else:
            outputs.append((out, _read(out)) if out is not None else _new(own))
    views: list[Any] = [None if array is None else array.view for array in (first, *others)]
    written: list[Any] = [None if array is None else array.view for _, array in outputs]
    params = _build.rope_params(how, how.candidates()[0], *views, *written)
    context(first.view.device).fused_rope(params, _raw_stream(first))
    results = [
        out if out is not None else _finish(first, result) if result is not None else None
        for out, (result, _) in zip((q_out, k_out), outputs)
    ]
    return results[0] if k is None else tuple(results)


def _raw_stream(first: _Array) -> int:
    return 0 if first.view.device == capi.DEVICE_HOST else _stream(first.framework)


def _back(tensor: Any) -> Any:
    import jax

    return jax.dlpack.from_dlpack(tensor)


def _is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)
