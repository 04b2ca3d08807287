"""Chooses the fast path, or its twin in Python where the wheel has none (or BITEXACT_PYTHON_NATIVE=0)."""

from __future__ import annotations

import os
from typing import Any

import torch

from . import capi

ENVIRONMENT_VARIABLE = "BITEXACT_PYTHON_NATIVE"

# torch.dtype -> DLPack (code, bits), for a torch without the exchange interface.
_DTYPES = {
    torch.float16: (2, 16),
    torch.float32: (2, 32),
    torch.float64: (2, 64),
    torch.bfloat16: (4, 16),
    torch.int32: (0, 32),
    torch.int64: (0, 64),
    torch.complex64: (5, 64),
    torch.complex128: (5, 128),
}


def _raw_stream(device: int) -> int:
    return torch.cuda.current_stream(device).cuda_stream


def _increment_version() -> Any:
    """What torch.autograd.graph.increment_version() calls, where this torch's takes a tuple as that one does."""
    direct = getattr(torch._C, "_increment_version", None)
    try:
        direct((torch.empty(0),))
    except Exception:
        return torch.autograd.graph.increment_version
    return direct


def _functions() -> dict[str, Any]:
    """Private names of torch, each guarded: a torch without one loses a check that it has no need of."""
    core = torch._C
    functorch = getattr(core, "_functorch", None)
    return {
        "is_grad_enabled": torch.is_grad_enabled,
        "dispatch_depth": getattr(core, "_len_torch_dispatch_stack", None),
        "functorch_level": getattr(functorch, "peek_interpreter_stack", None),
        "tracing_state": getattr(core, "_get_tracing_state", None),
        "raw_stream": getattr(core, "_cuda_getCurrentRawStream", _raw_stream),
        "forward_ad": torch.autograd.forward_ad,
        "increment_version": _increment_version(),
    }


def _choose() -> tuple[str, Any]:
    if os.environ.get(ENVIRONMENT_VARIABLE, "1") != "0":
        try:
            from . import _native
        except ImportError:
            pass
        else:
            capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
            if type(capsule).__name__ != "PyCapsule":
                capsule = None
            _native.set_api(capi.api_address)
            _native.register_torch(torch.Tensor, torch.nn.Parameter, capsule, _functions(), _DTYPES)
            return "native", _native
    from . import _pure

    return "ctypes", _pure


name, module = _choose()
