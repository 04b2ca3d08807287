"""Rows of faults that users of such libraries met, and the test that would see each here.

    rows.py check BUILD   every test named in rows.json exists
    rows.py write         writes docs/results/cases.md

A test is named as gtest does ("Suite.Name", also in a program for a GPU), as "ctest NAME", as "python FILE::TEST"
in bindings/python/tests, or as "rust FILE::TEST" in bindings/rust. Cases of tests/conformance name their rows
themselves.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
CONFORMANCE = ROOT / "tests/conformance/cases.json"
# Suites that need a GPU, and the program that the record of GPU runs knows them by.
GPU = {"Bits": "test_bits", "Exhaustive": "test_exhaustive", "GateCuda": "test_gate_cuda", "GoldenCuda": "test_golden_cuda",
       "Large": "test_large", "StreamsCuda": "test_streams_cuda", "StreamsCudaBusy": "test_streams_cuda"}
# Suites that run on the host or the fake runtime here, and on a GPU as well.
BOTH = {"CudaFaults": "test_cuda_faults", "ACudaFault": "test_cuda_faults", "Stress": "test_stress_cuda"}


def rows() -> list[dict]:
    found = json.loads((HERE / "rows.json").read_text())
    cases = json.loads(CONFORMANCE.read_text())
    for row in found:
        row["cases"] = sum(row["row"] in case["rows"] for case in cases)
    return found


def suites(folder: Path) -> set[str]:
    names = set()
    for path in [*folder.rglob("*.cpp"), *folder.rglob("*.cu")]:
        names |= {f"{a}.{b}" for a, b in re.findall(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", path.read_text(), re.M)}
    return names


def missing(row: dict, known: set[str], listed: str) -> list[str]:
    gone = []
    for name in row["tests"]:
        kind, _, rest = name.partition(" ")
        if kind == "ctest":
            there = re.search(rf": {re.escape(rest)}$", listed, re.M)
        elif kind in ("python", "rust"):
            folder = ROOT / "bindings" / (kind if kind == "rust" else "python/tests")
            if not folder.exists():
                print(f"row {row['row']}: {folder.relative_to(ROOT)} is not here, {rest} not looked for")
                continue
            path, _, test = rest.partition("::")
            there = (folder / path).exists() and re.search(rf"\b{test}\b", (folder / path).read_text())
        else:
            there = name in known
        if not there:
            gone.append(name)
    return gone


def check(build: str) -> int:
    known = suites(ROOT / "tests")
    listed = subprocess.run(["ctest", "--test-dir", build, "-N"], capture_output=True, text=True).stdout
    failures = 0
    for row in rows():
        for name in missing(row, known, listed):
            print(f"row {row['row']}: there is no test {name}")
            failures += 1
        if not row["tests"] and not row["cases"]:
            print(f"row {row['row']}: no test at all")
            failures += 1
    print(f"{len(rows())} rows, {failures} failures")
    return 1 if failures else 0


def place(row: dict) -> tuple[str, str]:
    """Where its tests run, and what is on record."""
    recorded = (ROOT / "docs/results/gpu_tests.md").read_text()
    programs = {}
    host = row["cases"] > 0
    for name in row["tests"]:
        suite = name.split(".")[0]
        if suite in GPU:
            programs[GPU[suite]] = suite
        else:
            host = host or "test_gpu.py" not in name and "/gpu.rs" not in name
            if suite in BOTH:
                programs[BOTH[suite]] = suite
    ran = sorted(p for p in programs if re.search(rf"\| {p} \| passed", recorded))
    waits = sorted(set(programs) - set(ran))
    outcome = ["passes"] if host else []
    outcome += [f"passed on a GPU: {', '.join(ran)}"] if ran else []
    outcome += [f"no GPU run on record: {', '.join(waits)}"] if waits else []
    where = "both" if host and programs else "none" if host else "GPU"
    return where, "; ".join(outcome) or "only in a binding's GPU tests"


def write() -> int:
    lines = ["# Faults that users met elsewhere", "",
             "Made by `tests/cases/rows.py write` from `tests/cases/rows.json`; that every test named here exists is itself a",
             "test (`cases.rows`). \"passes\" is said of tests that need no GPU and run in `tools/test`; GPU runs are those of",
             "[gpu_tests.md](gpu_tests.md). Conformance counts the calls in `tests/conformance/cases.json` made for the row, each of",
             "which runs through every interface.", "",
             "| row | what | tests | conformance | GPU | outcome |", "|---|---|---|---|---|---|"]
    for row in rows():
        where, outcome = place(row)
        if "note" in row:
            outcome += f"; {row['note']}"
        tests = ", ".join(f"`{name}`" for name in row["tests"])
        lines.append(f"| {row['row']} | {row['what']} | {tests} | {row['cases'] or ''} | {where} | {outcome} |")
    (ROOT / "docs/results/cases.md").write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(check(sys.argv[2]) if sys.argv[1] == "check" else write())
