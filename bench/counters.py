"""What bounds a kernel: hardware counters of one launch each, of ours and of the fastest plain kernel beside it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

# A program and a shape of it, by a part of its name that no other shape has.
SHAPES = (
    ("bench_silu_mul", "Ideogram-4 4400 x 6144 bfloat16"),
    ("bench_silu_mul", "gpt-oss 16 x 2880 bfloat16"),
    ("bench_silu_mul", "Llama-3 8B 16 x 14336 bfloat16 packed"),
    ("bench_silu_mul", "Llama-3 8B 256 x 14336 bfloat16 packed"),
    ("bench_silu_mul", "odd 1000 x 3419 bfloat16 packed"),
    ("bench_silu_mul", "odd 77 x 1023 float32"),
    ("bench_rope", "Ideogram-4 4400 x (9,9) x 256"),
    ("bench_rope", "Flux 4608 x (24,24) x 128 bfloat16, full bfloat16 partial"),
    ("bench_rope", "Flux 4608 x (24,24) x 128 bfloat16, full bfloat16 heads first"),
    ("bench_rope", "Wan 75600 x (40,40) x 128 bfloat16, full float32 interleaved"),
    ("bench_rope", "Llama-3 70B 8192 x (64,8) x 128"),
    ("bench_rope", "Llama-3 8B 8192 x (32,8) x 128 bfloat16, full float32"),
    ("bench_rope", "Llama-3 70B 1 x (64,8) x 128"),
    ("bench_rope", "Llama-3 8B 16 x (32,8) x 128 bfloat16, full float32"),
    ("bench_rope", "Llama-3 70B 256 x (64,8) x 128"),
    ("bench_rope", "Phi-3 4096 x (32,32) x 96"),
    ("bench_rope", "odd 4097 x (9,1) x 72"),
)

# Heading, metric, and what its value is divided by.
METRICS = (
    ("us", "gpu__time_duration.sum", 1e3),
    ("memory, % of its peak", "dram__throughput.avg.pct_of_peak_sustained_elapsed", 1),
    ("read MB", "dram__bytes_read.sum", 1e6),
    ("written MB", "dram__bytes_write.sum", 1e6),
    ("cache hits %", "lts__t_sector_hit_rate.pct", 1),
    ("instructions a warp", "smsp__average_inst_executed_per_warp.ratio", 1),
    ("issuing %", "smsp__issue_active.avg.pct_of_peak_sustained_active", 1),
    ("warps, % of most", "sm__warps_active.avg.pct_of_peak_sustained_active", 1),
)

Row = dict[str, float | str]


def command(program: str, shape: str, log: str) -> list[str]:
    """ncu over one launch of every kernel that the program measures for a shape."""
    return [
        *("ncu", "--csv", "--log-file", log, "--print-units", "base"),
        *("-k", "regex:fused_rope|fused_silu_mul|copy_two|two_reads"),
        *("--metrics", ",".join(metric for _, metric, _ in METRICS)),
        *(program, "--seconds", "0", "--filter", shape),
    ]


def launches(log: str) -> list[Row]:
    """One row a launch, from what ncu wrote."""
    lines = [line for line in log.splitlines() if line.startswith('"')]
    wanted = {metric: (heading, divisor) for heading, metric, divisor in METRICS}
    rows: dict[str, Row] = {}
    for entry in csv.DictReader(io.StringIO("\n".join(lines))):
        row = rows.setdefault(entry["ID"], {"kernel": entry["Kernel Name"].split("(")[0].removeprefix("void ")})
        if entry["Metric Name"] in wanted:
            heading, divisor = wanted[entry["Metric Name"]]
            row[heading] = float(entry["Metric Value"].replace(",", "")) / divisor
    return list(rows.values())


def of_interest(rows: Iterable[Row]) -> list[Row]:
    """The fastest plain kernel, then ours: the last one, after those of the gate's check."""
    found = list(rows)
    ours = [row for row in found if "fused_" in str(row["kernel"])]
    plain = [row for row in found if "fused_" not in str(row["kernel"])]
    return [*sorted(plain, key=lambda row: float(row["us"]))[:1], *ours[-1:]]


def table(results: dict[str, list[Row]]) -> list[str]:
    headings = [heading for heading, _, _ in METRICS]
    lines = [f"| shape | kernel | {' | '.join(headings)} |", "|---" * (len(headings) + 2) + "|"]
    for shape, rows in results.items():
        for row in rows:
            values = " | ".join(f"{float(row[heading]):.4g}" if heading in row else "-" for heading in headings)
            lines.append(f"| {shape} | {row['kernel']} | {values} |")
    return lines
