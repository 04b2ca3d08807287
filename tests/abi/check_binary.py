"""What the shared library asks of the machine that loads it, read from its dynamic section."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

import header_model

HERE = Path(__file__).resolve().parent
SONAME = "libbitexact.so.1"
# The newest glibc that our own objects need, wherever they are built. What the toolchain's static runtimes
# add on top depends on the machine that builds (glibc 2.36 with gcc 12 on Debian 12): build releases on an
# old one.
OWN_GLIBC = (2, 34)


def output_of(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def dynamic_failures(library: Path) -> list[str]:
    dynamic = re.findall(r"\((\w+)\)\s+(.*)", output_of("readelf", "-dW", str(library)))
    failures = []
    allowed = header_model.read_list(HERE / "needed.txt")
    needed = [re.search(r"\[(.*)\]", value).group(1) for tag, value in dynamic if tag == "NEEDED"]
    failures += [f"it needs {name}; allowed: {', '.join(allowed)}" for name in needed if name not in allowed]
    if not needed:
        failures.append("no NEEDED entry was found, not even libc")
    if ("SONAME", f"Library soname: [{SONAME}]") not in dynamic:
        failures.append(f"its soname is not {SONAME}")
    failures += [f"it has a search path: {tag} {value}" for tag, value in dynamic if tag in ("RPATH", "RUNPATH")]
    flags = " ".join(value for tag, value in dynamic if tag in ("FLAGS", "FLAGS_1", "SYMBOLIC"))
    if "NODELETE" not in flags:
        failures.append("it is not linked with -z nodelete, so dlclose could unmap the function table")
    if any(tag == "TEXTREL" for tag, _ in dynamic):
        failures.append("it has text relocations")
    return failures


def own_relocation_failures(library: Path) -> list[str]:
    """Our own symbols must be bound inside the library: another copy in the process could take their place."""
    rows = output_of("readelf", "-rW", str(library))
    names = sorted(set(re.findall(r"\b(bitexact_\w+)@", rows)))
    if not names:
        return []
    return [f"its own references to {', '.join(names)} can be taken over from outside (link with -Bsymbolic)"]


def glibc_failures(library: Path, archive: Path) -> list[str]:
    imported = re.findall(r"U (\w+)@GLIBC_([\d.]+)", output_of("nm", "-D", str(library)))
    ours = set(re.findall(r"^\s+[Uw] (\w+)$", output_of("nm", str(archive)), re.MULTILINE))
    if not imported or not ours:
        return ["no imported symbol was found"]
    version = {name: tuple(map(int, text.split("."))) for name, text in imported}
    failures = [
        f"{name} needs glibc {'.'.join(map(str, version[name]))}; at most {'.'.join(map(str, OWN_GLIBC))}"
        for name in sorted(ours & version.keys()) if version[name] > OWN_GLIBC
    ]
    newest = max(version, key=lambda name: version[name])
    print(f"glibc {'.'.join(map(str, version[newest]))} is needed in all, by {newest}")
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--archive", type=Path, required=True, help="the same objects as a static library")
    arguments = parser.parse_args()
    failures = dynamic_failures(arguments.library)
    failures += own_relocation_failures(arguments.library)
    failures += glibc_failures(arguments.library, arguments.archive)
    for failure in failures:
        print(f"FAILED: {arguments.library.name}: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
