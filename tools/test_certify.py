"""What bitexact-certify leaves behind: test_certify.py BITEXACT_CERTIFY

A run that ends early, in whatever way, must not look like a certificate; files are what their readers expect.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

PROGRAM = Path()  # set below
QUICK = ("--quick", "--operation", "fused_silu_mul", "--dtype", "bfloat16")
TYPES = {
    "format": int, "verdict": str, "certified": bool, "finished": bool, "cancelled": bool, "quick": bool,
    "error": str, "selection": str, "started": str, "seconds": float, "device": dict, "library": str,
    "golden_digests_of": str, "counts": dict, "kernels": list,
}
KERNEL_TYPES = {
    "name": str, "operation": str, "dtype": str, "numerics": str, "form": str, "verdict": str, "parts_total": int,
    "parts_done": int, "exhaustive_compared": int, "sampled_compared": int, "mismatches": int,
    "nan_payload_differences": int, "digest": str, "golden_digest": (str, type(None)), "seconds": float,
}
OUTSIDE = re.compile(r"<script|https?:|src=|href=|url\(|@import")


class Run:
    """bitexact-certify on the host, in a folder of its own."""

    def __init__(self, *arguments: str) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.json, self.html = (Path(self.folder.name) / name for name in ("c.json", "c.html"))
        for path in (self.json, self.html):  # an older certificate lies there
            path.write_text("certified: every bit equal")
        self.process = subprocess.Popen(
            [PROGRAM, "--device", "host", "--json", self.json, "--html", self.html, *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()
        self.folder.cleanup()

    def end(self) -> tuple[int, str, str]:
        output, errors = self.process.communicate(timeout=300)
        return self.process.returncode, output, errors

    def heading(self) -> str:
        text = self.html.read_text(encoding="utf-8")
        found = re.findall(r"<h1>(.*?)</h1>", text)
        assert len(found) == 1 and text.endswith("</html>\n"), "not one whole page"
        return found[0]

    def document(self) -> dict:
        return json.loads(self.json.read_text(encoding="utf-8"))


class Certify(unittest.TestCase):
    def says(self, run: Run, headline: str) -> None:
        document = run.document()
        self.assertEqual(document["verdict"], headline)
        self.assertEqual(run.heading(), headline)
        self.assertFalse(document["certified"])

    def test_quick_look_and_form_of_the_files(self) -> None:
        with Run(*QUICK) as run:
            status, output, _ = run.end()
            self.assertEqual(status, 0)
            self.assertTrue(output.startswith("quick look, not a certificate\n"), output)
            self.says(run, "quick look, not a certificate")
            document = run.document()
            self.assertEqual({k: type(v) for k, v in document.items()}, TYPES)
            self.assertEqual(len(document["kernels"]), 45)
            self.assertEqual(sum(document["counts"].values()), 45)
            for kernel in document["kernels"]:
                for name, kind in KERNEL_TYPES.items():
                    self.assertIsInstance(kernel[name], kind, name)
                self.assertEqual(set(kernel) - set(KERNEL_TYPES), {"refusal"} & set(kernel))
                self.assertRegex(kernel["digest"], "^[0-9a-f]{16}$")
                self.assertEqual(kernel["mismatches"], 0)
                refused = kernel["parts_total"] == 0
                self.assertEqual(refused, "compute=float32" in kernel["numerics"])
                self.assertEqual(kernel["verdict"], "not supported on this device" if refused else "incomplete")
                sampled_first = "clamp=" in kernel["numerics"]
                self.assertEqual(kernel["exhaustive_compared"], 0 if refused or sampled_first else 2 * 2**22)
            self.assertNotRegex(run.html.read_text(encoding="utf-8"), OUTSIDE)

    def test_interrupt(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            with Run("--operation", "fused_silu_mul") as run:
                self.wait_for_start(run)
                time.sleep(1)
                run.process.send_signal(number)
                status, output, _ = run.end()
                self.assertEqual(status, 130)
                self.assertTrue(output.startswith("cancelled, not a certificate\n"), output)
                self.says(run, "cancelled, not a certificate")
                self.assertTrue(run.document()["cancelled"])
                self.assertFalse(run.document()["finished"])

    def test_killed(self) -> None:
        with Run("--operation", "fused_silu_mul") as run:
            self.wait_for_start(run)
            run.process.kill()
            run.end()
            self.says(run, "unfinished, not a certificate")

    def wait_for_start(self, run: Run) -> None:
        for _ in range(600):
            if run.html.read_text(encoding="utf-8").endswith("</html>\n"):
                return
            time.sleep(0.05)
        self.fail("nothing was written at the start")

    def test_no_such_device(self) -> None:
        with Run("--device", "77") as run:
            status, _, errors = run.end()
            self.assertEqual(status, 1)
            self.assertIn("bitexact_context_create", errors)
            self.says(run, "error, not a certificate")
            self.assertIn("bitexact_context_create", run.document()["error"])

    def test_bad_options(self) -> None:
        for arguments in (("--device", "-3"), ("--device", "gpu"), ("--operation", "rope"), ("--dtype", "float64")):
            with Run(*arguments) as run:
                status, _, errors = run.end()
                self.assertNotIn(status, (0, 130), arguments)
                self.assertIn(arguments[0], errors)

    def test_file_that_cannot_be_written(self) -> None:
        with Run(*QUICK, "--html", "/nowhere/c.html") as run:
            status, _, errors = run.end()
            self.assertEqual(status, 1)
            self.assertIn("cannot write /nowhere/c.html", errors)


if __name__ == "__main__":
    PROGRAM = Path(sys.argv.pop(1))
    unittest.main()
