"""What include/bitexact.h declares, read from its text: the one source that the other ABI checks compare with.

The header is written to be regular, so patterns suffice; symbols.txt guards against a pattern that finds
nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Header:
    text: str
    functions: list[str]  # prototypes, in order
    function_types: list[str]  # bitexact_..._fn, except the log callback
    structs: dict[str, list[str]]  # defined structs and their members, in order
    constants: dict[str, str]  # numeric macros and their spelling
    initialisers: dict[str, str]  # bitexact_x -> BITEXACT_X_INIT
    table: list[str]  # members of bitexact_api that are functions


def without_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)


def members_of(body: str) -> list[str]:
    names = []
    for declaration in body.split(";"):
        for part in declaration.split(","):
            match = re.search(r"(\w+)\s*(\[\d+\])?\s*$", part)
            if match:
                names.append(match.group(1))
    return names


def read(path: Path) -> Header:
    text = path.read_text()
    code = without_comments(text)
    prototypes = code.split("#ifndef BITEXACT_NO_PROTOTYPES", 1)[1]
    structs = {
        match.group(1): members_of(match.group(2))
        for match in re.finditer(r"typedef struct (bitexact_\w+) \{(.*?)\} \1;", code, re.DOTALL)
    }
    return Header(
        text=text,
        functions=re.findall(r"\b(bitexact_\w+)\([^()]*\)\s*BITEXACT_NOEXCEPT;", prototypes),
        function_types=[name for name in re.findall(r"\(\*(bitexact_\w+_fn)\)", code) if name != "bitexact_log_fn"],
        structs=structs,
        constants=dict(re.findall(r"^#define (BITEXACT_\w+) \(?(-?\d+u?)\)?\s*$", code, re.MULTILINE)),
        initialisers={
            "bitexact_" + name.lower(): f"BITEXACT_{name}_INIT"
            for name in re.findall(r"^#define BITEXACT_(\w+)_INIT\b", code, re.MULTILINE)
        },
        table=structs["bitexact_api"][2:],
    )


def read_list(path: Path) -> list[str]:
    lines = (line.split("#")[0].strip() for line in path.read_text().splitlines())
    return [line for line in lines if line]
