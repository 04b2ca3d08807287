"""Compares the CUDA calls that the library's objects make with those that a test can make to fail."""

import argparse
import re
import subprocess
import sys

# Report an error, and so cannot have one.
CANNOT_FAIL = {"cudaGetErrorString"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--archive", required=True)
    parser.add_argument("--wrapped", nargs="+", required=True)
    arguments = parser.parse_args()
    listed = subprocess.run(["nm", "-u", arguments.archive], capture_output=True, text=True, check=True).stdout
    made = set(re.findall(r"^ +U (cuda[A-Z]\w+|cu[A-Z]\w+)$", listed, re.M)) - CANNOT_FAIL
    missing = sorted(made - set(arguments.wrapped))
    if not made:
        print("the archive calls no CUDA at all: is it the right one?")
        return 1
    for name in missing:
        print(f"{name} is called by the library, but tests/faults/wrap_cuda.cpp cannot make it fail")
    print(f"{len(made)} calls: {', '.join(sorted(made))}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
