"""The Python lines of the documentation, as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1]
ROOT = PACKAGE.parents[1]
# What each block prints; of a block that prints nothing the exit status alone counts.
EXPECTED = {
    PACKAGE / "README.md": ["accepted", "2 x silu_mul"],
    ROOT / "README.md": ["2 x rope"],
    ROOT / "docs" / "articles" / "python.md": ["equal bits: True", "", "it matches eager"],
}
CASES = [
    pytest.param(block, expected, id=f"{document.name}-{number}")
    for document, all_expected in EXPECTED.items()
    if document.exists()
    for number, (block, expected) in enumerate(
        zip(re.findall(r"^```python\n(.*?)^```", document.read_text(), re.M | re.S), all_expected, strict=True)
    )
]


@pytest.mark.parametrize("block, expected", CASES)
def test_lines_work_as_written(block: str, expected: str) -> None:
    if "transformers" in block:
        pytest.importorskip("transformers", reason="transformers is not installed")
    done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout, done.stdout
