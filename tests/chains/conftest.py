"""Options of tests/chains, and the record of a run."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "golden")]  # the operator chains that the golden cases are made of
os.environ.pop("BITEXACT_GATE", None)  # a policy of the user's would change what tests see


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="cpu", choices=("cpu", "cuda"), help="where the frameworks run")
    parser.addoption("--record", type=Path, help="a Markdown file to write what was found to")


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> str:
    return request.config.getoption("--device")


COMPARED: dict[tuple[str, str], Counter[str]] = {}  # (row, source) -> elements compared, by dtype


@pytest.fixture(scope="session")
def compared() -> dict[tuple[str, str], Counter[str]]:
    return COMPARED


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    file = session.config.getoption("--record")
    if file is None:
        return
    import torch
    from libbitexact import capi

    device = session.config.getoption("--device")
    name = torch.cuda.get_device_name() if device == "cuda" else "the CPU"
    packages = []
    for package in ("transformers", "diffusers"):
        try:
            packages.append(f"{package} {__import__(package).__version__}")
        except ImportError:
            packages.append(f"no {package}")
    lines = [
        "# Chains of frameworks",
        "",
        f"Made by `pytest tests/chains --device {device} --record FILE` on {name}: PyTorch {torch.__version__}, "
        f"{', '.join(packages)}; {capi.build_info()}.",
        "",
        f"{session.testscollected} tests, {session.testsfailed} failed. Each line: elements whose bits equal the "
        "framework's own result, for the row of that name in docs/articles/numerics.md.",
        "",
        "| row | source | elements compared |",
        "|---|---|---|",
    ]
    for (row, source), counts in sorted(COMPARED.items()):
        lines.append(f"| `{row}` | {source} | {', '.join(f'{d} {n}' for d, n in counts.items())} |")
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
