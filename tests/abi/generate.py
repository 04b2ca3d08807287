"""Writes every_name.h: lists of all that the header declares, as macros that apply a macro to each name.

Tests in C then walk over everything there is, and a new declaration is tested without being listed again.
"""

from __future__ import annotations

import sys
from pathlib import Path

import header_model


def each(title: str, rows: list[str]) -> str:
    return f"#define {title}(X) \\\n" + " \\\n".join(f"  {row}" for row in rows) + "\n"


def short(name: str) -> str:
    return name.removeprefix("bitexact_")


def main() -> None:
    header = header_model.read(Path(sys.argv[1]))
    statuses = [name for name in header.constants if name.startswith("BITEXACT_STATUS_")]
    parts = [
        "/* Written by tests/abi/generate.py from include/bitexact.h. */\n",
        each("EVERY_STRUCT", [f"X({name}, {short(name).upper()})" for name in header.initialisers]),
        each("EVERY_CONSTANT", [f"X({name})" for name in header.constants]),
        each("EVERY_STATUS", [f'X({name}, "{name.removeprefix("BITEXACT_STATUS_")}")' for name in statuses]),
        each("EVERY_FUNCTION", [f"X({name})" for name in header.functions]),
        each("EVERY_TABLE_MEMBER", [f"X({name})" for name in header.table]),
    ]
    Path(sys.argv[2]).write_text("\n".join(parts))


if __name__ == "__main__":
    main()
