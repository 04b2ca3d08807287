"""Why the binding itself took the slow way. Negative, so that they never meet a status of the library."""

from __future__ import annotations


class Code:
    """The numbers of src/native/torch.h."""

    NOT_TORCH = -1
    WANTS_GRAD = -2
    HAS_MODE = -3
    LAZY_BITS = -4
    DEVICE = -5
    DTYPE = -6
    LAYOUT = -7
    SHAPE = -8
    NO_CONTEXT = -9
    NO_LAYOUT = -10


TEXTS = {
    Code.NOT_TORCH: "a tensor subclass or another type",
    Code.WANTS_GRAD: "gradients are wanted",
    Code.HAS_MODE: "a dispatch mode, function transform, tracer or forward differentiation is active",
    Code.LAZY_BITS: "a lazily negated or conjugated tensor",
    Code.DEVICE: "tensors on different devices, or neither on a CPU nor on CUDA",
    Code.DTYPE: "a dtype, or a mix of dtypes, that no kernel takes",
    Code.LAYOUT: "strides that the kernels cannot express (the last axis must be contiguous)",
    Code.SHAPE: "shapes that the kernels cannot express",
    Code.NO_CONTEXT: "no context on this device (none is made while a graph is captured: call once before)",
    Code.NO_LAYOUT: "the strides of eager's result are not known",
}
