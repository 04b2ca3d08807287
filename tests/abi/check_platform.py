"""A target that the interface is not for is refused when the build is configured: check_platform.py SOURCE CMAKE

What the compiler would find out is told by hand, so that no cross compiler is needed.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

REFUSED = {
    "64-bit target": "set(CMAKE_SIZEOF_VOID_P 4)",
    "little-endian": "set(CMAKE_CXX_BYTE_ORDER BIG_ENDIAN)",
    "needs Linux": "set(CMAKE_SYSTEM_NAME Windows)",
}
AS_IT_IS = {"CMAKE_SIZEOF_VOID_P": "8", "CMAKE_CXX_BYTE_ORDER": "LITTLE_ENDIAN", "CMAKE_SYSTEM_NAME": "Linux"}


def configured(cmake: str, source: str, change: str) -> subprocess.CompletedProcess:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "try.cmake"
        lines = [f"set({name} {value})" for name, value in AS_IT_IS.items()]
        lines += [f"set(PROJECT_SOURCE_DIR {source})", change, f"include({source}/cmake/platform.cmake)"]
        script.write_text("\n".join(lines))
        return subprocess.run([cmake, "-P", script], capture_output=True, text=True)


def main() -> int:
    source, cmake = sys.argv[1:]
    failures = []
    if configured(cmake, source, "").returncode != 0:
        failures.append("this machine is refused")
    for text, change in REFUSED.items():
        result = configured(cmake, source, change)
        if result.returncode == 0 or text not in result.stderr:
            failures.append(f"{change} is not refused with a text that says {text!r}")
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
