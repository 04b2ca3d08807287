"""Installs the library from a build folder and uses it in each way that build.md names.

Steps run in order as tests of their own: install, then find_package and pkg_config on what was installed;
add_subdirectory needs the sources alone.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

CONSUMER = Path(__file__).resolve().parent / "consumer"
PACKAGE = "lib*/cmake/bitexact"


class Failure(Exception):
    pass


def run(*command: str | Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, env=env)
    if done.returncode != 0:
        raise Failure(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def expect(condition: bool, text: str) -> None:
    if not condition:
        raise Failure(text)


def version_of(header: Path) -> list[str]:
    return [re.search(rf"VERSION_{part} (\d+)", header.read_text()).group(1) for part in ("MAJOR", "MINOR", "PATCH")]


def only(prefix: Path, pattern: str) -> Path:
    found = sorted(prefix.glob(pattern))
    expect(len(found) == 1, f"{prefix} holds {len(found)} of {pattern}, expected 1")
    return found[0]


class Steps:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.work: Path = arguments.work
        self.prefix = self.work / "prefix"
        self.version = version_of(arguments.source / "include" / "bitexact.h")
        number = int(self.version[0]) * 10000 + int(self.version[1]) * 100 + int(self.version[2])
        self.expected_output = f"version {number} silu(1) 0x3f3b\n"

    def configure(self, name: str, *options: str) -> Path:
        folder = self.work / name
        shutil.rmtree(folder, ignore_errors=True)
        run(self.arguments.cmake, "-S", CONSUMER, "-B", folder, "-G", self.arguments.generator,
            f"-DCMAKE_C_COMPILER={self.arguments.cc}", f"-DCMAKE_MAKE_PROGRAM={self.arguments.make}", *options)
        return folder

    def build_and_run(self, folder: Path) -> None:
        run(self.arguments.cmake, "--build", folder)
        output = run(folder / "consumer")
        expect(output == self.expected_output, f"the consumer printed {output!r}")

    # --------------------------------------------------------------------------- the steps --

    def install(self) -> None:
        # Installed in one place and moved to another: nothing may depend on where it was.
        first = self.work / "first"
        for folder in (first, self.prefix):
            shutil.rmtree(folder, ignore_errors=True)
        run(self.arguments.cmake, "--install", self.arguments.build, "--prefix", first)
        first.rename(self.prefix)
        full = ".".join(self.version)
        installed = {str(p.relative_to(self.prefix)) for p in self.prefix.rglob("*") if not p.is_dir()}
        library = only(self.prefix, "lib*/libbitexact.so").parent.relative_to(self.prefix)
        wanted = {"include/bitexact.h", f"{library}/pkgconfig/bitexact.pc"}
        wanted |= {f"{library}/libbitexact.so{end}" for end in ("", ".1", f".1.{full}")}
        names = ("config", "config-version", "targets", f"targets-{self.arguments.config.lower()}")
        wanted |= {f"{library}/cmake/bitexact/bitexact-{name}.cmake" for name in names}
        expect(installed == wanted, f"installed and expected files differ: {sorted(installed ^ wanted)}")

    def find_package(self) -> None:
        found = f"-DCMAKE_PREFIX_PATH={self.prefix}"
        major, minor, patch = map(int, self.version)
        self.build_and_run(self.configure("found", found, f"-DBITEXACT_WANTED={major}.{minor}"))
        older_major = [f"{major - 1}.0"] if major > 0 else []
        for wanted in (f"{major + 1}.0", f"{major}.{minor + 1}", *older_major):
            try:
                self.configure("refused", found, f"-DBITEXACT_WANTED={wanted}")
            except Failure as failure:
                expect("compatible with requested version" in str(failure), str(failure))
                continue
            raise Failure(f"version {wanted} was asked for and {major}.{minor}.{patch} was taken")

    def pkg_config(self) -> None:
        folder = only(self.prefix, "lib*/pkgconfig")
        env = {"PKG_CONFIG_PATH": str(folder), "PATH": "/usr/bin:/bin"}
        tool = self.arguments.pkg_config
        expect(run(tool, "--modversion", "bitexact", env=env).strip() == ".".join(self.version), "its version is wrong")
        flags = run(tool, "--cflags", "--libs", "bitexact", env=env).split()
        program = self.work / "by_pkg_config"
        run(self.arguments.cc, "-std=c99", CONSUMER / "main.c", *flags, f"-Wl,-rpath,{folder.parent}", "-o", program)
        output = run(program)
        expect(output == self.expected_output, f"the consumer printed {output!r}")

    def add_subdirectory(self) -> None:
        self.build_and_run(self.configure("embedded", f"-DBITEXACT_SOURCE={self.arguments.source}"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=("install", "find_package", "pkg_config", "add_subdirectory"))
    for name in ("source", "build", "work"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    for name in ("cmake", "generator", "make", "cc", "config"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--pkg-config", default="pkg-config")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    try:
        getattr(Steps(arguments), arguments.step)()
    except Failure as failure:
        print(f"FAILED: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
