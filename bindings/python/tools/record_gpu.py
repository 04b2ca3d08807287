"""Runs what the Python package needs a GPU for, and writes the record: python_gpu.md and .json, or of one part
python_gpu_PART.md and .json.

Builds nothing and needs no network: the package and what its tests import come from a folder of wheels, unpacked for
this run alone; PyTorch for CUDA has to be there.

    python3 bindings/python/tools/record_gpu.py --wheels build/python_wheels --out docs/results
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
import zipfile
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[1]

# What a call may cost, of what eager costs, and how long a start may take.
MOST_OF_EAGER = {"silu_mul": 0.5, "rope": 0.25}
MOST_MILLISECONDS = {"import after torch": 50.0, "first fused result after import": 250.0}


def unpack(wheels: Path, target: Path) -> list[str]:
    found = sorted(wheels.glob("*.whl"))
    if not any(wheel.name.startswith("libbitexact-") for wheel in found):
        sys.exit(f"record_gpu: --wheels is {wheels}, which has no libbitexact wheel")
    for wheel in found:
        zipfile.ZipFile(wheel).extractall(target)
    return [wheel.name for wheel in found]


class Record:
    def __init__(self, site: Path, out: Path, name: str, library: Path | None) -> None:
        self.out, self.name = out, name
        self.head: list[str] = []
        self.lines: list[str] = []
        self.failed: list[str] = []
        self.facts: dict[str, Any] = {}
        out.mkdir(parents=True, exist_ok=True)
        self.environment = {**os.environ, "PYTHONPATH": str(site), "HF_HUB_OFFLINE": "1"}
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an import would compile each time
        self.environment.pop("BITEXACT_GATE", None)
        if library:
            self.environment["BITEXACT_LIBRARY"] = str(library.resolve())

    def python(self, *arguments: str | Path, seconds: int) -> tuple[int, str, str]:
        command = [sys.executable, *map(str, arguments)]
        try:
            done = subprocess.run(command, env=self.environment, cwd=self.out, capture_output=True, text=True,
                                  timeout=seconds)
            return done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired as late:
            texts = [t.decode(errors="replace") if isinstance(t, bytes) else t or "" for t in (late.stdout, late.stderr)]
            return 124, texts[0], f"{texts[1]}\nended after {seconds} s"

    def fail(self, what: str, output: str) -> None:
        self.failed.append(what)
        print(f"FAILED: {what}\n" + "\n".join(output.splitlines()[-200:]), flush=True)

    def tests(self, seconds: int) -> None:
        report, start = self.out / "python_gpu_tests.xml", time.monotonic()
        code, output, errors = self.python(
            "-m", "pytest", "-m", "gpu", "--quiet", "-p", "no:cacheprovider", "--rootdir", PACKAGE,
            "-c", PACKAGE / "pyproject.toml", "--junitxml", report, "--durations=10", PACKAGE / "tests", seconds=seconds)
        closing = re.findall(r"^\d+ (?:passed|failed).* in [\d.]+s.*$", output, re.M)
        self.facts["tests"] = {"closing": closing[-1] if closing else f"ended with {code}", "status": code,
                               "seconds": round(time.monotonic() - start)}
        if code != 0:
            self.fail("tests", output + errors)
        rows: dict[str, list[int]] = {}
        if report.exists():
            for case in ElementTree.parse(report).getroot().iter("testcase"):
                row = rows.setdefault(case.get("classname", "?").split(".")[-1], [0, 0, 0])
                bad = case.find("failure") is not None or case.find("error") is not None
                row[1 if bad else 2 if case.find("skipped") is not None else 0] += 1
            report.unlink()
        self.lines += ["", "## Tests", "", f"{self.facts['tests']['closing']}.", "",
                       "| file | passed | failed | skipped |", "|---|---|---|---|"]
        self.lines += [f"| {name} | {' | '.join(map(str, row))} |" for name, row in sorted(rows.items())]
        self.facts["tests"]["files"] = rows
        print("\n".join(self.lines[-len(rows) - 2:]), flush=True)

    def call_times(self) -> None:
        code, output, errors = self.python("-m", "libbitexact", "bench", "--json", seconds=120)
        if code != 0:
            return self.fail("python -m libbitexact bench", output + errors)
        bench = self.facts["bench"] = json.loads(output)
        self.lines += ["", "## What a call costs the host", "",
                       "Small tensors, `out=` given, gate accepted; the median of 31 runs of 100 calls.", "",
                       "| device | operation | fused | eager | share | at most |", "|---|---|---|---|---|---|"]
        for device in [name for name in bench if re.fullmatch(r"cpu|cuda:\d+", name)]:
            times = bench[device]
            if times["served fused"] != "yes":
                self.fail(f"bench on {device}", f"not served fused: {times['served fused']}")
            for operation, most in MOST_OF_EAGER.items():
                fused, eager = (float(times[f"{operation} {kind}"].split()[0]) for kind in ("fused", "eager"))
                wanted = f"{most}" if device != "cpu" else ""
                self.lines.append(f"| {device} | {operation} | {fused:.2f} us | {eager:.2f} us | {fused / eager:.2f} "
                                  f"| {wanted} |")
                if wanted and fused / eager > most:
                    self.fail(f"{operation} on {device}", f"{fused} us of {eager} us is more than {most}")
        self.lines += ["", "| start | took | at most |", "|---|---|---|"]
        for name, most in MOST_MILLISECONDS.items():
            took = bench["start"].get(name, "failed")
            self.lines.append(f"| {name} | {took} | {most:.0f} ms |")
            if took == "failed" or float(took.split()[0]) > most:
                self.fail(name, f"{bench['start']}")
        print("\n".join(self.lines[-9:]), flush=True)

    def models(self, seconds: int) -> None:
        code, output, errors = self.python(PACKAGE / "tools" / "model_speed.py", seconds=seconds)
        try:
            results = json.loads(output)
        except json.JSONDecodeError:
            return self.fail("models", output + errors)
        self.facts["models"] = results
        self.lines += ["", "## Patched models", "",
                       "bfloat16, one forward, 4 layers (Flux and HunyuanVideo 2 and 4) of the published width, random",
                       "weights; medians. Equal: every bit of the output, five times.", "",
                       "| model | eager | patched | speed-up | equal | fused RoPE, SiLU-mul |",
                       "|---|---|---|---|---|---|"]
        for name, r in results.items():
            if "failed" in r:
                self.lines.append(f"| {name} | {r['failed'].splitlines()[0][:100]} | | | | |")
            else:
                calls = ", ".join(map(str, r["fused"].values()))
                self.lines.append(f"| {name} | {r['eager_ms']:.2f} ms | {r['patched_ms']:.2f} ms "
                                  f"| {r['eager_ms'] / r['patched_ms']:.2f} | {'yes' if r['equal'] else 'NO'} | {calls} |")
        if code != 0:
            self.fail("models", errors)
        print("\n".join(self.lines[-len(results) - 2:]), flush=True)

    def doctor(self) -> None:
        code, output, errors = self.python("-m", "libbitexact", "doctor", "--json", seconds=120)
        if code != 0:
            return self.fail("python -m libbitexact doctor", output + errors)
        self.facts["doctor"] = json.loads(output)
        device = self.facts["doctor"].get("cuda:0", {})
        facts = self.facts["doctor"]["environment"]
        self.head = [f"{device.get('name', 'no GPU')}, driver {device.get('driver', '?')}, Python {facts['python']}, "
                      f"PyTorch {facts['torch']}, calls by {facts.get('call path', '?')}; {facts['build']}."]

    def write(self, wheels: list[str]) -> None:
        self.facts["wheels"], self.facts["failed"] = wheels, self.failed
        failed = ["", f"FAILED: {', '.join(self.failed)}."] if self.failed else []
        text = ["# The Python package on a GPU", "", "Made by `bindings/python/tools/record_gpu.py`.", "", *self.head,
                *self.lines, *failed, ""]
        (self.out / f"{self.name}.md").write_text("\n".join(text), encoding="utf-8")
        (self.out / f"{self.name}.json").write_text(json.dumps(self.facts, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, required=True, help="folder with the libbitexact wheel and others")
    parser.add_argument("--out", type=Path, required=True, help="folder for the record")
    parser.add_argument("--library", type=Path, help="libbitexact.so.1 to use instead of the wheel's own")
    parser.add_argument("--only", choices=("tests", "bench", "models"), help="a part; default: all")
    parser.add_argument("--seconds", type=int, default=270, help="at most, for the tests and for the models each")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as site:
        wheels = unpack(arguments.wheels, Path(site))
        name = f"python_gpu_{arguments.only}" if arguments.only else "python_gpu"
        record = Record(Path(site), arguments.out.resolve(), name, arguments.library)
        record.doctor()
        parts = {"bench": record.call_times, "models": lambda: record.models(arguments.seconds),
                 "tests": lambda: record.tests(arguments.seconds)}
        for name, part in parts.items():
            if arguments.only in (None, name):
                part()
                record.write(wheels)  # what is done stays, should the machine be taken away
    print(f"{len(record.failed)} failed" if record.failed else "all passed", flush=True)
    return 1 if record.failed else 0


if __name__ == "__main__":
    sys.exit(main())
