"""The rows of docs/articles/numerics.md: what the article says is what the tests call."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from libbitexact import capi

ROOT = Path(__file__).resolve().parents[2]
ARTICLE = ROOT / "docs" / "articles" / "numerics.md"
DTYPES = {"x": 0, "0": 0, "FLOAT32": capi.DTYPE_FLOAT32, "FLOAT64": capi.DTYPE_FLOAT64}
PAIRINGS = {
    "half": (capi.PAIRING_HALF, capi.PAIRING_HALF),
    "interleaved": (capi.PAIRING_INTERLEAVED, capi.PAIRING_INTERLEAVED),
    "interleaved to half": (capi.PAIRING_INTERLEAVED, capi.PAIRING_HALF),
}


@dataclass(frozen=True)
class Row:
    name: str
    operation: str  # rope or silu_mul
    cells: dict[str, str]

    def rope_fields(self, device: str) -> dict[str, int]:
        combine, *flags = [word.strip() for word in self.cells["combine, flags"].split(",")]
        if device == "cpu" and self.name.startswith("complex"):
            combine = "SEPARATE"  # what PyTorch's CPU operators do; the article says so
        pairing_in, pairing_out = PAIRINGS[self.cells["Pairing"]]
        return {
            "flags": sum(getattr(capi, f"ROPE_{flag}") for flag in flags),
            "table_dtype": DTYPES[self.cells["Table"]],
            "compute_dtype": DTYPES[self.cells["compute_dtype"]],
            "combine": getattr(capi, f"COMBINE_{combine}"),
            "pairing_in": pairing_in,
            "pairing_out": pairing_out,
        }

    def silu_mul_fields(self) -> dict[str, int]:
        return {
            "silu": getattr(capi, f"SILU_{self.cells['silu']}"),
            "compute_dtype": DTYPES[self.cells["compute_dtype"]],
            "clamp": getattr(capi, f"CLAMP_{self.cells['clamp']}"),
        }


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def rows() -> dict[str, Row]:
    """Rows of the tables whose first column is "Row", by name."""
    found: dict[str, Row] = {}
    header: list[str] = []
    for line in ARTICLE.read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            header = []
        elif not header:
            header = [re.sub("`", "", cell) for cell in cells_of(line)]
        elif header[0] == "Row" and not re.fullmatch(r"[|\s:-]+", line):
            values = cells_of(line)
            assert len(values) == len(header), f"another number of cells than the header: {line}"
            cells = dict(zip(header, values))
            name = cells["Row"].strip("`")
            assert name not in found, f"two rows are called {name}"
            found[name] = Row(name, "rope" if "Pairing" in cells else "silu_mul", cells)
    return found
