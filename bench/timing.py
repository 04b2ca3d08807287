"""Times works against each other, device time and host time.

On a GPU each work is captured once as a CUDA graph that goes through many sets of buffers, inputs and
outputs, and the graphs are replayed in turns. Where all sets together are no larger than the cache three
times, something else is read through the cache before each replay. A replay is queued behind a kernel that
sleeps, so that the time between its two events is the device's alone.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Work = Callable[[int], Any]  # with the index of a set

MOST_SETS = 256


@dataclass
class Timing:
    median_us: float
    p10_us: float
    p90_us: float
    host_us: float
    launches: float | None  # graph nodes of one call


def reason(error: BaseException) -> str:
    """One line of an exception."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:200]


def quantiles(samples: list[float]) -> tuple[float, float, float]:
    ordered = sorted(samples)
    last = len(ordered) - 1
    return statistics.median(ordered), ordered[last // 10], ordered[last - last // 10]


def host_us(work: Work, sets: int, synchronize: Callable[[], None]) -> float:
    """Median time for which a call keeps the host, with room in the launch queue; for 0.2 seconds at most."""
    samples: list[float] = []
    first = time.perf_counter()
    while len(samples) < 7 and (not samples or time.perf_counter() - first < 0.2):
        begin = time.perf_counter()
        for i in range(20):
            work(i % sets)
        samples.append((time.perf_counter() - begin) / 20 * 1e6)
        synchronize()
    return statistics.median(samples)


class CpuTimer:
    """Tries the drivers where there is no GPU; its times mean nothing."""

    def sets(self, set_bytes: int) -> int:
        return 2

    def synchronize(self) -> None:
        pass

    def measure(
        self, works: dict[str, Work], sets: int, moved_bytes: int, seconds: float
    ) -> tuple[dict[str, Timing], dict[str, str]]:
        timings, failures = {}, {}
        for name, work in works.items():
            try:
                host = host_us(work, sets, self.synchronize)
                timings[name] = Timing(host, host, host, host, None)
            except Exception as error:
                failures[name] = reason(error)
        return timings, failures


class CudaTimer:
    def __init__(self) -> None:
        self.cache_bytes = torch.cuda.get_device_properties(0).L2_cache_size
        self.other = torch.ones(3 * self.cache_bytes // 4, device="cuda")

    def sets(self, set_bytes: int) -> int:
        return min(max(3 * self.cache_bytes // set_bytes + 2, 2), MOST_SETS)

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def nodes(self, graph: torch.cuda.CUDAGraph) -> int | None:
        try:
            get_nodes = ctypes.CDLL("libcuda.so.1").cuGraphGetNodes
            count = ctypes.c_size_t()
            status = get_nodes(ctypes.c_void_p(graph.raw_cuda_graph()), None, ctypes.byref(count))
        except (OSError, AttributeError, RuntimeError):
            return None  # a number less in the report
        return count.value if status == 0 else None

    def capture(
        self, work: Work, sets: int, launches: int, pool: Any
    ) -> tuple[torch.cuda.CUDAGraph, float | None]:
        """A graph of so many calls, and its nodes for each."""
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        outputs: list[Any] = [None] * sets  # kept for a whole turn, so that outputs rotate too
        failure: Exception | None = None
        try:
            with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                try:
                    for i in range(launches):
                        outputs[i % sets] = work(i % sets)
                except Exception as error:  # the capture must be ended first
                    failure = error
        except Exception as error:
            self.abandon(pool)
            raise failure or error from error
        if failure is not None:
            raise failure
        nodes = self.nodes(graph)
        if nodes is not None and nodes < launches:
            raise RuntimeError(f"{launches} calls left {nodes} nodes in the graph: launched past the capture")
        del outputs
        graph.replay()
        torch.cuda.synchronize()
        return graph, None if nodes is None else nodes / launches

    def abandon(self, pool: Any) -> None:
        """Undoes what a capture that could not be ended leaves behind: it would spoil every later one."""
        torch.cuda.set_stream(torch.cuda.default_stream())
        device = torch.cuda.current_device()
        for undo in (torch._C._cuda_endAllocateToPool, torch._C._cuda_releasePool):
            try:
                undo(device, pool)
            except RuntimeError as error:
                print(f"after a failed capture: {reason(error)}", flush=True)

    def replay(self, graph: torch.cuda.CUDAGraph, cold: bool) -> float:
        """Microseconds of a replay."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        if cold:
            self.other.sum()
        torch.cuda._sleep(1_000_000)  # cycles: half a millisecond, in which the host queues the rest
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1000

    def measure(
        self, works: dict[str, Work], sets: int, moved_bytes: int, seconds: float
    ) -> tuple[dict[str, Timing], dict[str, str]]:
        """Timings by name, and why the others have none."""
        failures, hosts, graphs, nodes = {}, {}, {}, {}
        pool = torch.cuda.graph_pool_handle()  # one for all: nobody reads the outputs of a replay
        turn_us = sets * max(1.5, moved_bytes / 4.5e6)
        launches = sets * max(1, min(16, int(500 / turn_us)))
        for name, work in works.items():
            try:
                for i in range(min(sets, 3)):
                    work(i)
                torch.cuda.synchronize()
                hosts[name] = host_us(work, sets, torch.cuda.synchronize)
                graphs[name], nodes[name] = self.capture(work, sets, launches, pool)
            except Exception as error:
                failures[name] = reason(error)
                torch.cuda.synchronize()  # raises again where the device is lost
        cold = sets == MOST_SETS
        round_us = sum(self.replay(graph, cold) for graph in graphs.values()) + 700 * len(graphs)
        rounds = min(max(int(seconds * 1e6 / round_us), 7), 41)
        samples: dict[str, list[float]] = {name: [] for name in graphs}
        names = list(graphs)
        for i in range(rounds):
            for j in range(len(names)):
                name = names[(i + j) % len(names)]  # each comes at each place in turn
                samples[name].append(self.replay(graphs[name], cold) / launches)
        timings = {n: Timing(*quantiles(s), hosts[n], nodes[n]) for n, s in samples.items()}
        for graph in graphs.values():
            graph.reset()
        return timings, failures


def timer(device: torch.device) -> Any:
    return CudaTimer() if device.type == "cuda" else CpuTimer()


def describe(device: torch.device) -> dict[str, Any]:
    """What the results were measured on."""
    facts: dict[str, Any] = {"torch": torch.__version__}
    if device.type == "cuda":
        facts |= {"gpu": torch.cuda.get_device_name(0), "cuda": torch.version.cuda}
    else:
        facts |= {"gpu": "none: a trial run on a CPU, whose times mean nothing"}
    return facts
