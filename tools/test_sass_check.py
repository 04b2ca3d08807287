"""sass_check finds what is planted in tests/sass, by name, and lets the harmless pass: test_sass_check.py NVCC"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parent
PLANTED = TOOLS.parent / "tests" / "sass" / "planted.cu"
NVCC = Path()  # set below

# Kernel -> what is said of it, whatever flags it was compiled with.
ALWAYS = {
    "fused_rope<float, float, float, 0, true>": {"3 x fma32, where its numerics names 2"},
    "fused_rope<f16, float, float, 0, true>": {"1 x fma32, where its numerics names 2"},
    "fused_rope<float, float, double, 0, true>": {
        "2 x fma32, where its numerics names 0",
        "0 x fma64, where its numerics names 2",
    },
    "extra": {"no budget in sass_budgets.py"},
}
CODE = ALWAYS | {
    "fused_rope<bf16, float, float, 0, false>": {"1 x FMUL.FTZ"},
    "fused_rope<f16, float, float, 0, false>": {"1 x FMUL.RZ"},
    "fused_rope<f16, f16, float, 0, false>": {"1 x FADD.SAT"},
    "fused_rope<bf16, bf16, double, 0, false>": {"1 x MUFU.RCP"},
    "fused_rope<f16, f16, double, 0, false>": {"1 x MUFU.TANH"},
    "fused_silu_mul_scalar<bf16, 0, 1, 0>": {"11 x fma32", "1 x fma32.RM", "1 x fma32.SAT"},
    "fused_silu_mul_scalar<f16, 0, 1, 0>": {"3 x MUFU.RCP"},
    "fused_silu_mul_scalar<float, 0, 1, 0>": {"14 x fma32"},
    "fused_silu_mul_scalar<float, 2, 1, 0>": {"3 x MUFU.EX2", "3 x MUFU.RCP"},
    "fused_silu_mul_scalar<bf16, 0, 1, 1>": {"3 x MUFU.EX2", "3 x MUFU.RCP"},
}
# Products of operators, where the compiler may fuse them.
CONTRACTED = {
    "fused_rope<float, float, float, 0, false>": {"1 x fma32"},
    "fused_rope<float, double, double, 0, false>": {"1 x fma64"},
}
CONTRACTED_16 = {
    "fused_rope<bf16, bf16, bf16, 0, false>": {"1 x fma16"},
    "fused_rope<f16, f16, f16, 0, false>": {"1 x fma16"},
}
TEXT = ALWAYS | {
    "fused_rope<bf16, bf16, bf16, 0, false>": {"1 x mul.bf16x2", "1 x sub.bf16x2"},
    "fused_rope<f16, f16, f16, 0, false>": {"1 x mul.f16x2", "1 x add.f16x2"},
    "fused_rope<bf16, float, float, 0, false>": {"1 x mul.rn.ftz.f32"},
    "fused_rope<f16, float, float, 0, false>": {"1 x mul.rz.f32"},
    "fused_rope<bf16, bf16, float, 0, false>": {"1 x cvt.rz.bf16.f32"},
    "fused_rope<f16, f16, float, 0, false>": {"1 x add.rn.sat.f32"},
    "fused_rope<bf16, bf16, double, 0, false>": {"1 x rcp.approx.ftz.f32"},
    "fused_rope<f16, f16, double, 0, false>": {"1 x tanh.approx.f32"},
    "fused_silu_mul_scalar<bf16, 0, 1, 0>": {"7 x fma32", "1 x fma.rm.f32", "1 x cvt.sat.f32.f32"},
    "fused_silu_mul_scalar<f16, 0, 1, 0>": {"1 x div.full.f32"},
    "fused_silu_mul_scalar<float, 0, 1, 0>": {"11 x fma32"},
    "fused_silu_mul_scalar<float, 2, 1, 0>": {"3 x ex2.approx.ftz.f32", "2 x rcp.approx.ftz.f32"},
    "fused_silu_mul_scalar<bf16, 0, 1, 1>": {"3 x ex2.approx.ftz.f32", "2 x rcp.approx.ftz.f32"},
}


def simple(kernel: str) -> str:
    name = re.sub(r"\((?:Layout|Form|Steps)\)|^void ", "", re.sub(r"bitexact::", "", kernel))
    return re.sub(r"\(\w+Args.*", "", name)


def complaints(output: str) -> dict[str, dict[str, set[str]]]:
    """Image -> kernel -> what is said of it."""
    found: dict[str, dict[str, set[str]]] = {}
    for line in output.splitlines():
        if match := re.fullmatch(r"([\w ]+): (.*\(.*\)): (.*)", line):
            image, kernel, text = match.groups()
            found.setdefault(image, {}).setdefault(simple(kernel), set()).add(text)
    return found


def short(said: dict[str, set[str]], wanted: dict[str, set[str]]) -> dict[str, set[str]]:
    """What is said, cut where `wanted` tells only the beginning."""
    return {
        kernel: {next((w for w in wanted.get(kernel, ()) if re.match(rf"{re.escape(w)}(,|$)", t)), t) for t in texts}
        for kernel, texts in said.items()
    }


class Planted(unittest.TestCase):
    maxDiff = None

    def check(self, *flags: str) -> tuple[int, dict[str, dict[str, set[str]]]]:
        with tempfile.TemporaryDirectory() as folder:
            suffix = "ptx" if "-ptx" in flags else "cubin"
            file = Path(folder, f"planted.{suffix}")
            command = [NVCC, "-std=c++17", *flags, PLANTED, "-o", file]
            subprocess.run(command, check=True, capture_output=True, text=True)
            check = [sys.executable, "-B", TOOLS / "sass_check", file, "--tools", NVCC.parent]
            check += ["--assemble", "sm_90,sm_120", "--jobs", "2"]
            done = subprocess.run(check, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            self.assertRegex(done.stdout, r"\d+ kernels\n")
            return done.returncode, complaints(done.stdout)

    def assert_said(self, said: dict[str, set[str]], wanted: dict[str, set[str]]) -> None:
        self.assertEqual(short(said, wanted), wanted)

    def test_code_of_operators(self) -> None:
        status, found = self.check("-cubin", "-arch=sm_90")
        self.assertEqual(status, 1)
        cut = {"fused_rope<bf16, bf16, float, 0, false>": {"1 x F2FP.BF16.F32.PACK_AB.RZ"}}
        zero = {"fused_silu_mul_scalar<bf16, 2, 1, 0>": {"1 x plus_zero"}}
        self.assert_said(found["sm_90"], CODE | CONTRACTED | CONTRACTED_16 | cut | zero)

    def test_code_of_an_older_gpu(self) -> None:
        """There every bfloat16 operation is a multiply-add, which is as exact, and no operator is fused."""
        _, found = self.check("-cubin", "-arch=sm_80")
        cut = {"fused_rope<bf16, bf16, float, 0, false>": {"1 x F2FP.BF16.PACK_AB.RZ"}}
        zero = {"fused_silu_mul_scalar<bf16, 2, 1, 0>": {"1 x plus_zero"}}
        contracted = {k: v for k, v in CONTRACTED_16.items() if "bf16" not in k}
        self.assert_said(found["sm_80"], CODE | CONTRACTED | contracted | cut | zero)

    def test_code_without_contraction(self) -> None:
        _, found = self.check("-cubin", "-arch=sm_90", "--fmad=false")
        self.assertFalse(found["sm_90"].keys() & (CONTRACTED | CONTRACTED_16).keys())

    def test_ptx(self) -> None:
        """PTX built without contraction holds products that the next assembler fuses all the same."""
        status, found = self.check("-ptx", "-arch=compute_90", "--fmad=false")
        self.assertEqual(status, 1)
        self.assertEqual(sorted(found), ["PTX", "PTX assembled for sm_120", "PTX assembled for sm_90"])
        self.assert_said(found["PTX"], TEXT)
        for image in ("PTX assembled for sm_90", "PTX assembled for sm_120"):
            self.assertLessEqual((CODE | CONTRACTED_16).keys(), found[image].keys())
            self.assertFalse(found[image].keys() & CONTRACTED.keys())

    def test_fast_math(self) -> None:
        _, found = self.check("-cubin", "-arch=sm_90", "--use_fast_math")
        for kernel in ("<f16, 2, 1, 0>", "<f16, 3, 1, 0>", "<bf16, 3, 1, 1>"):
            self.assertIn(f"fused_silu_mul_scalar{kernel}", found["sm_90"])


class Calls(unittest.TestCase):
    def result(self, *arguments: str | Path) -> tuple[int, str]:
        command = [sys.executable, "-B", TOOLS / "sass_check", *arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.returncode, done.stdout

    def test_nothing_to_check(self) -> None:
        status, output = self.result(Path("/bin/sh"), "--tools", NVCC.parent)
        self.assertEqual(status, 1, output)
        self.assertRegex(output, r"there is no GPU code in|cuobjdump: ")

    def test_no_file(self) -> None:
        status, output = self.result("nothing.so", "--tools", NVCC.parent)
        self.assertEqual(status, 1, output)
        self.assertIn("nothing.so is not there", output)


if __name__ == "__main__":
    NVCC = Path(sys.argv.pop())
    unittest.main()
