"""Every name that the first version exports is exported still: check_v1_symbols.py SYMBOLS LIBRARY"""

import subprocess
import sys
from pathlib import Path


def main() -> int:
    listed, library = sys.argv[1:]
    frozen = {line for line in Path(listed).read_text().splitlines() if line and not line.startswith("#")}
    rows = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    exported = {line.split()[-1].split("@")[0] for line in rows.splitlines() if line}
    for name in sorted(frozen - exported):
        print(f"{name} was exported by the first version and is gone")
    return 1 if frozen - exported or not frozen else 0


if __name__ == "__main__":
    sys.exit(main())
