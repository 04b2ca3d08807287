"""Builds bitexact and bitexact-certify, and runs it: whole input domains through every shipped kernel of one
device. Options that are not listed here are its own; -- --help shows them."""

from __future__ import annotations

import argparse
import os
import sys

import machine


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/certify", description=__doc__)
    parser.add_argument("--host-only", action="store_true", help="build without CUDA, even if there is a GPU")
    own, passed_on = parser.parse_known_args()
    try:
        with machine.alone():
            here = machine.set_up(own.host_only, for_tests=False)
            folder = machine.build(here, here.preset, ["bitexact_certify"])
    except machine.SetupError as error:
        sys.exit(f"tools/certify: {error}")
    program = folder / "tools" / "certificate" / "bitexact-certify"
    # In place of this process, so that an interrupt reaches the program alone.
    sys.stdout.flush()
    os.execve(program, [str(program), *[word for word in passed_on if word != "--"]], here.environment)


if __name__ == "__main__":
    sys.exit(main())
