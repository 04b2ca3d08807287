#!/usr/bin/env python3
"""Whole models, eager against the same with bitexact mounted: latency, equality of the output's bytes, and
where the time between matrix products and attention is left."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Before CUDA starts: products of few rows else differ from one run to the next.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402

from fused import Fused, load  # noqa: E402
from models import SIZES, Mounts, make_model, part  # noqa: E402
from timing import describe, reason  # noqa: E402

Tensor = torch.Tensor


def sha256(output: Tensor) -> str:
    return hashlib.sha256(output.contiguous().view(torch.int16).cpu().numpy().tobytes()).hexdigest()


class Clock:
    def __init__(self, device: torch.device) -> None:
        self.cuda = device.type == "cuda"

    def synchronize(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    def milliseconds(self, call: Callable[[], Any]) -> float:
        """From the first launch to the last result, host included."""
        self.synchronize()
        begin = time.perf_counter()
        call()
        self.synchronize()
        return (time.perf_counter() - begin) * 1e3


def in_turns(
    clock: Clock, calls: dict[str, Callable[[], Any]], seconds: float
) -> dict[str, dict[str, float]]:
    """Medians and spreads in milliseconds, calls in turns."""
    once = sum(clock.milliseconds(call) for call in calls.values())
    rounds = min(max(int(seconds * 1e3 / once), 5), 51)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for i in range(rounds):
        for name in list(calls) if i % 2 else reversed(list(calls)):
            times[name].append(clock.milliseconds(calls[name]))
    return {
        name: {"median_ms": statistics.median(t), "least_ms": min(t), "greatest_ms": max(t), "rounds": rounds}
        for name, t in times.items()
    }


def captured(call: Callable[[], Tensor]) -> tuple[Callable[[], Any], Tensor]:
    """The call as a CUDA graph, and where its replays leave the output."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = call()
    return graph.replay, output


def parts_ms(call: Callable[[], Any], cuda: bool) -> dict[str, float]:
    """Milliseconds on the device by part of the model, from the profiler."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    activities += [torch.profiler.ProfilerActivity.CUDA] if cuda else []
    part.profiling = True
    try:
        with torch.profiler.profile(activities=activities) as profile:
            call()
            if cuda:
                torch.cuda.synchronize()
    finally:
        part.profiling = False
    sums: dict[str, float] = {}

    def add(name: str, microseconds: float) -> None:
        sums[name] = sums.get(name, 0) + microseconds / 1e3

    for event in profile.events():
        on_device = event.device_type == torch.autograd.DeviceType.CUDA
        if on_device and is_own(event.name):  # launched from outside PyTorch
            add("rope" if "rope" in event.name else "silu_mul", event.time_range.elapsed_us())
        elif not on_device and cuda:
            add(
                owner(event),
                sum(k.duration for k in event.kernels if not is_own(k.name) and not is_part(k.name)),
            )
        elif not on_device:
            add(owner(event), event.self_cpu_time_total)
    return {name: ms for name, ms in sums.items() if ms > 0}


def is_own(kernel: str) -> bool:
    return "bitexact" in kernel


def is_part(name: str) -> bool:
    return name.startswith("part:")


def owner(event: Any) -> str:
    """The part of the model inside which an event stands."""
    while event is not None and not is_part(event.name):
        event = event.cpu_parent
    return "other" if event is None else event.name.removeprefix("part:")


class Bench:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.device = torch.device(arguments.device)
        self.cuda = self.device.type == "cuda"
        self.file: Path | None = arguments.json
        self.seconds = arguments.seconds
        capi = load(arguments.library)
        self.fused = Fused(capi, self.device)
        head = {"title": "Whole models", **describe(self.device), "build": capi.build_info()}
        self.result: dict[str, Any] = {**head, "models": []}

    def write(self) -> None:
        if self.file:
            self.file.write_text(json.dumps(self.result, indent=1) + "\n", encoding="utf-8")

    def guarded(self, step: Callable[[str, dict[str, Any]], None], name: str, entry: dict[str, Any]) -> None:
        """A step's failure is noted, and the next one goes on."""
        try:
            with torch.inference_mode():
                step(name, entry)
        except Exception as error:
            entry["reason"] = reason(error)
            print(f"{name}: {entry['reason']}", flush=True)
        if self.cuda:
            torch.cuda.empty_cache()
        self.write()

    def run(self, names: list[str]) -> bool:
        """Whether every output of every model had the same bytes."""
        entries = {name: {"model": name, "runs": {}, "parts_ms": {}} for name in names}
        self.result["models"] = list(entries.values())
        for name, entry in entries.items():
            self.guarded(self.measure, name, entry)
            hashes = {run["sha256"] for run in entry["runs"].values()}
            entry["equal"] = len(hashes) == 1 and "reason" not in entry
        for name, entry in entries.items():  # a profiler may slow down what comes after it
            self.guarded(self.profile, name, entry)
        return bool(entries) and all(entry.get("equal") for entry in entries.values())

    def calls(self, name: str) -> dict[str, Callable[[], Any]]:
        model, inputs = make_model(name, self.device, tiny=not self.cuda)
        case = model.case
        all_mounts = {
            "eager": Mounts(lambda gate, up: torch.nn.functional.silu(gate) * up, case.eager),
            "bitexact": Mounts(
                self.fused.silu_mul, lambda q, k, cos, sin: self.fused.rope(q, k, cos, sin, case.interleaved)
            ),
        }
        return {which: (lambda m=mounts: model(m, **inputs)) for which, mounts in all_mounts.items()}

    def measure(self, name: str, entry: dict[str, Any]) -> None:
        entry["shape"] = SIZES[name][1 if self.cuda else 2]
        calls = self.calls(name)
        clock = Clock(self.device)
        outputs = {which: call() for which, call in calls.items()}
        entry["eager_repeats"] = sha256(calls["eager"]()) == sha256(outputs["eager"])
        self.note(entry, outputs, in_turns(clock, calls, self.seconds))
        self.write()
        if self.cuda:
            graphs = {f"{which}, CUDA graph": captured(call) for which, call in calls.items()}
            timings = in_turns(clock, {which: replay for which, (replay, _) in graphs.items()}, self.seconds)
            self.note(entry, {which: output for which, (_, output) in graphs.items()}, timings)

    def profile(self, name: str, entry: dict[str, Any]) -> None:
        for which, call in self.calls(name).items():
            call()
            entry["parts_ms"][which] = parts_ms(call, self.cuda)

    def note(self, entry: dict[str, Any], outputs: dict[str, Tensor], timings: dict[str, Any]) -> None:
        for which, output in outputs.items():
            finite = bool(output.isfinite().all())
            entry["runs"][which] = {**timings[which], "sha256": sha256(output), "finite": finite}
            print(
                f"{entry['model']:18} {which:22} {timings[which]['median_ms']:9.3f} ms "
                f"{entry['runs'][which]['sha256'][:16]} {'' if finite else 'NOT FINITE'}",
                flush=True,
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", type=Path, required=True, help="libbitexact.so")
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    parser.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda", help="cpu: a trial with tiny models"
    )
    parser.add_argument("--filter", default="", help="only models whose name holds this")
    parser.add_argument(
        "--seconds", type=float, default=4, help="of timed runs of a model, each with and without graphs"
    )
    arguments = parser.parse_args()
    bench = Bench(arguments)
    torch.use_deterministic_algorithms(True, warn_only=True)
    equal = bench.run([name for name in SIZES if arguments.filter in name])
    print("equal bytes in every run" if equal else "FAILED: a model failed, or its bytes differed")
    return 0 if equal else 1


if __name__ == "__main__":
    raise SystemExit(main())
