"""Small models with random weights, and an input for each. Every forward gives one tensor."""

from __future__ import annotations

from typing import Any, Callable

import torch

_LANGUAGE: dict[str, Any] = dict(
    hidden_size=128,
    intermediate_size=256,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=96,
    max_position_embeddings=128,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)


def _language(name: str, **changes: Any) -> Callable[[], torch.nn.Module]:
    def make() -> torch.nn.Module:
        import transformers

        config = getattr(transformers, f"{name}Config")(**{**_LANGUAGE, **changes})
        return getattr(transformers, f"{name}ForCausalLM")(config)

    return make


LANGUAGE: dict[str, Callable[[], torch.nn.Module]] = {
    "Llama": _language("Llama"),
    "Qwen2": _language("Qwen2"),
    "Qwen3": _language("Qwen3", head_dim=32),
    "Mistral": _language("Mistral"),
    "Gemma": _language("Gemma", head_dim=32),
    "GPTNeoX": _language("GPTNeoX"),
    "Phi3": _language("Phi3"),
    "Glm4": _language("Glm4", head_dim=32),
    "Olmo2": _language("Olmo2"),
    "Cohere2": _language("Cohere2"),
    "GptOss": _language("GptOss", head_dim=32, num_local_experts=4, num_experts_per_tok=2),
    "Afmoe": _language(
        "Afmoe",
        head_dim=32,
        num_experts=4,
        num_experts_per_tok=2,
        num_shared_experts=1,
        num_dense_layers=1,
        moe_intermediate_size=64,
    ),
}

# What a model does not compute, or not with these kernels.
NO_SILU = {"Gemma", "GPTNeoX", "GptOss", "Flux", "QwenImage", "Wan", "HunyuanVideo", "LTX"}
NO_ROPE = {"Sana"}


def language_inputs(device: str, tokens: int = 17) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    return {"input_ids": torch.randint(3, 96, (2, tokens), generator=generator).to(device)}


def _image(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(8))


def _flux() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    from diffusers import FluxTransformer2DModel

    model = FluxTransformer2DModel(
        patch_size=1,
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        axes_dims_rope=(4, 4, 8),
    )
    return model, {
        "hidden_states": _image(1, 16, 4),
        "encoder_hidden_states": _image(1, 8, 32),
        "pooled_projections": _image(1, 32),
        "img_ids": torch.arange(48).view(16, 3) % 5,
        "txt_ids": torch.zeros(8, 3),
        "timestep": torch.tensor([1.0]),
    }


def _flux2() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    from diffusers import Flux2Transformer2DModel

    model = Flux2Transformer2DModel(
        patch_size=1,
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        timestep_guidance_channels=256,
        axes_dims_rope=[4, 4, 4, 4],
    )
    return model, {
        "hidden_states": _image(1, 16, 4),
        "encoder_hidden_states": _image(1, 8, 32),
        "img_ids": (torch.arange(64).view(1, 16, 4) % 5).float(),
        "txt_ids": torch.zeros(1, 8, 4),
        "timestep": torch.tensor([1.0]),
        "guidance": torch.tensor([1.0]),
    }


def _qwen_image() -> tuple[torch.nn.Module, dict[str, Any]]:
    from diffusers import QwenImageTransformer2DModel

    model = QwenImageTransformer2DModel(
        patch_size=2,
        in_channels=16,
        out_channels=4,
        num_layers=2,
        attention_head_dim=16,
        num_attention_heads=3,
        joint_attention_dim=16,
        axes_dims_rope=(8, 4, 4),
    )
    return model, {
        "hidden_states": _image(1, 16, 16),
        "encoder_hidden_states": _image(1, 7, 16),
        "encoder_hidden_states_mask": torch.ones(1, 7, dtype=torch.bool),
        "timestep": torch.tensor([1.0]),
        "img_shapes": [(1, 4, 4)],
    }


def _wan() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    from diffusers import WanTransformer3DModel

    model = WanTransformer3DModel(
        patch_size=(1, 2, 2),
        num_attention_heads=2,
        attention_head_dim=12,
        in_channels=4,
        out_channels=4,
        text_dim=16,
        freq_dim=256,
        ffn_dim=32,
        num_layers=2,
        cross_attn_norm=True,
        qk_norm="rms_norm_across_heads",
        rope_max_seq_len=32,
    )
    return model, {
        "hidden_states": _image(1, 4, 2, 8, 8),
        "encoder_hidden_states": _image(1, 5, 16),
        "timestep": torch.tensor([3]),
    }


def _hunyuan_video() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    from diffusers import HunyuanVideoTransformer3DModel

    model = HunyuanVideoTransformer3DModel(
        in_channels=4,
        out_channels=4,
        num_attention_heads=2,
        attention_head_dim=10,
        num_layers=1,
        num_single_layers=1,
        num_refiner_layers=1,
        patch_size=1,
        patch_size_t=1,
        guidance_embeds=True,
        text_embed_dim=16,
        pooled_projection_dim=8,
        rope_axes_dim=(2, 4, 4),
    )
    return model, {
        "hidden_states": _image(1, 4, 1, 8, 8),
        "encoder_hidden_states": _image(1, 6, 16),
        "pooled_projections": _image(1, 8),
        "encoder_attention_mask": torch.ones(1, 6),
        "timestep": torch.tensor([3.0]),
        "guidance": torch.tensor([1.0]),
    }


def _ltx() -> tuple[torch.nn.Module, dict[str, Any]]:
    from diffusers import LTXVideoTransformer3DModel

    model = LTXVideoTransformer3DModel(
        in_channels=4,
        out_channels=4,
        num_attention_heads=4,
        attention_head_dim=8,
        cross_attention_dim=32,
        num_layers=1,
        caption_channels=32,
    )
    return model, {
        "hidden_states": _image(1, 32, 4),
        "encoder_hidden_states": _image(1, 6, 32),
        "timestep": torch.tensor([3]),
        "encoder_attention_mask": torch.ones(1, 6, dtype=torch.bool),
        "num_frames": 2,
        "height": 4,
        "width": 4,
    }


def _lumina2() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    from diffusers import Lumina2Transformer2DModel

    model = Lumina2Transformer2DModel(
        sample_size=16,
        patch_size=2,
        in_channels=4,
        hidden_size=24,
        num_layers=2,
        num_refiner_layers=1,
        num_attention_heads=3,
        num_kv_heads=1,
        multiple_of=2,
        norm_eps=1e-5,
        scaling_factor=1.0,
        axes_dim_rope=(4, 2, 2),
        axes_lens=(128, 128, 128),
        cap_feat_dim=8,
    )
    return model, {
        "hidden_states": _image(1, 4, 16, 16),
        "encoder_hidden_states": _image(1, 6, 8),
        "timestep": torch.tensor([0.5]),
        "encoder_attention_mask": torch.ones(1, 6, dtype=torch.bool),
    }


def _z_image() -> tuple[torch.nn.Module, dict[str, Any]]:
    from diffusers import ZImageTransformer2DModel

    model = ZImageTransformer2DModel(
        all_patch_size=(2,),
        all_f_patch_size=(1,),
        in_channels=16,
        dim=32,
        n_layers=1,
        n_refiner_layers=1,
        n_heads=2,
        n_kv_heads=2,
        cap_feat_dim=16,
        axes_dims=[8, 4, 4],
        axes_lens=[256, 32, 32],
    )
    return model, {
        "x": [_image(16, 1, 8, 8)],
        "t": torch.tensor([0.5]),
        "cap_feats": [_image(8, 16)],
    }


def _sana() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    from diffusers import SanaTransformer2DModel

    model = SanaTransformer2DModel(
        in_channels=4,
        out_channels=4,
        num_attention_heads=2,
        attention_head_dim=8,
        num_layers=1,
        num_cross_attention_heads=2,
        cross_attention_head_dim=8,
        cross_attention_dim=16,
        caption_channels=8,
        sample_size=8,
    )
    return model, {
        "hidden_states": _image(1, 4, 8, 8),
        "encoder_hidden_states": _image(1, 6, 8),
        "timestep": torch.tensor([3]),
    }


def _ideogram4() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    from diffusers import Ideogram4Transformer2DModel

    model = Ideogram4Transformer2DModel(
        in_channels=8,
        num_layers=2,
        attention_head_dim=16,
        num_attention_heads=2,
        intermediate_size=64,
        adaln_dim=16,
        llm_features_dim=24,
        mrope_section=(4, 2, 2),
    )
    text, image = 5, 12  # tokens of either kind in one sequence
    return model, {
        "hidden_states": _image(1, text + image, 8),
        "timestep": torch.full((1, text + image), 0.5),
        "encoder_hidden_states": _image(1, text + image, 24),
        "position_ids": (torch.arange(3 * (text + image)).view(1, -1, 3) * 7) % 40,
        "segment_ids": torch.zeros(1, text + image, dtype=torch.int64),
        "indicator": torch.tensor([[3] * text + [2] * image]),
    }


DIFFUSION: dict[str, Callable[[], tuple[torch.nn.Module, dict[str, Any]]]] = {
    "Flux": _flux,
    "Flux2": _flux2,
    "QwenImage": _qwen_image,
    "Wan": _wan,
    "HunyuanVideo": _hunyuan_video,
    "LTX": _ltx,
    "Lumina2": _lumina2,
    "ZImage": _z_image,
    "Sana": _sana,
    "Ideogram4": _ideogram4,
}


def moved(value: Any, dtype: torch.dtype, device: str) -> Any:
    """Inputs in the model's dtype, except times and integers."""
    if isinstance(value, dict):
        return {name: moved(v, dtype, device) for name, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(moved(v, dtype, device) for v in value)
    if isinstance(value, torch.Tensor):
        return value.to(device, dtype if value.is_floating_point() and value.dim() > 1 else value.dtype)
    return value


def seeded(model: torch.nn.Module) -> torch.nn.Module:
    """Weights that no layer's initialisation makes zero."""
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return model.eval()
