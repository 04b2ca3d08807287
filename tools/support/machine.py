"""What this machine has for building and testing, and how to get what it lacks.

Everything that is installed goes under build/, except Debian packages on a machine where we are root.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Iterator

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
VENV = BUILD / "venv"
CUDA = BUILD / "cuda"
UNPACKED = BUILD / "debian"
LOG = BUILD / "setup.log"

OLDEST_CMAKE = (3, 24)
OLDEST_CUDA = (12, 8)
OLDEST_CAPABILITY = (8, 0)
DEFAULT_ARCHITECTURE = "90-real"
CUDA_WHEELS = (
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-cccl==13.0.85",
    "nvidia-cuda-cuobjdump==13.5.37",
    "nvidia-cuda-nvdisasm==13.5.37",
)
CMAKE_WHEEL, NINJA_WHEEL = "cmake==3.31.10", "ninja==1.13.0"
CLANG_FORMAT_WHEEL = "clang-format==14.0.6"  # each major version formats differently


class SetupError(Exception):
    """Something that the user must do; the text says what."""


@dataclass(frozen=True)
class Package:
    """A Debian package, known to be there by a program on PATH or a header that a compiler finds."""

    name: str
    program: str = ""
    header: str = ""
    compiler: str = ""  # that finds the header; empty: the one that builds
    purpose: str = ""  # what is not tested without it; empty: nothing builds without it


BUILD_PACKAGES = (
    Package("libgtest-dev", header="gtest/gtest.h"),
    Package("nlohmann-json3-dev", header="nlohmann/json.hpp"),
    Package("libcli11-dev", header="CLI/CLI.hpp"),
)
TEST_PACKAGES = (
    Package("clang", program="clang", purpose="the public header under a second compiler"),
    Package("abigail-tools", program="abidiff", purpose="the library against the frozen first version of its interface"),
    Package("pkg-config", program="pkg-config", purpose="the installed pkg-config file"),
    Package("doxygen", program="doxygen", purpose="the documentation build"),
    Package("bindgen", program="bindgen", purpose="the Rust bindings against the header"),
)
# After the others: clang itself brings the header on some systems.
FUZZER = Package(
    "libclang-rt-dev", header="fuzzer/FuzzedDataProvider.h", compiler="clang++", purpose="a minute of random calls"
)


@dataclass(frozen=True)
class Gpu:
    name: str
    architecture: str  # "90-real"


@dataclass
class Machine:
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    cuda_compiler: Path | None = None
    gpus: list[Gpu] = field(default_factory=list)
    gpu_text: str = ""
    missing: list[Package] = field(default_factory=list)  # those with a purpose only

    @property
    def preset(self) -> str:
        return "dev" if self.cuda_compiler else "host-only"

    def put_first_on_path(self, directory: Path) -> None:
        self.environment["PATH"] = f"{directory}{os.pathsep}{self.environment.get('PATH', '')}"

    def which(self, program: str) -> str | None:
        return shutil.which(program, path=self.environment.get("PATH"))


def say(text: str) -> None:
    print(f"setup: {text}", flush=True)


def is_root() -> bool:
    return os.geteuid() == 0


# -------------------------------------------------------------------------------- running --


def run(command: list[str | Path], environment: dict[str, str], what: str, log: Path = LOG) -> None:
    """Runs a command whose output matters only if it fails; then its end is shown and SetupError raised."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a+") as file:
        file.write(f"\n$ {' '.join(map(str, command))}\n")
        file.flush()
        start = file.tell()
        try:
            status = subprocess.run(
                command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT
            ).returncode
        except OSError as error:
            raise SetupError(f"{what} failed: {error}") from error
        if status != 0:
            file.seek(start)
            tail = "\n".join(file.read().splitlines()[-40:])
            raise SetupError(f"{what} failed with exit status {status}; all of it is in {log.relative_to(ROOT)}:\n{tail}")


def answer(command: list[str | Path], environment: dict[str, str] | None = None, text: str = "") -> str | None:
    """What a command prints, or None if it cannot be run or fails."""
    try:
        done = subprocess.run(command, env=environment, input=text, capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def version_in(text: str | None, pattern: str = r"(\d+)\.(\d+)") -> tuple[int, ...]:
    found = re.search(pattern, text or "")
    return tuple(map(int, found.groups())) if found else ()


# --------------------------------------------------------------------------------- Debian --


class Debian:
    """apt-get, updated at most once."""

    updated = False

    @staticmethod
    def can_install() -> bool:
        return is_root() and shutil.which("apt-get") is not None

    def install(self, names: list[str], environment: dict[str, str]) -> None:
        quiet = {**environment, "DEBIAN_FRONTEND": "noninteractive"}
        say(f"installing {' '.join(names)}")
        if not self.updated:
            run(["apt-get", "-q", "update"], quiet, "apt-get update")
            self.updated = True
        command = ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=300", "install", "-y", "--no-install-recommends"]
        run([*command, *names], quiet, "apt-get install")

    @staticmethod
    def unpack(names: list[str], environment: dict[str, str]) -> None:
        """Without root: headers and static libraries need no more than being there."""
        say(f"unpacking {' '.join(names)} into {UNPACKED.relative_to(ROOT)}")
        UNPACKED.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BUILD) as folder:
            script = 'cd "$1"; shift; apt-get -q download "$@" && for deb in *.deb; do dpkg -x "$deb" "$0"; done'
            run(["sh", "-ec", script, UNPACKED, folder, *names], environment, "apt-get download")


def absent(packages: tuple[Package, ...], machine: Machine) -> list[Package]:
    def has_header(package: Package) -> bool:
        compiler = [package.compiler] if package.compiler else compiler_of(machine)
        program = f"#if !__has_include(<{package.header}>)\n#error\n#endif\n"
        return answer([*compiler, "-x", "c++", "-E", "-"], machine.environment, program) is not None

    return [
        p for p in packages if (p.header and not has_header(p)) or (p.program and not machine.which(p.program))
    ]


def get_packages(packages: tuple[Package, ...], machine: Machine, debian: Debian) -> None:
    if UNPACKED.exists():
        use_unpacked(machine)
    lacking = absent(packages, machine)
    if lacking and debian.can_install():
        debian.install([p.name for p in lacking], machine.environment)
    elif shutil.which("apt-get") and any(p.header and not p.compiler for p in lacking):
        debian.unpack([p.name for p in lacking if p.header and not p.compiler], machine.environment)
        use_unpacked(machine)
    lacking = absent(packages, machine)
    needed = [p.name for p in lacking if not p.purpose]
    if needed:
        raise SetupError(f"please install {' '.join(needed)} (the names are Debian's); nothing builds without")
    machine.missing += lacking


def use_unpacked(machine: Machine) -> None:
    for variable, value in (("CMAKE_PREFIX_PATH", UNPACKED / "usr"), ("CPATH", UNPACKED / "usr/include")):
        before = machine.environment.get(variable, "").split(os.pathsep)
        if str(value) not in before:
            machine.environment[variable] = os.pathsep.join(filter(None, [str(value), *before]))


# ------------------------------------------------------------------------------ compilers --


def compiler_of(machine: Machine) -> list[str]:
    """As CMake chooses: CXX, or c++ and so on from PATH."""
    if machine.environment.get("CXX"):
        return machine.environment["CXX"].split()
    found = [name for name in ("c++", "g++", "clang++") if machine.which(name)]
    return found[:1]


def get_compiler(machine: Machine, debian: Debian) -> None:
    if not compiler_of(machine) and debian.can_install():
        debian.install(["g++"], machine.environment)
    compiler = compiler_of(machine)
    if not compiler:
        raise SetupError("no C++ compiler: please install g++ (9 or newer), or set CC and CXX")
    program = "#include <charconv>\nint main() { if constexpr (sizeof(void*) == 8) return 0; return 1; }\n"
    with tempfile.TemporaryDirectory() as folder:
        command = [*compiler, "-std=c++17", "-x", "c++", "-", "-o", Path(folder) / "probe"]
        if answer(command, machine.environment, program) is None:
            raise SetupError(
                f"{' '.join(compiler)} does not compile and link a C++17 program: "
                "please install g++ (9 or newer), or set CC and CXX to a newer compiler"
            )
    first_line = (answer([*compiler, "--version"], machine.environment) or "").splitlines()
    say(f"compiler: {first_line[0] if first_line else ' '.join(compiler)}")


def get_wheels(wheels: list[str], machine: Machine, debian: Debian) -> None:
    say(f"installing {' '.join(wheels)} into {VENV.relative_to(ROOT)}")
    run([*pip(machine, debian), "install", "-q", *wheels], machine.environment, "pip install")


def pip(machine: Machine, debian: Debian) -> list[str | Path]:
    """A pip that installs into build/venv. Debian splits venv's own pip off into python3-venv."""
    python = VENV / "bin" / "python"
    if answer([python, "-m", "pip", "--version"]):
        return [python, "-m", "pip"]
    shutil.rmtree(VENV, ignore_errors=True)
    has_own = [sys.executable, "-c", "import ensurepip"]
    if answer(has_own) is None and debian.can_install():
        debian.install(["python3-venv"], machine.environment)
    if answer(has_own) is not None:
        run([sys.executable, "-m", "venv", VENV], machine.environment, "python3 -m venv")
        return [python, "-m", "pip"]
    if answer([sys.executable, "-m", "pip", "--python", sys.executable, "--version"]) is not None:
        run([sys.executable, "-m", "venv", "--without-pip", VENV], machine.environment, "python3 -m venv")
        return [sys.executable, "-m", "pip", "--python", python]
    raise SetupError("python3 has neither ensurepip nor pip: please install python3-venv (the name is Debian's)")


def get_cmake_and_ninja(machine: Machine, debian: Debian) -> None:
    def lacking() -> list[str]:
        cmake = version_in(answer(["cmake", "--version"], machine.environment)) >= OLDEST_CMAKE
        ninja = answer(["ninja", "--version"], machine.environment) is not None
        return [wheel for wheel, there in ((CMAKE_WHEEL, cmake), (NINJA_WHEEL, ninja)) if not there]

    if lacking() and VENV.exists():
        machine.put_first_on_path(VENV / "bin")
    if wheels := lacking():
        get_wheels(wheels, machine, debian)
        machine.put_first_on_path(VENV / "bin")
    if still := lacking():
        raise SetupError(f"{' '.join(still)} installed, but it does not run")
    say(f"cmake: {machine.which('cmake')}, ninja: {machine.which('ninja')}")


def get_clang_format(machine: Machine, debian: Debian) -> None:
    """tools/check_style asks for this version: the one on PATH, or CLANG_FORMAT."""
    major = version_in(CLANG_FORMAT_WHEEL)[:1]
    if version_in(answer(["clang-format", "--version"], machine.environment))[:1] == major:
        return
    ours = VENV / "bin" / "clang-format"
    if version_in(answer([ours, "--version"]))[:1] != major:
        get_wheels([CLANG_FORMAT_WHEEL], machine, debian)
    machine.environment["CLANG_FORMAT"] = str(ours)


# ----------------------------------------------------------------------------------- CUDA --


def cuda_compiler_here(machine: Machine) -> Path | None:
    """CUDACXX, CUDA_HOME or PATH, if new enough."""
    environment = machine.environment
    named = [environment["CUDACXX"]] if environment.get("CUDACXX") else []
    named += [environment[v] + "/bin/nvcc" for v in ("CUDA_HOME", "CUDA_PATH") if environment.get(v)]
    for name in (*named, "nvcc"):
        found = machine.which(name)
        if found is None:
            continue
        candidate = Path(found).absolute()
        version = version_in(answer([candidate, "--version"], environment), r"release (\d+)\.(\d+)")
        if version >= OLDEST_CUDA:
            return candidate
        older = ".".join(map(str, version)) or "nothing that answers"
        say(f"not using {candidate}: it is {older}, and 12.8 is the oldest that will do")
    return None


def get_cuda(machine: Machine, debian: Debian) -> None:
    compiler = cuda_compiler_here(machine)
    if compiler is None:
        toolkit, stamp = CUDA / "nvidia" / "cu13", CUDA / "wheels.txt"
        compiler = toolkit / "bin" / "nvcc"
        if not (stamp.exists() and stamp.read_text().split() == list(CUDA_WHEELS)):
            say(f"installing the CUDA compiler into {CUDA.relative_to(ROOT)} (300 MB; not with --host-only)")
            with tempfile.TemporaryDirectory(dir=BUILD) as folder:
                whole = Path(folder) / "cuda"
                command = [*pip(machine, debian), "install", "-q", "--no-deps", "--target", whole, *CUDA_WHEELS]
                run(command, machine.environment, "installing the CUDA compiler (--host-only does without)")
                shutil.rmtree(CUDA, ignore_errors=True)
                whole.rename(CUDA)
            (toolkit / "lib64").symlink_to("lib")  # where nvcc and CMake look for libraries
            stamp.write_text("\n".join(CUDA_WHEELS) + "\n")
    version = version_in(answer([compiler, "--version"], machine.environment), r"release (\d+)\.(\d+)")
    if not version:
        raise SetupError(f"{compiler} does not run (--host-only does without)")
    say(f"CUDA compiler: {compiler}, version {'.'.join(map(str, version))}")
    machine.cuda_compiler = compiler
    machine.environment["CUDACXX"] = str(compiler)


def find_gpus(machine: Machine) -> None:
    query = ["nvidia-smi", "--query-gpu=name,compute_cap", "--format=csv,noheader"]
    listed = answer(query, machine.environment)
    if listed is None:
        machine.gpu_text = "none (no nvidia-smi that answers)"
        return
    for line in listed.splitlines():
        name, _, capability = line.rpartition(",")
        version = version_in(capability)
        if version >= OLDEST_CAPABILITY:
            machine.gpus.append(Gpu(name.strip(), "{}{}-real".format(*version)))
    machine.gpu_text = ", ".join(gpu.name for gpu in machine.gpus) or "none of compute capability 8.0 or newer"


# ------------------------------------------------------------------------------- together --


@contextmanager
def alone() -> Iterator[None]:
    """Two commands at once would install and build over each other."""
    BUILD.mkdir(exist_ok=True)
    with (BUILD / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("waiting for another command of this tree to end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def set_up(host_only: bool, for_tests: bool) -> Machine:
    machine, debian = Machine(), Debian()
    BUILD.mkdir(exist_ok=True)
    get_compiler(machine, debian)
    get_packages(BUILD_PACKAGES, machine, debian)
    get_cmake_and_ninja(machine, debian)
    if for_tests:
        get_packages(TEST_PACKAGES, machine, debian)
        get_packages((FUZZER,), machine, debian)
        get_clang_format(machine, debian)
    if host_only:
        machine.gpu_text = "not looked for (--host-only)"
    else:
        get_cuda(machine, debian)
        find_gpus(machine)
    say(f"GPU: {machine.gpu_text}")
    for package in machine.missing:
        say(f"missing: {package.name}, so not tested: {package.purpose}")
    return machine


def configure(machine: Machine, preset: str) -> Path:
    folder = BUILD / preset
    command: list[str | Path] = ["cmake", "--preset", preset]
    if preset == "dev":
        architectures = ";".join(sorted({gpu.architecture for gpu in machine.gpus})) or DEFAULT_ARCHITECTURE
        command += ["-DBITEXACT_CUDA=ON", f"-DBITEXACT_CUDA_ARCHITECTURES={architectures}"]
    cache = folder / "CMakeCache.txt"
    if cache.exists():
        # CMake never changes the compiler or the place of a configured tree.
        text = cache.read_text()
        moved = f"CMAKE_HOME_DIRECTORY:INTERNAL={ROOT}\n" not in text
        other_compiler = preset == "dev" and f"={machine.cuda_compiler}\n" not in text
        command += ["--fresh"] if moved or other_compiler else []
    run(command, machine.environment, f"configuring {preset}", folder / "commands.log")
    return folder


def build(machine: Machine, preset: str, targets: list[str] | None = None) -> Path:
    folder = configure(machine, preset)
    print(f"building {folder.relative_to(ROOT)}", flush=True)
    command = ["cmake", "--build", folder, "--parallel", str(os.cpu_count() or 1)]
    for target in targets or []:
        command += ["--target", target]
    run(command, machine.environment, f"building {preset}", folder / "commands.log")
    return folder
