"""NumPy, JAX and other arrays: same bits, their own frameworks' results."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import libbitexact
from libbitexact import arrays, chains
from libbitexact.numerics import Rope

numpy = pytest.importorskip("numpy", reason="NumPy is not installed")


def of(tensor: torch.Tensor) -> Any:
    """The NumPy array of the same bits; bfloat16 by ml_dtypes."""
    if tensor.dtype == torch.bfloat16:
        ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
        return tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def same(array: Any, tensor: torch.Tensor) -> bool:
    return numpy.asarray(array).tobytes() == of(tensor.contiguous()).tobytes()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_numpy_silu_mul(dtype: torch.dtype) -> None:
    packed = torch.randn(5, 128).to(dtype)
    expected = torch.nn.functional.silu(packed[:, :64]) * packed[:, 64:]
    array = of(packed)
    gate, up = array[:, :64], array[:, 64:]
    assert same(libbitexact.fused_silu_mul(gate, up), expected)
    out = numpy.empty_like(gate)
    assert libbitexact.fused_silu_mul(gate, up, out=out) is out and same(out, expected)
    libbitexact.fused_silu_mul(gate, up, out=gate)
    assert same(gate, expected)
    assert arrays.context(-1).info().device == -1


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_numpy_rope(dtype: torch.dtype) -> None:
    q, k = torch.randn(2, 7, 4, 32).to(dtype), torch.randn(2, 7, 2, 32).to(dtype)
    cos, sin = torch.randn(7, 32).to(dtype), torch.randn(7, 32).to(dtype)
    how = Rope(rotary_dim=32)
    q_out, k_out = libbitexact.fused_rope(of(q), of(k), of(cos), of(sin))
    assert same(q_out, chains.rope(q, cos, sin, None, how)) and same(
        k_out, chains.rope(k, cos, sin, None, how)
    )
    permuted = numpy.ascontiguousarray(of(q).swapaxes(1, 2)).swapaxes(1, 2)
    assert same(arrays.fused_rope(permuted, None, of(cos), of(sin)), chains.rope(q, cos, sin, None, how))


def test_jax() -> None:
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    for dtype in (torch.float16, torch.bfloat16):
        gate, up = torch.randn(5, 64).to(dtype), torch.randn(5, 64).to(dtype)
        result = libbitexact.fused_silu_mul(jax.numpy.asarray(of(gate)), jax.numpy.asarray(of(up)))
        assert isinstance(result, jax.Array) and result.dtype == of(gate).dtype
        assert same(result, torch.nn.functional.silu(gate) * up)
    q, cos, sin = torch.randn(7, 4, 32), torch.randn(7, 32), torch.randn(7, 32)
    rotated = libbitexact.fused_rope(
        *(jax.numpy.asarray(of(t)) if t is not None else None for t in (q, None, cos, sin))
    )
    assert same(rotated, chains.rope(q, cos, sin, None, Rope()))


class OtherArray:
    """An array of a framework that nobody knows, with DLPack only."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.shape = array.shape

    def __dlpack__(self, **named: Any) -> Any:
        return self.array.__dlpack__(**named)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_any_dlpack_array() -> None:
    gate, up = (torch.randn(4, 64).half() for _ in range(2))
    out = numpy.zeros((4, 64), dtype=numpy.float16)
    libbitexact.fused_silu_mul(OtherArray(of(gate)), OtherArray(of(up)), out=OtherArray(out))
    assert same(out, torch.nn.functional.silu(gate) * up)
    with pytest.raises(TypeError, match="pass out"):
        libbitexact.fused_silu_mul(OtherArray(of(gate)), OtherArray(of(up)))


def test_refusals() -> None:
    with pytest.raises(TypeError, match="__dlpack__"):
        arrays.fused_silu_mul([1.0], [1.0])
    integers = numpy.ones((2, 2), dtype=numpy.int8)
    with pytest.raises(TypeError, match="int8"):
        arrays.fused_silu_mul(integers, integers)
    half = numpy.ones((2, 4), dtype=numpy.float16)
    with pytest.raises(ValueError, match="shapes"):
        arrays.fused_silu_mul(half, half[:1])
    single = half.astype(numpy.float32)
    with pytest.raises(libbitexact.Error, match="UNSUPPORTED"):
        arrays.fused_silu_mul(single, single)


@pytest.mark.gpu
def test_cupy() -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    gate, up = torch.randn(5, 64).half(), torch.randn(5, 64).half()
    result = libbitexact.fused_silu_mul(cupy.asarray(gate.numpy()), cupy.asarray(up.numpy()))
    assert same(cupy.asnumpy(result), torch.nn.functional.silu(gate.cuda()).mul(up.cuda()).cpu())


@pytest.mark.gpu
def test_cuda_arrays_by_dlpack() -> None:
    gate, up = (torch.randn(4, 64, device="cuda").half() for _ in range(2))
    out = torch.zeros_like(gate)
    torch.cuda.synchronize()
    arrays.fused_silu_mul(OtherArray(gate), OtherArray(up), out=OtherArray(out))
    torch.cuda.synchronize()
    assert same(out.cpu(), (torch.nn.functional.silu(gate) * up).cpu())
