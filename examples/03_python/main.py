"""Both operations from Python: raw memory, NumPy, PyTorch, and a patched model. Runs without a GPU, too."""

from __future__ import annotations

from array import array

import libbitexact
from libbitexact import capi


def raw_memory() -> None:
    """The C interface: any memory, no framework."""
    gate, up = (array("H", [0x3C00, 0xBC00, 0x4000, 0x0001]) for _ in range(2))  # 1, -1, 2, the smallest
    out = array("H", [0] * 4)
    params = capi.SiluMulParams(dtype=capi.DTYPE_FLOAT16, batches=1, rows=1, cols=4)
    params.gate, params.up, params.out = (memory.buffer_info()[0] for memory in (gate, up, out))
    with capi.Context(capi.DEVICE_HOST) as context:
        context.fused_silu_mul(params)
    print("raw memory:", " ".join(f"{value:04x}" for value in out))


def numpy_arrays() -> None:
    """Arrays are read and written where they lie; the library's own reference is the truth."""
    import numpy

    packed = numpy.array([[1, -1, 2, 3]], dtype=numpy.float16)
    result = libbitexact.fused_silu_mul(packed[:, :2], packed[:, 2:])
    print("NumPy:", " ".join(f"{value:04x}" for value in result.view(numpy.uint16)[0]))


def torch_tensors() -> None:
    """Eager is the truth: the first call of each kernel compares, and eager runs for good if a bit
    differs."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    q = torch.linspace(-1, 1, 2 * 5 * 4 * 32, device=device).view(2, 5, 4, 32).bfloat16()
    angles = torch.linspace(0, 3, 5 * 32, device=device).view(5, 32)
    cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()
    rotated_half = torch.cat((-q[..., 16:], q[..., :16]), dim=-1)
    eager = q * cos[:, None] + rotated_half * sin[:, None]
    for _ in range(2):
        fused = libbitexact.fused_rope(q, None, cos, sin)
    print("PyTorch: equal bits", torch.equal(fused.view(torch.int16), eager.view(torch.int16)))


def patched_model() -> None:
    """One line for a whole model, and the way back."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = dict(
        hidden_size=64, intermediate_size=128, num_attention_heads=4, num_hidden_layers=2, vocab_size=50
    )
    model = LlamaForCausalLM(LlamaConfig(**sizes)).bfloat16().eval()
    tokens = torch.arange(20).view(1, 20)
    with torch.no_grad():
        before = model(tokens).logits
        with libbitexact.patch(model) as handle:
            print(handle)
            after = model(tokens).logits
    print("patched model: equal bits", torch.equal(before.view(torch.int16), after.view(torch.int16)))


if __name__ == "__main__":
    raw_memory()
    numpy_arrays()
    torch_tensors()
    patched_model()
