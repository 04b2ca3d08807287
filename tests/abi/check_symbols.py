"""One list of functions everywhere: the library's exports, the version script, the header's prototypes and
function types, the function table, and symbols.txt. Also that pinned.c pins all there is to pin."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

import header_model

HERE = Path(__file__).resolve().parent
VERSION_NODE = "BITEXACT_1"


def exports_of(library: Path) -> tuple[list[str], list[str]]:
    """The functions defined, and whatever else is exported or lacks our version."""
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", "--with-symbol-versions", str(library)],
        capture_output=True, text=True, check=True,
    ).stdout
    functions, others = [], []
    for line in listing.splitlines():
        kind, name = line.split()[-2:]
        if kind == "A" and name.split("@")[0] == VERSION_NODE:
            continue
        if kind == "T" and name.endswith(f"@@{VERSION_NODE}"):
            functions.append(name.split("@")[0])
        else:
            others.append(line)
    return functions, others


def exported_by_map(path: Path) -> list[str]:
    text = header_model.without_comments(path.read_text())
    node = re.fullmatch(rf"\s*{VERSION_NODE} \{{\s*global:(.*?)local:\s*\*;\s*\}};\s*", text, re.DOTALL)
    return node.group(1).replace(";", " ").split() if node else []


def difference(what: str, found: list[str], expected: list[str]) -> list[str]:
    failures = [f"{what}: {name} is missing" for name in sorted(set(expected) - set(found))]
    failures += [f"{what}: {name} is not in symbols.txt" for name in sorted(set(found) - set(expected))]
    if len(found) != len(set(found)):
        failures.append(f"{what}: a name is listed twice")
    return failures


def unpinned(header: header_model.Header) -> list[str]:
    pinned = (HERE / "pinned.c").read_text()
    lines = [f"STRUCT({name}, " for name in header.structs]
    lines += [f"MEMBER({name}, {member}, " for name, members in header.structs.items() for member in members]
    changing = re.compile(r"BITEXACT_(VERSION|API_VERSION)")
    lines += [f"CONSTANT({name}, " for name in header.constants if not changing.match(name)]
    return [f"pinned.c lacks {line}...)" for line in lines if line not in pinned]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--header", type=Path, required=True)
    parser.add_argument("--map", type=Path, required=True)
    parser.add_argument("--library", type=Path, required=True)
    arguments = parser.parse_args()

    expected = header_model.read_list(HERE / "symbols.txt")
    header = header_model.read(arguments.header)
    functions, others = exports_of(arguments.library)
    types = [name.removesuffix("_fn") for name in header.function_types]
    in_table = ["bitexact_" + member for member in header.table] + ["bitexact_get_api"]

    failures = [f"{arguments.library.name} exports what is no function of {VERSION_NODE}: {line}" for line in others]
    failures += difference(arguments.library.name, functions, expected)
    failures += difference(arguments.map.name, exported_by_map(arguments.map), expected)
    failures += difference("prototypes of the header", header.functions, expected)
    failures += difference("function types of the header", types, expected)
    failures += difference("bitexact_api and bitexact_get_api", in_table, expected)
    failures += unpinned(header)
    for failure in failures:
        print(f"FAILED: {failure}", file=sys.stderr)
    print(f"{len(expected)} functions in six lists, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
