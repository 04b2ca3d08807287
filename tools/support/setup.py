"""Sets up what this machine lacks to build, show and test bitexact."""

from __future__ import annotations

import argparse
import sys

import machine


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/setup", description=__doc__)
    parser.add_argument("--host-only", action="store_true", help="without the CUDA compiler")
    parser.add_argument("--for-tests", action="store_true", help="also what only the tests need")
    arguments = parser.parse_args()
    try:
        with machine.alone():
            machine.set_up(arguments.host_only, arguments.for_tests)
    except machine.SetupError as error:
        sys.exit(f"tools/setup: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
