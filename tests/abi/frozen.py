"""Compares the binary interface of a library with the frozen first version, or freezes it.

    frozen.py check LIBRARY HEADERS    against v1/libbitexact.xml; new functions, and members behind a struct's
                                       first end, are no difference
    frozen.py freeze LIBRARY HEADERS   writes v1/libbitexact.xml: only while the version is 0, or for a new soname
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

FROZEN = Path(__file__).parent / "v1" / "libbitexact.xml"


def described(library: str, headers: str) -> str:
    text = subprocess.run(
        ["abidw", "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--drop-private-types",
         "--headers-dir", headers, library],
        capture_output=True, text=True, check=True,
    ).stdout
    return re.sub(r" path='[^']*/(src/[^']*)'", r" path='\1'", text)


STRUCT = r"<class-decl name='(bitexact_\w+)' size-in-bits='(\d+)' is-struct='yes'.*?</class-decl>"
MEMBER = r" *<data-member access='public' layout-offset-in-bits='(\d+)'>.*?<.data-member>\n"


def without_growth(now: str, frozen: str) -> str:
    """The description without what structs have behind their first end, which abidiff cannot be told to allow."""
    sizes = {match[1]: int(match[2]) for match in re.finditer(STRUCT, frozen, re.S)}

    def cut(match: re.Match[str]) -> str:
        size = sizes.get(match[1], int(match[2]))
        kept = re.sub(MEMBER, lambda member: "" if int(member[1]) >= size else member[0], match[0], flags=re.S)
        return kept.replace(f"size-in-bits='{match[2]}'", f"size-in-bits='{min(size, int(match[2]))}'", 1)

    return re.sub(STRUCT, cut, now, flags=re.S)


def main() -> int:
    command, library, headers = sys.argv[1:]
    now = described(library, headers)
    if "bitexact_rope_params" not in now:
        print(f"{library} says nothing about its types: were src/api*.cpp compiled with -g?")
        return 1
    if command == "freeze":
        FROZEN.write_text(now)
        return 0
    with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
        file.write(without_growth(now, FROZEN.read_text()))
        file.flush()
        found = subprocess.run(["abidiff", "--no-added-syms", FROZEN, file.name], capture_output=True, text=True)
    print(found.stdout + found.stderr, end="")
    return found.returncode


if __name__ == "__main__":
    sys.exit(main())
