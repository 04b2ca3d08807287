"""The checks find what they are there for: test_checks.py COMPILE_COMMANDS.json

Each test plants one defect and wants the check to fail, with the defect named.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parent
COMMANDS = Path()  # set below


def check(name: str, *arguments: str | Path) -> tuple[int, str]:
    command = [sys.executable, "-B", TOOLS / name, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


class Flags(unittest.TestCase):
    entries: list[dict[str, str]]

    def setUp(self) -> None:
        self.entries = json.loads(COMMANDS.read_text())

    def result(self) -> tuple[int, str]:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(self.entries, file)
            file.flush()
            return check("check_flags", file.name)

    def plant(self, where: str, before: str, flag: str) -> None:
        """Puts the flag before or, with nothing named, behind all others of the first such source."""
        entry = next(e for e in self.entries if where in e["file"])
        at = f" {before}" if before else " -o "
        self.assertIn(at, entry["command"])
        entry["command"] = entry["command"].replace(at, f" {flag}{at}", 1)

    def test_as_built(self) -> None:
        status, output = self.result()
        self.assertEqual(status, 0, output)

    def test_loose_flags(self) -> None:
        for where in ("/src/host/fused_host_isa.cpp", "/src/api.cpp", "/tests/", "/tools/"):
            for flag in (
                "-ffast-math",
                "-Ofast",
                "-ffp-contract=fast",
                "-ffp-contract=on",
                "-funsafe-math-optimizations",
                "-fassociative-math",
                "-freciprocal-math",
                "-ffinite-math-only",
                "-fno-signed-zeros",
                "-fno-math-errno",
                "-fsingle-precision-constant",
                "-fexcess-precision=fast",
                "-mdaz-ftz",
                "-mfpmath=387",
                "-fdenormal-fp-math=positive-zero",
                "-ffp-model=fast",
            ):
                with self.subTest(where=where, flag=flag):
                    self.setUp()
                    self.plant(where, "-o ", flag)
                    status, output = self.result()
                    self.assertEqual(status, 1, output)
                    self.assertIn(f"{flag} is not allowed", output)

    def test_loose_flags_before_ours(self) -> None:
        self.plant("/src/host/fused_host_isa.cpp", "-fno-fast-math", "-ffast-math")
        self.assertEqual(self.result()[0], 1)

    def test_ours_missing(self) -> None:
        for where, flag in (
            ("/src/host/fused_host_isa.cpp", "-ffp-contract=off"),
            ("/src/host/fused_host_isa.cpp", "-fno-fast-math"),
            ("/tests/reference/", "-ffp-contract=off"),
        ):
            with self.subTest(where=where, flag=flag):
                self.setUp()
                entry = next(e for e in self.entries if where in e["file"])
                self.assertIn(f" {flag} ", entry["command"])
                entry["command"] = entry["command"].replace(f" {flag} ", " ")
                status, output = self.result()
                self.assertEqual(status, 1, output)
                self.assertIn("must end with", output)

    def test_kernels(self) -> None:
        """A host-only build has none, so that one is made up."""
        ours = "--fmad=false --ftz=false --prec-div=true --prec-sqrt=true"
        file = str(TOOLS.parent / "kernels" / "fused_rope.cu")
        for flags, expected in (
            (ours, 0),
            (f"{ours} -Xcompiler=-Wall,-Wextra", 0),
            (f"--use_fast_math {ours}", 1),
            (f"-use_fast_math {ours}", 1),
            (f"{ours} --fmad=true", 1),
            (f"{ours} --fmad true", 1),
            (f"{ours} -ftz=true", 1),
            (f"{ours} -prec-div=false", 1),
            (f"{ours} --prec-sqrt false", 1),
            (f"{ours} -Xcompiler=-Wall,-ffast-math", 1),
            (f"{ours} -Xcompiler -ffast-math", 1),
            (ours.replace("--ftz=false ", ""), 1),
            ("", 1),
        ):
            with self.subTest(flags=flags):
                self.setUp()
                entry = {"directory": str(TOOLS), "file": file, "command": f"nvcc {flags} -o k.o -c {file}"}
                self.entries.append(entry)
                status, output = self.result()
                self.assertEqual(status, expected, output)

    def test_another_project(self) -> None:
        self.entries = [{"directory": "/", "file": "/a.cpp", "command": "c++ -c /a.cpp"}]
        self.assertEqual(self.result()[0], 1)


class Style(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = Path(self.folder.name)
        (self.root / ".clang-format").write_text((TOOLS.parent / ".clang-format").read_text())
        self.write("include/bitexact.h", "#include <stdint.h>\n")
        self.write("kernels/a.cu", '#include "common/b.cuh"\nint a;\n')
        self.write("kernels/common/b.cuh", "int b;\n")
        self.write("src/s.h", "int s;\n")
        self.write("tools/run", "#!/usr/bin/env bash\nset -euo pipefail\n")
        self.write("tests/t.cpp", "int t;\n")

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def test_clean(self) -> None:
        status, output = check("check_style", self.root)
        self.assertEqual(status, 0, output)

    def test_defects(self) -> None:
        for name, text, complaint in (
            ("src/f.cpp", "int  f ;\n", "src/f.cpp: not as clang-format writes it"),
            ("include/bitexact.h", "\n" * 601, "601 lines, at most 600"),
            ("include/bitexact.h", "#include <cuda_runtime.h>\n", "may include stddef.h and stdint.h only"),
            ("kernels/a.cu", "// a\n" * 251, "251 lines, at most 250"),
            ("kernels/common/b.cuh", "// b\n" * 201, "kernels/common: 201 lines in all"),
            ("kernels/a.cu", '#include "s.h"\n', "kernels/ includes nothing of src/ or include/"),
            ("kernels/a.cu", '#include "bitexact.h"\n', "kernels/ includes nothing of src/ or include/"),
            ("tests/t.cpp", "EXPECT_NEAR(a, b, 1);\n", "tests/t.cpp:1: bits are compared as integers"),
            ("tests/t.cpp", "EXPECT_FLOAT_EQ(a, b);\n", "bits are compared as integers"),
            ("bindings/python/tests/test_a.py", "assert torch.allclose(a, b)\n", "bits are compared as integers"),
            ("src/f.cpp", "float f = __expf(1.0f);\n", "arithmetic that is not exact"),
            ("CMakeLists.txt", "add_compile_options(-ffast-math)\n", "arithmetic that is not exact"),
            ("cmake/a.cmake", "set(x --use_fast_math)\n", "arithmetic that is not exact"),
            ("src/f.cpp", "// TODO\n", "unfinished: TODO"),
            ("tools/a.py", "# FIXME\n", "unfinished: FIXME"),
            ("docs/a.md", "see /home/me/a\n", "a path of one machine"),
            ("tools/a.py", 'x = "/tmp/a"\n', "a path of one machine"),
            ("tools/a.py", "# from pypi.org\n", "the address of a package registry"),
            ("src/f.cpp", "// see issue 12\n", "a name or number from outside"),
            ("src/f.cpp", "int f;", "does not end with a newline"),
            ("docs/a.md", "a \n", "trailing white space"),
            ("tools/a.py", "\tx\n", "a tab"),
            ("tools/run", "#!/usr/bin/env bash\n", "without `set -euo pipefail`"),
        ):
            with self.subTest(complaint=complaint, text=text[:40]):
                self.setUp()
                self.write(name, text)
                status, output = check("check_style", self.root)
                self.assertEqual(status, 1, output)
                self.assertIn(complaint, output)

    def test_nothing_there(self) -> None:
        with tempfile.TemporaryDirectory() as empty:
            self.assertNotEqual(check("check_style", empty)[0], 0)


if __name__ == "__main__":
    COMMANDS = Path(sys.argv.pop())
    unittest.main()
