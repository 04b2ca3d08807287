"""Writes a C file that defines every function inside bitexact under its own name, as a trap.

Another library in the process may export any of these names (an older copy of bitexact, a framework that
links it statically). Loaded first and with RTLD_GLOBAL, it wins every name that is looked up by the loader.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PREFACE = """/* Written by tests/abi/generate_impostor.py. */
#include <stdint.h>
int impostor_calls = 0;
int64_t impostor_trap(void);
int64_t impostor_trap(void) { return ++impostor_calls; }
"""


def main() -> None:
    listing = subprocess.run(["nm", "--defined-only", sys.argv[1]], capture_output=True, text=True, check=True).stdout
    # Functions only, strong and weak; names of section-local copies hold a dot.
    names = sorted(set(re.findall(r"^[0-9a-f]+ [TWVu] ([\w$]+)$", listing, re.MULTILINE)))
    parts = [PREFACE]
    for number, name in enumerate(names):
        parts.append(f'int64_t trap_{number}(void) __asm__("{name}");')
        parts.append(f"int64_t trap_{number}(void) {{ return impostor_trap(); }}")
    Path(sys.argv[2]).write_text("\n".join(parts) + "\n")
    print(f"{len(names)} traps")
    if len(names) < 50:
        sys.exit("too few names: the archive was not read as expected")


if __name__ == "__main__":
    main()
