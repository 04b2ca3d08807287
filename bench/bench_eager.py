#!/usr/bin/env python3
"""PyTorch eager and torch.compile beside bitexact, in one run: time, and the share of equal output bits."""

import argparse
import ctypes
import json
import statistics
import time
from typing import Callable

import torch

BFLOAT16 = 3


def integers(kind: type, *names: str) -> list[tuple[str, type]]:
    return [(name, kind) for name in names]


def tensor_fields(name: str, *axes: str) -> list[tuple[str, type]]:
    return [(name, ctypes.c_void_p), *integers(ctypes.c_int64, *(f"{name}_{axis}_stride" for axis in axes))]


class SiluMulParams(ctypes.Structure):
    """bitexact_silu_mul_params."""

    _fields_ = [*integers(ctypes.c_uint32, "struct_size", "flags"),
                *integers(ctypes.c_int32, "dtype", "compute_dtype", "silu", "reserved"),
                *integers(ctypes.c_int64, "batches", "rows", "cols"),
                *tensor_fields("gate", "batch", "row"), *tensor_fields("up", "batch", "row"),
                *tensor_fields("out", "batch", "row")]


class RopeParams(ctypes.Structure):
    """bitexact_rope_params."""

    _fields_ = [*integers(ctypes.c_uint32, "struct_size", "flags"),
                *integers(ctypes.c_int32, "dtype", "table_dtype", "compute_dtype", "combine", "pairing_in",
                          "pairing_out"),
                *integers(ctypes.c_int64, "batches", "tokens", "q_heads", "k_heads", "head_dim", "rotary_dim",
                          "table_width", "table_rows"),
                *tensor_fields("q_in", "batch", "token", "head"), *tensor_fields("q_out", "batch", "token", "head"),
                *tensor_fields("k_in", "batch", "token", "head"), *tensor_fields("k_out", "batch", "token", "head"),
                *tensor_fields("cos", "batch", "token", "head", "element"),
                *tensor_fields("sin", "batch", "token", "head", "element"),
                *tensor_fields("positions", "batch", "token"),
                *integers(ctypes.c_int32, "positions_dtype", "reserved")]


class Bitexact:
    def __init__(self, path: str) -> None:
        self.library = ctypes.CDLL(path)
        self.library.bitexact_last_error.restype = ctypes.c_char_p
        self.library.bitexact_build_info.restype = ctypes.c_char_p
        self.context = ctypes.c_void_p()
        self.check(self.library.bitexact_context_create(None, ctypes.byref(self.context)))

    def check(self, status: int) -> None:
        if status != 0:
            raise RuntimeError(self.library.bitexact_last_error().decode())

    def call(self, name: str, params: ctypes.Structure) -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self.check(getattr(self.library, name)(self.context, ctypes.byref(params), stream))

    def silu_mul(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(gate)
        rows, cols = gate.shape
        p = SiluMulParams(struct_size=ctypes.sizeof(SiluMulParams), dtype=BFLOAT16, batches=1, rows=rows, cols=cols)
        for name, tensor in (("gate", gate), ("up", up), ("out", out)):
            setattr(p, name, tensor.data_ptr())
            setattr(p, name + "_row_stride", tensor.stride(0))
        self.call("bitexact_fused_silu_mul", p)
        return out

    def rope(self, q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor,
             sin: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        q_out, k_out = torch.empty_like(q), torch.empty_like(k)
        tokens, heads, dim = q.shape
        p = RopeParams(struct_size=ctypes.sizeof(RopeParams), dtype=BFLOAT16, batches=1, tokens=tokens, q_heads=heads,
                       k_heads=k.shape[1], head_dim=dim, rotary_dim=dim, table_width=dim, table_rows=tokens)
        for name, tensor in (("q_in", q), ("q_out", q_out), ("k_in", k), ("k_out", k_out)):
            setattr(p, name, tensor.data_ptr())
            setattr(p, name + "_token_stride", tensor.stride(0))
            setattr(p, name + "_head_stride", tensor.stride(1))
        for name, tensor in (("cos", cos), ("sin", sin)):
            setattr(p, name, tensor.data_ptr())
            setattr(p, name + "_token_stride", tensor.stride(0))
            setattr(p, name + "_element_stride", 1)
        self.call("bitexact_fused_rope", p)
        return q_out, k_out


def eager_silu_mul(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.silu(gate) * up


def eager_rope(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor,
               sin: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    def rotate_half(x: torch.Tensor) -> torch.Tensor:
        half = x.shape[-1] // 2
        return torch.cat((-x[..., half:], x[..., :half]), dim=-1)

    c, s = cos[:, None, :], sin[:, None, :]
    return q * c + rotate_half(q) * s, k * c + rotate_half(k) * s


def equal_share(a: object, b: object) -> float:
    """Share of elements with equal bits."""
    pairs = list(zip(a, b)) if isinstance(a, tuple) else [(a, b)]
    equal = sum(int((x.view(torch.int16) == y.view(torch.int16)).sum()) for x, y in pairs)
    return equal / sum(x.numel() for x, _ in pairs)


def measure(works: dict[str, Callable[[int], object]], buffers: int) -> dict[str, dict[str, float]]:
    """Medians of graph replays over rotating buffers, works in turns; and the host's time for a call."""
    graphs, launches, host = {}, max(buffers, 8) // buffers * buffers, {}
    for name, work in works.items():
        for i in range(buffers):
            work(i)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for i in range(50):
            work(i % buffers)
        host[name] = (time.perf_counter() - begin) / 50 * 1e6
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(launches):
                work(i % buffers)
        graphs[name] = graph
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(15):
        for name, graph in graphs.items():
            begin_event, end_event = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin_event.record()
            graph.replay()
            end_event.record()
            end_event.synchronize()
            times[name].append(begin_event.elapsed_time(end_event) * 1000 / launches)
    return {name: {"median_us": statistics.median(t), "p10_us": sorted(t)[1], "p90_us": sorted(t)[13],
                   "host_us": host[name]} for name, t in times.items()}


def compiled(function: Callable, emulate: bool) -> Callable:
    torch._dynamo.reset()
    options = {"emulate_precision_casts": True} if emulate else {}
    return torch.compile(function, options=options, dynamic=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", required=True, help="libbitexact.so")
    parser.add_argument("--json", help="where to write the numbers")
    arguments = parser.parse_args()
    bitexact = Bitexact(arguments.library)
    torch.manual_seed(0)
    rows = []

    def run(shape: str, functions: dict[str, Callable], inputs: list[tuple], bytes_moved: float) -> None:
        truth = functions["eager"](*inputs[0])
        shares = {}
        for name, function in functions.items():
            result = function(*inputs[0])
            shares[name] = equal_share(truth, result) if name != "torch.add" else None
        timing = measure({n: (lambda i, f=f: f(*inputs[i])) for n, f in functions.items()}, len(inputs))
        for name, numbers in timing.items():
            rows.append({"shape": shape, "work": name, "equal_bits": shares[name],
                         "speedup_over_eager": timing["eager"]["median_us"] / numbers["median_us"],
                         "tb_per_s": bytes_moved / numbers["median_us"] / 1e6, **numbers})
            share = "" if shares[name] is None else f"{100 * shares[name]:.4f} %"
            print(f"{shape:34} {name:28} {numbers['median_us']:9.2f} us  host {numbers['host_us']:7.2f} us  "
                  f"{rows[-1]['speedup_over_eager']:5.2f}x  equal bits {share}", flush=True)

    for tokens, width in ((4400, 12288), (1026, 3584), (16, 12288)):
        buffers = max(2, min(16, (600 << 20) // (6 * tokens * width)))
        inputs = [tuple(torch.randn(tokens, width, device="cuda", dtype=torch.bfloat16) for _ in range(2))
                  for _ in range(buffers)]
        run(f"silu_mul {tokens} x {width} bfloat16",
            {"eager": eager_silu_mul, "torch.add": torch.add, "compile": compiled(eager_silu_mul, False),
             "compile, precision casts": compiled(eager_silu_mul, True), "bitexact": bitexact.silu_mul}, inputs,
            6.0 * tokens * width)
    for tokens, q_heads, k_heads, dim in ((4400, 18, 18, 256), (8192, 32, 8, 128), (16, 32, 8, 128)):
        angles = torch.rand(tokens, dim // 2, device="cuda") * 100
        cos, sin = (torch.cat((f(angles), f(angles)), dim=-1).bfloat16() for f in (torch.cos, torch.sin))
        bytes_moved = 4.0 * tokens * (q_heads + k_heads) * dim
        inputs = [(torch.randn(tokens, q_heads, dim, device="cuda", dtype=torch.bfloat16),
                   torch.randn(tokens, k_heads, dim, device="cuda", dtype=torch.bfloat16), cos, sin)
                  for _ in range(max(2, min(16, int((600 << 20) / bytes_moved))))]
        run(f"rope {tokens} x ({q_heads},{k_heads}) x {dim} bfloat16",
            {"eager": eager_rope, "compile": compiled(eager_rope, False),
             "compile, precision casts": compiled(eager_rope, True), "bitexact": bitexact.rope}, inputs, bytes_moved)

    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"title": "PyTorch beside bitexact", "gpu": torch.cuda.get_device_name(0),
                       "torch": torch.__version__, "cuda": torch.version.cuda,
                       "build": bitexact.library.bitexact_build_info().decode(), "rows": rows}, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
