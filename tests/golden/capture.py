#!/usr/bin/env python3
"""Writes what PyTorch eager gives on this machine's GPU: `capture.py OUTDIR [--device cpu] [--keys N]`.

index.json says everything: each case's call, how to make its inputs again, digests and where stored bytes
lie; digests over whole domains; versions. outputs.bin, inputs.bin, silu32.bin and demo.bin are raw
little-endian bytes. Needs torch and transformers, no network. A capture from a CPU is for trying only: there
complex multiplies are not fused, and the tests refuse it.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers

import case_list
import cases
import domains
from cases import Case, Store

LIMIT_BYTES = 6 * 1000 * 1000
EXPECTED_PROBES = {"complex64": "COMPLEX", "complex128": "COMPLEX", "addcmul": "fused"}


def probes(device: str) -> dict[str, str]:
    """Which product each fused operator of this PyTorch build takes unrounded, seen from what cancels.

    On many elements: a CPU's vector path and its path for the last few need not agree.
    """

    def values(tensor: torch.Tensor) -> tuple[float, ...]:
        return tuple(tensor.unique().tolist())

    def constant(value: float, dtype: torch.dtype) -> torch.Tensor:
        return torch.full((4096,), value, dtype=dtype, device=device)

    found = {}
    for name, dtype, step in (
        ("complex64", torch.float32, 2.0**-12),
        ("complex128", torch.float64, 2.0**-27),
    ):
        a = constant(1 + step, dtype)
        real = values((torch.complex(a, a) * torch.complex(a, a)).real)
        imaginary = values((torch.complex(a, -a) * torch.complex(a, a)).imag)
        square = step**2
        found[name] = {
            ((0.0,), (0.0,)): "SEPARATE",
            ((square,), (square,)): "COMPLEX",
            ((square,), (-square,)): "COMPLEX_ALT",
        }.get((real, imaginary), f"unknown: {real} {imaginary}")
    a = constant(1 + 2.0**-12, torch.float32)
    left = values(torch.addcmul(-(a * a), a, a))
    found["addcmul"] = {(0.0,): "SEPARATE", (2.0**-24,): "fused"}.get(left, f"unknown: {left}")
    return found


def versions(device: str) -> dict[str, Any]:
    facts = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "device_type": device,
        "device": platform.machine(),
    }
    if device == "cuda":
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"]
        facts["device"] = torch.cuda.get_device_name(0)
        facts["capability"] = "{}.{}".format(*torch.cuda.get_device_capability(0))
        facts["cuda"] = torch.version.cuda
        try:
            facts["driver"] = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError) as error:
            facts["driver"] = f"unknown ({error})"
    return facts


def write_index(path: Path, index: dict[str, Any]) -> None:
    """JSON with one line a case, so that a later capture shows as the lines that changed."""
    lines = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in index["cases"])
    text = json.dumps({**index, "cases": "LINES"}, indent=1)
    path.write_text(text.replace('"LINES"', f"[\n{lines}\n]", 1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("outdir", type=Path)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument(
        "--keys", type=int, default=domains.ALL_KEYS, help="keys of a domain, fewer for trying"
    )
    arguments = parser.parse_args()
    device, directory = arguments.device, arguments.outdir
    if device == "cuda" and not torch.cuda.is_available():
        sys.exit("capture.py: no CUDA device; --device cpu is for trying only")
    if not 0 < arguments.keys <= domains.ALL_KEYS:
        sys.exit("capture.py: --keys must be in [1, 2^32]")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "index.json").unlink(missing_ok=True)  # written last: no index, no capture
    outputs, inputs, silu32, demo_store = (
        Store(directory, name) for name in ("outputs.bin", "inputs.bin", "silu32.bin", "demo.bin")
    )

    index: dict[str, Any] = {"format": 1, "captured_with": versions(device)}
    print(json.dumps(index["captured_with"]))
    index["probes"] = probes(device)
    print(json.dumps(index["probes"]))
    if device == "cuda" and index["probes"] != EXPECTED_PROBES:
        sys.exit(f"capture.py: the cases are written for {EXPECTED_PROBES}")
    index["cases"] = []
    other_nan = 0
    seed = 1

    def make(factory: Callable[..., Case], name: str, *positional: Any, **named: Any) -> Case:
        nonlocal seed
        case = factory(outputs, device, seed, name, *positional, **named)
        seed = case.seed
        return case

    rope = partial(make, cases.rope_case)
    groups = (
        case_list.silu_mul_cases(partial(make, cases.silu_mul_case)),
        case_list.own_dtype(rope),
        case_list.wider_tables(rope),
        case_list.fused_forms(rope),
        case_list.extreme_values(rope),
        case_list.true_tables(rope, device, inputs),
        case_list.demo(device, demo_store),
        case_list.gated_and_clamped_cases(partial(make, cases.silu_mul_case)),
    )
    for group in groups:
        for case in group:
            index["cases"].append(case.entry)
            other_nan += case.other_nan
            print(case.line(), flush=True)
    index["outputs_with_another_nan"] = other_nan
    print(f"{other_nan} NaN outputs had another pattern than the canonical one")
    names = [entry["name"] for entry in index["cases"]]
    if len(set(names)) != len(names):
        raise RuntimeError("two cases share a name")

    index["silu32_tables"] = domains.capture_silu32(silu32, device)
    index["domains"] = domains.capture(arguments.keys, device)

    for store in (outputs, inputs, silu32, demo_store):
        store.file.close()
    write_index(directory / "index.json", index)
    total = sum(path.stat().st_size for path in directory.iterdir())
    print(f"{len(names)} cases, {total} bytes in {directory}")
    if total > LIMIT_BYTES:
        sys.exit(f"capture.py: more than {LIMIT_BYTES} bytes")
    return 0


if __name__ == "__main__":
    with torch.inference_mode():
        sys.exit(main())
