"""Compiles the public header as every version of C and C++ it promises, and checks the rules of its text.

Each compiler is a test of its own, so that one which this machine lacks is absent from the list of tests
instead of looking passed.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

import header_model

HERE = Path(__file__).resolve().parent
C_VERSIONS = ("c99", "c11", "c17", "c2x")
CXX_VERSIONS = ("c++11", "c++14", "c++17", "c++20", "c++2b")
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
FORBIDDEN = ("enum", "bool", "_Bool", "size_t", "long", "short", "char", "union", "inline", "float", "double", "int")
LINE_LIMIT = 600


def compilations(cuda_include: str | None) -> list[tuple[str, list[str]]]:
    every = [
        ("uses_header.c", []),
        ("uses_header.c", ["-DBITEXACT_NO_PROTOTYPES"]),
        ("uses_header.c", ["-DBITEXACT_NODISCARD=", "-DBITEXACT_EXPORT="]),
        ("pinned.c", ["-Wpadded"]),
    ]
    if cuda_include:
        system = ["-isystem", cuda_include]
        every += [("uses_cuda.c", system), ("uses_cuda.c", [*system, "-DCUDA_FIRST"])]
    return every


def compile_matrix(compiler: str, include: Path, generated: Path, cuda_include: str | None) -> list[str]:
    failures = []
    versions = [("c", version) for version in C_VERSIONS] + [("c++", version) for version in CXX_VERSIONS]
    for language, version in versions:
        for source, extra in compilations(cuda_include):
            command = [compiler, "-x", language, f"-std={version}", *STRICT, *extra, f"-I{include}", f"-I{generated}"]
            command += ["-c", str(HERE / source), "-o", "/dev/null"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                failures.append(f"{' '.join(command)}\n{done.stderr}")
    print(f"{compiler}: {len(versions) * len(compilations(cuda_include))} compilations, {len(failures)} failed")
    return failures


def text_rules(header: header_model.Header) -> list[str]:
    failures = []
    lines = header.text.count("\n")
    if lines > LINE_LIMIT:
        failures.append(f"the header has {lines} lines; at most {LINE_LIMIT}")
    includes = sorted(re.findall(r"#\s*include\s*(\S+)", header.text))
    if includes != ["<stddef.h>", "<stdint.h>"]:
        failures.append(f"the header includes {includes}; only <stddef.h> and <stdint.h>")
    code = header_model.without_comments(header.text)
    code = re.sub(r"^#.*?(?<!\\)$", "", code, flags=re.MULTILINE | re.DOTALL)
    code = code.replace("const char*", "")  # text, the one use of char
    for word in FORBIDDEN:
        if re.search(rf"\b{word}\b", code):
            failures.append(f"the header uses '{word}'; only fixed-width integers and pointers cross the ABI")
    for name, members in header.structs.items():
        if members[:1] != ["struct_size"]:
            failures.append(f"{name} does not start with struct_size")
    if re.search(r"\w\s*:\s*\d+\s*;", code):
        failures.append("the header has a bit-field")
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--header", type=Path, required=True)
    parser.add_argument("--generated", type=Path, help="folder of every_name.h; with --compiler")
    parser.add_argument("--compiler", help="compile with this one; without it the text is checked")
    parser.add_argument("--cuda-include", help="folder of cuda.h")
    arguments = parser.parse_args()
    if arguments.compiler:
        failures = compile_matrix(
            arguments.compiler, arguments.header.parent, arguments.generated, arguments.cuda_include
        )
    else:
        failures = text_rules(header_model.read(arguments.header))
    for failure in failures:
        print(f"FAILED: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
