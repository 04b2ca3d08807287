#!/usr/bin/env python3
"""Both operations beside what a user would run instead, in one run on one GPU: time, and equality with eager.

Needs PyTorch and libbitexact.so; every other peer that is not installed gets a row that says so.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from cases import growth_cases, peer_cases, sets_of, tiny_cases
from fused import Fused, load
from peers import IN_PLACE, Tables, Unsupported, all_peers, limits
from timing import describe, reason, timer

LIMITS = ("copy", "torch.add")
GROWTH_PEERS = ("eager", "bitexact")


def equal_share(truth: Any, result: Any) -> float:
    """Share of elements with equal bits."""
    pairs = list(zip(truth, result, strict=True)) if isinstance(truth, tuple) else [(truth, result)]
    equal = 0
    for a, b in pairs:
        if a.shape != b.shape or a.dtype != b.dtype:
            raise ValueError(f"gave {b.dtype} {tuple(b.shape)} where eager gives {a.dtype} {tuple(a.shape)}")
        bits = torch.int16 if a.dtype.itemsize == 2 else torch.int32
        equal += int((a.contiguous().view(bits) == b.contiguous().view(bits)).sum())
    return equal / sum(a.numel() for a, _ in pairs)


def python_backend() -> str:
    """How the Python package calls the library."""
    try:
        from libbitexact import _backend
    except ImportError as error:
        return reason(error)
    return _backend.name


class Bench:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.device = torch.device(arguments.device)
        self.file: Path | None = arguments.json
        self.deadline = time.monotonic() + arguments.budget
        self.seconds = arguments.seconds
        capi = load(arguments.library)
        self.peers = all_peers(Fused(capi, self.device))
        if unknown := set(arguments.without) - set(self.peers):
            raise SystemExit(f"--without {unknown.pop()!r}; accepted: {', '.join(map(repr, self.peers))}")
        for name in arguments.without:
            del self.peers[name]
        package = python_backend()
        self.timer = timer(self.device)
        head = {"title": "bitexact beside its peers", **describe(self.device), "build": capi.build_info()}
        self.result: dict[str, Any] = {**head, "python_package": package, "cases": [], "growth": []}

    def write(self) -> None:
        """After each case, so that a run that is stopped leaves what it has."""
        if self.file:
            self.file.write_text(json.dumps(self.result, indent=1) + "\n", encoding="utf-8")

    def works(self, case: Any, names: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any], list[Any]]:
        """Works by name, what is known of each already, and rows of those that cannot run."""
        torch._dynamo.reset()
        count = self.timer.sets(case.input_elements * case.dtype.itemsize)
        flats = sets_of(case, count, self.device)
        inputs = [case.inputs(flat) for flat in flats]
        tables = Tables(case, self.device)
        works: dict[str, Callable[[int], Any]] = {
            name: (lambda i, f=call: f(flats[i])) for name, call in limits(case).items()
        }
        known: dict[str, dict[str, Any]] = {}
        rows = []
        truth = None
        for name, factory in self.peers.items():
            if name not in names:
                continue
            try:
                call = factory(case, tables)
                result = call(*case.inputs(flats[0].clone()))
                truth = result if name == "eager" else truth
                known[name] = {"equal_bits": equal_share(truth, result)}
                known[name]["in_place"] = name in IN_PLACE and case.operation == "rope"
                works[name] = lambda i, f=call: f(*inputs[i])
                if getattr(call, "accepted", True) is False:
                    known[name]["note"] = "declined by its own check: eager ran"
            except Unsupported as why:
                rows.append({"work": name, "reason": str(why)})
            except Exception as error:
                rows.append({"work": name, "reason": reason(error)})
            self.timer.synchronize()
        return works, known, rows

    def run(self, case: Any, names: tuple[str, ...], into: str) -> None:
        entry: dict[str, Any] = {"case": case.name, "operation": case.operation, "tokens": case.tokens}
        entry |= {"bytes": case.moved_bytes, "works": []}
        self.result[into].append(entry)
        if time.monotonic() > self.deadline:
            entry["reason"] = "not measured: out of time"
            return self.write()
        try:
            with torch.inference_mode():
                self.measure(case, names, entry)
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
        except Exception as error:  # of the device or of its memory: that of a peer has been caught
            entry["reason"] = reason(error)
            print(f"{case.name}: {entry['reason']}", flush=True)
        self.write()

    def measure(self, case: Any, names: tuple[str, ...], entry: dict[str, Any]) -> None:
        works, known, entry["works"] = self.works(case, names)
        sets = self.timer.sets(case.input_elements * case.dtype.itemsize)
        timings, failures = self.timer.measure(works, sets, case.moved_bytes, self.seconds)
        copy_us = min((timings[name].median_us for name in LIMITS if name in timings), default=None)
        entry["sets"] = sets
        for name, timing in timings.items():
            row = {"work": name, **asdict(timing), "gb_per_s": case.moved_bytes / timing.median_us / 1e3}
            row["ratio_to_copy"] = copy_us / timing.median_us if copy_us else None
            row |= known.get(name, {})
            entry["works"].append(row)
            share = f"{100 * row['equal_bits']:9.4f} % equal" if "equal_bits" in row else ""
            print(
                f"{case.name:52} {name:31} {timing.median_us:9.2f} us {row['gb_per_s']:6.0f} GB/s "
                f"host {timing.host_us:6.1f} us {share}",
                flush=True,
            )
        entry["works"] += [{"work": name, "reason": why} for name, why in failures.items()]
        for row in entry["works"]:
            if "reason" in row:
                print(f"{case.name:52} {row['work']:31} {row['reason']}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", type=Path, required=True, help="libbitexact.so")
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    parser.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda", help="cpu: a trial of the program"
    )
    parser.add_argument("--filter", default="", help="only cases whose name holds this")
    parser.add_argument("--without", action="append", default=[], help="a peer to leave out; may be repeated")
    parser.add_argument("--budget", type=float, default=125, help="seconds after which no case is begun")
    parser.add_argument("--seconds", type=float, default=0.3, help="of replays a case")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    bench = Bench(arguments)
    cpu = arguments.device == "cpu"
    cases = [(c, tuple(bench.peers), "cases") for c in (tiny_cases() if cpu else peer_cases())]
    growth = [(c, GROWTH_PEERS, "growth") for c in growth_cases(10 if cpu else 100_000)]
    for case, names, into in cases[:14] + growth + cases[14:]:
        if arguments.filter in case.name:
            bench.run(case, names, into)
    bench.write()
    rows = [row for entry in bench.result["cases"] for row in entry["works"] if row["work"] == "bitexact"]
    broken = [row for row in rows if row.get("equal_bits") != 1.0]
    print(f"{len(rows)} cases; in {len(broken)} bitexact failed or differed from eager")
    return 1 if broken or not rows else 0


if __name__ == "__main__":
    raise SystemExit(main())
