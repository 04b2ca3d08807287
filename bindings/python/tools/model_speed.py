"""Whole models, patched and not: milliseconds of a forward, and whether every output bit is the same.

On CUDA the models have the widths of published ones and a few of their layers; on a CPU they are the small ones of the
tests, which only shows that this program works. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Callable

import torch

import libbitexact

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
import models  # noqa: E402

Inputs = dict[str, Any]
Make = Callable[[], tuple[torch.nn.Module, Inputs]]


def language(name: str, tokens: int, **sizes: Any) -> tuple[torch.nn.Module, Inputs]:
    import transformers

    config = getattr(transformers, f"{name}Config")(num_hidden_layers=4, vocab_size=32000, pad_token_id=0, **sizes)
    return getattr(transformers, f"{name}ForCausalLM")(config), {"input_ids": torch.arange(3, 3 + tokens).view(1, -1)}


def flux() -> tuple[torch.nn.Module, Inputs]:
    from diffusers import FluxTransformer2DModel

    return FluxTransformer2DModel(num_layers=2, num_single_layers=4), {
        "hidden_states": torch.randn(1, 4096, 64),
        "encoder_hidden_states": torch.randn(1, 512, 4096),
        "pooled_projections": torch.randn(1, 768),
        "img_ids": (torch.arange(3 * 4096).view(4096, 3) % 64).float(),
        "txt_ids": torch.zeros(512, 3),
        "timestep": torch.tensor([1.0]),
    }


def qwen_image() -> tuple[torch.nn.Module, Inputs]:
    from diffusers import QwenImageTransformer2DModel

    return QwenImageTransformer2DModel(num_layers=4), {
        "hidden_states": torch.randn(1, 4096, 64),
        "encoder_hidden_states": torch.randn(1, 256, 3584),
        "encoder_hidden_states_mask": torch.ones(1, 256, dtype=torch.bool),
        "timestep": torch.tensor([1.0]),
        "img_shapes": [(1, 64, 64)],
    }


def wan() -> tuple[torch.nn.Module, Inputs]:
    from diffusers import WanTransformer3DModel

    return WanTransformer3DModel(num_attention_heads=12, ffn_dim=8960, num_layers=4), {
        "hidden_states": torch.randn(1, 16, 5, 60, 104),
        "encoder_hidden_states": torch.randn(1, 512, 4096),
        "timestep": torch.tensor([3]),
    }


def hunyuan_video() -> tuple[torch.nn.Module, Inputs]:
    from diffusers import HunyuanVideoTransformer3DModel

    return HunyuanVideoTransformer3DModel(num_layers=2, num_single_layers=4), {
        "hidden_states": torch.randn(1, 16, 5, 40, 64),
        "encoder_hidden_states": torch.randn(1, 64, 4096),
        "pooled_projections": torch.randn(1, 768),
        "encoder_attention_mask": torch.ones(1, 64),
        "timestep": torch.tensor([3.0]),
        "guidance": torch.tensor([1.0]),
    }


def lumina2() -> tuple[torch.nn.Module, Inputs]:
    from diffusers import Lumina2Transformer2DModel

    return Lumina2Transformer2DModel(num_layers=4, num_refiner_layers=1, cap_feat_dim=2304), {
        "hidden_states": torch.randn(1, 16, 128, 128),
        "encoder_hidden_states": torch.randn(1, 64, 2304),
        "timestep": torch.tensor([0.5]),
        "encoder_attention_mask": torch.ones(1, 64, dtype=torch.bool),
    }


def z_image() -> tuple[torch.nn.Module, Inputs]:
    from diffusers import ZImageTransformer2DModel

    return ZImageTransformer2DModel(n_layers=4, n_refiner_layers=1), {
        "x": [torch.randn(16, 1, 128, 128)],
        "t": torch.tensor([0.5]),
        "cap_feats": [torch.randn(64, 2560)],
    }


def sana() -> tuple[torch.nn.Module, Inputs]:
    from diffusers import SanaTransformer2DModel

    return SanaTransformer2DModel(num_layers=4), {
        "hidden_states": torch.randn(2, 32, 32, 32),
        "encoder_hidden_states": torch.randn(2, 300, 2304),
        "timestep": torch.tensor([3, 3]),
    }


def ideogram4() -> tuple[torch.nn.Module, Inputs]:
    from diffusers import Ideogram4Transformer2DModel

    text, image = 256, 4096
    return Ideogram4Transformer2DModel(num_layers=4, llm_features_dim=4096), {
        "hidden_states": torch.randn(1, text + image, 128),
        "timestep": torch.full((1, text + image), 0.5),
        "encoder_hidden_states": torch.randn(1, text + image, 4096),
        "position_ids": torch.arange(3 * (text + image)).view(1, -1, 3) % 64,
        "segment_ids": torch.zeros(1, text + image, dtype=torch.int64),
        "indicator": torch.tensor([[3] * text + [2] * image]),
    }


_WIDE = dict(hidden_size=4096, num_attention_heads=32, num_key_value_heads=8)
LARGE: dict[str, Make] = {
    "Llama, 2048 tokens": functools.partial(language, "Llama", 2048, intermediate_size=14336, **_WIDE),
    "Llama, 16 tokens": functools.partial(language, "Llama", 16, intermediate_size=14336, **_WIDE),
    "Qwen3, 2048 tokens": functools.partial(language, "Qwen3", 2048, intermediate_size=12288, head_dim=128, **_WIDE),
    "Mistral, 2048 tokens": functools.partial(language, "Mistral", 2048, intermediate_size=14336, **_WIDE),
    "Flux, 4096 + 512 tokens": flux,
    "Qwen-Image, 4096 + 256 tokens": qwen_image,
    "Wan, 7800 tokens": wan,
    "HunyuanVideo, 3200 + 64 tokens": hunyuan_video,
    "Lumina 2, 4096 tokens": lumina2,
    "Z-Image, 4096 tokens": z_image,
    "SANA, 2 x 1024 tokens": sana,
    "Ideogram 4, 4096 + 256 tokens": ideogram4,
}


def small() -> dict[str, Make]:
    found: dict[str, Make] = {
        name: lambda name=name: (models.LANGUAGE[name](), models.language_inputs("cpu")) for name in ("Llama", "Qwen3")
    }
    return {**found, **models.DIFFUSION}


def first_tensor(result: Any) -> torch.Tensor:
    while not isinstance(result, torch.Tensor):
        result = result[0]
    return result


def milliseconds(run: Callable[[], Any], device: str, repeats: int) -> float:
    times = []
    for _ in range(repeats):
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


def fused_calls(handle: libbitexact.Patch) -> dict[str, int]:
    counts = dict.fromkeys(("fused_rope", "fused_silu_mul"), 0)
    for site in handle.sites:
        counts[site.operation] += sum(verdict["fused_calls"] for verdict in site.verdicts())
    return counts


def measure(make: Make, device: str, dtype: torch.dtype, repeats: int) -> dict[str, Any]:
    torch.manual_seed(1)
    with torch.device(device):
        model, inputs = make()
    model = model.to(device, dtype).eval()
    generator = torch.Generator(device).manual_seed(2)
    for parameter in model.parameters():
        parameter.normal_(0, 0.02, generator=generator)
    inputs = models.moved(inputs, dtype, device)

    def run() -> torch.Tensor:
        return first_tensor(model(**inputs, return_dict=False))

    for _ in range(3):
        expected = run()
    eager = milliseconds(run, device, repeats)
    with libbitexact.patch(model) as handle:
        equal = all(same_bits(run(), expected) for _ in range(3))
        patched = milliseconds(run, device, repeats)
        before = fused_calls(handle)
        equal &= same_bits(run(), expected)
        calls = {operation: count - before[operation] for operation, count in fused_calls(handle).items()}
        declined = sorted({note for s in handle.sites for note in s.notes if "declined" in note})
    again = milliseconds(run, device, repeats)  # after undoing: how far the two eager runs lie apart
    return {
        "eager_ms": min(eager, again),
        "eager_again_ms": max(eager, again),
        "patched_ms": patched,
        "equal": equal,
        "fused": calls,
        "notes": declined,
    }


@torch.no_grad()
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    parser.add_argument("--repeats", type=int, default=20)
    arguments = parser.parse_args()
    failed = False
    results: dict[str, Any] = {}
    for name, make in (LARGE if arguments.device == "cuda" else small()).items():
        try:
            results[name] = measure(make, arguments.device, torch.bfloat16, arguments.repeats)
            failed |= not results[name]["equal"]
        except Exception as error:  # one model that cannot run must not hide the others
            results[name] = {"failed": f"{type(error).__name__}: {error}"}
            failed = True
        if arguments.device == "cuda":
            torch.cuda.empty_cache()
        print(f"{name}: {results[name]}", file=sys.stderr, flush=True)
    print(json.dumps(results, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
