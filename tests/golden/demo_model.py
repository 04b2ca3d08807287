"""Real tensors: one layer of a small Qwen3 as transformers runs it, seen from the outside.

The weights are random from a seed, the code path is the real one. The tensors are stored, since matrix
products are not the same bits on every device.
"""

from __future__ import annotations

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.models.qwen3 import modeling_qwen3

TOKENS = 96
LAYER = 1
CONFIG = dict(
    vocab_size=1000,
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=64,
    max_position_embeddings=1024,
    attn_implementation="eager",
    tie_word_embeddings=True,
)


def capture(device: str) -> dict[str, torch.Tensor]:
    """q, k, cos, sin, gate, up, and what the model made of them: q_out, k_out, out. bf16, its axes."""
    torch.manual_seed(20)
    model = Qwen3ForCausalLM(Qwen3Config(**CONFIG)).to(torch.bfloat16).to(device).eval()
    tokens = torch.randint(0, CONFIG["vocab_size"], (1, TOKENS), generator=torch.Generator().manual_seed(21))
    calls: list[dict[str, torch.Tensor]] = []
    seen: dict[str, torch.Tensor] = {}
    own = modeling_qwen3.apply_rotary_pos_emb

    def watched(q, k, cos, sin, *rest, **named):
        q_out, k_out = own(q, k, cos, sin, *rest, **named)
        calls.append(dict(q=q, k=k, cos=cos, sin=sin, q_out=q_out, k_out=k_out))
        return q_out, k_out

    mlp = model.model.layers[LAYER].mlp
    hooks = [
        mlp.gate_proj.register_forward_hook(lambda module, args, output: seen.update(gate=output)),
        mlp.up_proj.register_forward_hook(lambda module, args, output: seen.update(up=output)),
        mlp.down_proj.register_forward_pre_hook(lambda module, args: seen.update(out=args[0])),
    ]
    modeling_qwen3.apply_rotary_pos_emb = watched
    try:
        with torch.no_grad():
            model(tokens.to(device), use_cache=False)
    finally:
        modeling_qwen3.apply_rotary_pos_emb = own
        for hook in hooks:
            hook.remove()
    if len(calls) != CONFIG["num_hidden_layers"] or len(seen) != 3:
        raise RuntimeError("the model no longer calls apply_rotary_pos_emb and the MLP as this file expects")
    captured = {**calls[LAYER], **seen}
    if any(tensor.dtype != torch.bfloat16 for tensor in captured.values()):
        raise RuntimeError("the model no longer runs RoPE and the MLP in bfloat16")
    return captured
