"""Compiles the C in README.md, and checks that every relative link in the Markdown files leads to a file."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

# What the README's lines stand in.
AROUND = """
#include <bitexact.h>
#include <stdio.h>
int run_eager(void);
int use(int64_t tokens, int64_t width, uint16_t* packed, uint16_t* out, bitexact_stream stream);
int use(int64_t tokens, int64_t width, uint16_t* packed, uint16_t* out, bitexact_stream stream) {
%s
return 0;
}
"""


def compile_failures(root: Path, compiler: str) -> list[str]:
    blocks = re.findall(r"^```c\n(.*?)^```", (root / "README.md").read_text(), re.M | re.S)
    if len(blocks) != 1:
        return [f"README.md has {len(blocks)} blocks of C, expected 1"]
    command = [compiler, "-xc", "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{root / 'include'}"]
    done = subprocess.run(
        [*command, "-c", "-o", "/dev/null", "-"], input=AROUND % blocks[0], capture_output=True, text=True
    )
    lines = (root / "README.md").read_text().split("```c\n")[0].count("\n")
    failures = [] if done.returncode == 0 else [done.stderr]
    if lines > 30:
        failures.append(f"the first code is on line {lines} of README.md, at most 30")
    return failures


def dead_links(root: Path) -> list[str]:
    documents = [*root.glob("*.md"), *root.glob("docs/*.md"), *root.glob("docs/articles/*.md")]
    failures = []
    for document in documents:
        for target in re.findall(r"\]\(([^)#:\s]+)\)", document.read_text()):
            if not (document.parent / target).exists():
                failures.append(f"{document.relative_to(root)} links to {target}, which is not there")
    return failures


def main() -> int:
    root, compiler = Path(sys.argv[1]), sys.argv[2]
    failures = compile_failures(root, compiler) + dead_links(root)
    for failure in failures:
        print(f"FAILED: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
