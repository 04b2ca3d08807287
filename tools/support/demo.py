"""Builds bitexact and runs both operations on tensors captured from a transformers model, on the host and on
every CUDA device; every output bit is compared with PyTorch's. Exits non-zero if one differs."""

from __future__ import annotations

import argparse
import subprocess
import sys

import machine


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/demo", description=__doc__)
    parser.add_argument("--host-only", action="store_true", help="without CUDA, even if there is a GPU")
    parser.add_argument("--data", help="folder with another capture (default: tests/golden/data)")
    arguments = parser.parse_args()
    try:
        with machine.alone():
            here = machine.set_up(arguments.host_only, for_tests=False)
            folder = machine.build(here, here.preset, ["bitexact_demo"])
    except machine.SetupError as error:
        sys.exit(f"tools/demo: {error}")
    command = [folder / "tools" / "bitexact_demo"] + (["--data", arguments.data] if arguments.data else [])
    return subprocess.run(command, env=here.environment).returncode


if __name__ == "__main__":
    sys.exit(main())
