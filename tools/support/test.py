"""Builds bitexact and runs every test that this machine can run; says what it does not run, and why."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

import machine
from machine import Machine, SetupError

THREADED = r"^(Stress|GateTest|GateThreads)\."  # what the thread sanitizer has something to say about
GPU_JOBS = 1  # some tests fill the memory of a GPU, others keep all of it busy


@dataclass(frozen=True)
class Binding:
    quick: tuple[str, ...] = ()
    program: str = "python3"
    oldest: tuple[int, ...] = (3, 9)


# Called with the folder of libbitexact.so; what a quick run adds; the oldest compiler that will do.
BINDINGS = {
    "python": Binding(quick=("--quick",), oldest=(3, 11)),
    "rust": Binding(quick=("--core",), program="cargo", oldest=(1, 82)),
}


@dataclass
class Tally:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: list[str] = field(default_factory=list)
    skips: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.failures += other.failures
        self.skips += other.skips

    def fail(self, text: str) -> None:
        self.failed += 1
        self.failures.append(text)

    def skip(self, count: int, text: str) -> None:
        self.skipped += count
        self.skips.append(text)


# ---------------------------------------------------------------------------------- ctest --


def read_junit(path: Path) -> Tally:
    """A test that could not run at all ("notrun" without a SKIP_ property's word) has failed."""
    tally = Tally()
    own_skips = []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name, status = case.get("name", "?"), case.get("status")
        skipped = case.find("skipped")
        if status == "run":
            tally.passed += 1
        elif status == "notrun" and skipped is not None and skipped.get("message", "").startswith("SKIP_"):
            own_skips.append(name)
        elif status == "disabled":
            own_skips.append(f"{name} (disabled)")
        else:
            tally.fail(name)
    if own_skips:
        tally.skip(len(own_skips), f"tests that found nothing to run on here: {', '.join(own_skips)}")
    return tally


def labelled(labels: str, but_not: str = "") -> list[str]:
    return ["-L", f"^({labels})$"] + (["-LE", f"^({but_not})$"] if but_not else [])


def count(here: Machine, folder: Path, selection: list[str]) -> int:
    listed = machine.answer(["ctest", "--test-dir", folder, "-N", *selection], here.environment)
    found = re.search(r"Total Tests: (\d+)", listed or "")
    if not found:
        raise SetupError(f"ctest cannot list the tests of {folder.name}")
    return int(found.group(1))


def ctest(here: Machine, folder: Path, title: str, selection: list[str], jobs: int) -> Tally:
    if count(here, folder, selection) == 0:
        return Tally(failed=1, failures=[f"{title}: no such tests"])
    report = folder / "ctest.xml"
    report.unlink(missing_ok=True)
    print(f"\n== {title}", flush=True)
    command = ["ctest", "--test-dir", folder, "--output-on-failure", "-j", str(jobs), "--output-junit", report]
    status = subprocess.run([*command, *selection], env=here.environment, stdin=subprocess.DEVNULL).returncode
    tally = read_junit(report) if report.exists() else Tally()
    tally.failures = [f"{title}: {name}" for name in tally.failures]
    if status != 0 and tally.failed == 0:
        tally.fail(f"{title}: ctest ended with exit status {status}")
    return tally


# ------------------------------------------------------------------------------- bindings --


def read_closing_lines(output: str) -> Tally:
    """`N passed, N failed, N skipped` if there is such a line, else all those of pytest and cargo test."""
    tally = Tally()
    words = {"passed": "passed", "failed": "failed", "error": "failed", "errors": "failed", "skipped": "skipped",
             "ignored": "skipped", "xfailed": "passed", "xpassed": "failed"}
    plain = re.sub(r"\x1b\[[\d;]*m", "", output)
    closing = re.findall(r"^\d+ passed, \d+ failed(?:, \d+ skipped)?$", plain, re.M)[-1:]
    closing = closing or re.findall(r"^(?:(?:=+ )?\d+ [a-z]+.* in [\d.]+s.*|test result: .*)$", plain, re.M)
    for number, word in re.findall(r"(\d+) ([a-z]+)", "\n".join(closing)):
        if word in words:
            setattr(tally, words[word], getattr(tally, words[word]) + int(number))
    return tally


def bindings(here: Machine, folder: Path, language: str, quick: bool) -> Tally:
    tally = Tally()
    binding = BINDINGS[language]
    script = machine.ROOT / "bindings" / language / "run_tests"
    if not script.exists():
        tally.skips.append(f"bindings/{language}: not present")
        return tally
    version = machine.version_in(machine.answer([binding.program, "--version"], here.environment))
    if version < binding.oldest:
        oldest = ".".join(map(str, binding.oldest))
        tally.skips.append(f"bindings/{language}: there is no {binding.program} of version {oldest} or newer")
        return tally
    print(f"\n== bindings/{language}", flush=True)
    process = subprocess.Popen(
        [script, folder, *(binding.quick if quick else ())],
        env=here.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )
    lines = []
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        print(line, end="", flush=True)
    status = process.wait()
    tally = read_closing_lines("".join(lines))
    if tally.failed:
        tally.failures.append(f"bindings/{language}: {tally.failed}, see above")
    elif status != 0:
        tally.fail(f"bindings/{language}: run_tests ended with exit status {status}")
    elif tally.passed == 0:
        tally.fail(f"bindings/{language}: run_tests passed no test that it tells of")
    if tally.skipped:
        tally.skips.append(f"bindings/{language}: {tally.skipped}, see above")
    return tally


# ------------------------------------------------------------------------------- together --


def gpu_tests(here: Machine, folder: Path) -> Tally:
    tally = Tally()
    if here.cuda_compiler is None:
        tally.skips.append("gpu tests: not built (--host-only)")
    elif not here.gpus:
        number = count(here, folder, labelled("gpu"))
        tally.skip(number, f"{number} gpu tests: GPU is {here.gpu_text}")
    else:
        tally.add(ctest(here, folder, f"{folder.name}, on {here.gpu_text}", labelled("gpu"), GPU_JOBS))
    return tally


def host_tests(here: Machine, folder: Path, quick: bool) -> Tally:
    but_not = "gpu|slow" if quick else "gpu"
    tally = ctest(here, folder, folder.name, ["-LE", f"^({but_not})$"], os.cpu_count() or 1)
    if quick and (number := count(here, folder, labelled("slow", "gpu"))):
        tally.skip(number, f"{number} slow tests: --quick")
    return tally


def sanitizer_tests(here: Machine) -> Tally:
    folder = machine.build(here, "sanitize")
    return ctest(here, folder, "host tests under sanitizers", labelled("host", "slow"), os.cpu_count() or 1)


def thread_tests(here: Machine) -> Tally:
    folder = machine.build(here, "threads", ["test_stress", "test_host"])
    selection = ["-L", "^host$", "-R", THREADED]
    return ctest(here, folder, "many threads under the thread sanitizer", selection, os.cpu_count() or 1)


def fuzz_tests(here: Machine) -> Tally:
    if machine.FUZZER in here.missing:
        return Tally()  # what is missing is among what was skipped already
    return ctest(here, machine.build(here, "fuzz", ["fuzz_api"]), machine.FUZZER.purpose, labelled("fuzz"), 1)


def phase(tally: Tally, name: str, run: Callable[[], Tally]) -> None:
    start = time.monotonic()
    try:
        tally.add(run())
    except SetupError as error:
        print(f"\n{error}", flush=True)
        tally.fail(f"{name}: {str(error).splitlines()[0]}")
    print(f"-- {name}: {time.monotonic() - start:.0f} s", flush=True)


def run_all(arguments: argparse.Namespace) -> Tally:
    tally = Tally()
    here = machine.set_up(arguments.host_only, for_tests=True)
    here.environment.pop("BITEXACT_GATE", None)  # a policy of the user's would change what tests see
    tally.skips += [f"{package.purpose}: {package.name} is not installed" for package in here.missing]
    folder = machine.BUILD / here.preset
    phase(tally, f"build {here.preset}", lambda: (machine.build(here, here.preset), Tally())[1])
    if tally.failed:
        tally.skips.append("every other test: nothing to run without this build")
        return tally
    phase(tally, "gpu tests", lambda: gpu_tests(here, folder))
    if arguments.gpu_only:
        tally.skips.append("everything but gpu tests: --gpu-only")
        if not here.gpus:
            tally.fail("--gpu-only, but there is no GPU")
        return tally
    phase(tally, "host tests", lambda: host_tests(here, folder, arguments.quick))
    for language in BINDINGS:
        phase(tally, f"bindings/{language}", lambda: bindings(here, folder, language, arguments.quick))
    if arguments.quick:
        tally.skips.append("host tests under sanitizers, and fuzzing: --quick")
    else:
        phase(tally, "sanitizers", lambda: sanitizer_tests(here))
        phase(tally, "thread sanitizer", lambda: thread_tests(here))
        phase(tally, "fuzzing", lambda: fuzz_tests(here))
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/test", description=__doc__)
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--host-only", action="store_true", help="without CUDA, even if there is a GPU")
    only.add_argument("--gpu-only", action="store_true", help="only the tests that need a GPU")
    parser.add_argument("--quick", action="store_true", help="without sanitizers and slow tests")
    arguments = parser.parse_args()
    tally = Tally()
    try:
        with machine.alone():
            tally = run_all(arguments)
    except SetupError as error:
        print(f"tools/test: {error}")
        tally.fail("setting up: see above")
    print("\nNot run here:" if tally.skips else "\nNothing was left out.")
    for text in tally.skips:
        print(f"- {text}")
    if tally.failures:
        print("\nFailed:")
    for text in tally.failures:
        print(f"- {text}")
    print(f"\n{tally.passed} passed, {tally.failed} failed, {tally.skipped} skipped")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
