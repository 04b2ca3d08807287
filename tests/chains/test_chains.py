"""Each row of docs/articles/numerics.md against the framework's own code, bits as integers."""

from __future__ import annotations

import json
import re
from collections import Counter
from importlib import util
from typing import Any

import inputs
import library
import pytest
import table
import torch
from libbitexact import capi
from sources import ROPE, SILU_MUL, RopeSource, Rotated, RustSource, SiluMulSource

ROWS = table.rows()
SHAPE = (2, 64, 4, 128)
DTYPE_NAMES = {torch.bfloat16: "bfloat16", torch.float16: "float16", torch.float32: "float32"}
# Gates whose sigmoid has other bits on a CPU: the article tells of them.
CPU_SIGMOIDS = {"sigmoid": ("0x1.6p-8", "0x1.3p-7"), "gated": ("0x1.6p-8", "0x1.3p-7", "0x1.5p-7")}
FLOATS = {0: None, capi.DTYPE_FLOAT32: torch.float32, capi.DTYPE_FLOAT64: torch.float64}


def require(source: Any, device: str) -> None:
    """A GPU machine may lack a package; the environment that the CPU run has been given must not."""
    if source.package and util.find_spec(source.package) is None:
        missing = pytest.skip if device == "cuda" else pytest.fail
        missing(f"{source.package} is not installed")


def assert_equal(actual: torch.Tensor, expected: torch.Tensor) -> int:
    """Equal as integers; any NaN equals any other, and -0 is not +0."""
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    differs = (inputs.bits(actual) != inputs.bits(expected)) & ~(actual.isnan() & expected.isnan()).contiguous()
    at = differs.flatten().nonzero()
    if len(at):
        first = int(at[0])
        got, wanted = (int(inputs.bits(t).flatten()[first]) for t in (actual, expected))
        raise AssertionError(
            f"{len(at)} of {actual.numel()} differ; first at {first}: library {got:#x}, framework {wanted:#x}"
        )
    return actual.numel()


def cases(rows: dict[str, list[Any]], kind: type) -> list[Any]:
    return [
        pytest.param(row, source, dtype, id=f"{row}-{source.name}-{DTYPE_NAMES[dtype]}")
        for row, sources in rows.items()
        for source in sources
        if isinstance(source, kind)
        for dtype in source.dtypes
    ]


@pytest.mark.parametrize(("row", "source", "dtype"), cases(ROPE, RopeSource))
def test_rope(
    row: str, source: RopeSource, dtype: torch.dtype, device: str, compared: dict[tuple[str, str], Counter[str]]
) -> None:
    require(source, device)
    fields = ROWS[row].rope_fields(device)
    table_dtype = FLOATS[fields["table_dtype"]] or dtype
    if dtype == torch.float32:  # float32 tables are its own, and so is float32 arithmetic
        for name in ("table_dtype", "compute_dtype"):
            fields[name] = 0 if fields[name] == capi.DTYPE_FLOAT32 else fields[name]
    heads = SHAPE[2] if source.per_head else 1
    x, cos, sin = (t.to(device, copy=True) for t in inputs.rope(SHAPE, heads, dtype, table_dtype, seed=1))
    if source.partial:
        cos, sin = (t[..., : SHAPE[-1] // 4].contiguous() for t in (cos, sin))
    result = source.run(x.clone(), cos, sin)
    framework = result if isinstance(result, Rotated) else Rotated(result)
    if framework.tables:
        cos, sin = framework.tables
        fields["full_table"] = 1
    if source.at_end:
        rest = SHAPE[-1] - 2 * cos.shape[-1]
        assert_equal(framework.out[..., :rest].contiguous(), x[..., :rest].contiguous())
        x, framework = x[..., rest:].contiguous(), Rotated(framework.out[..., rest:])
    count = assert_equal(library.rope(x, cos, sin, fields), framework.out.contiguous())
    compared.setdefault((row, source.name), Counter())[DTYPE_NAMES[dtype]] += count


@pytest.mark.parametrize(("row", "source", "dtype"), cases(SILU_MUL, SiluMulSource))
def test_silu_mul(
    row: str, source: SiluMulSource, dtype: torch.dtype, device: str, compared: dict[tuple[str, str], Counter[str]]
) -> None:
    require(source, device)
    fields = ROWS[row].silu_mul_fields()
    fields["limit_bits"] = int(torch.tensor(source.limit, dtype=torch.float32).view(torch.int32))
    gate, up = (t.to(device, copy=True) for t in inputs.silu_mul((256, 1024), dtype, seed=2))
    if device == "cpu" and (dtype == torch.float32 or fields["compute_dtype"]):
        with pytest.raises(capi.Error) as refused:  # the article says so
            library.silu_mul(gate, up, fields)
        assert refused.value.status == capi.STATUS_UNSUPPORTED
        return
    if device == "cpu" and dtype == torch.float16:
        for other in CPU_SIGMOIDS.get(row, ()):
            gate[gate == -float.fromhex(other)] = 0
    framework = source.run(gate.clone(), up.clone())
    count = assert_equal(library.silu_mul(gate, up, fields), framework)
    compared.setdefault((row, source.name), Counter())[DTYPE_NAMES[dtype]] += count


RUST = [
    pytest.param(source, id=f"{row}-{source.name}")
    for row, sources in (ROPE | SILU_MUL).items()
    for source in sources
    if isinstance(source, RustSource)
]


@pytest.mark.parametrize("source", RUST)
def test_of_rust_is_there(source: RustSource) -> None:
    text = (table.ROOT / source.file).read_text(encoding="utf-8")
    for name in source.tests:
        assert re.search(rf"#\[test\]\n(#\[.*\]\n)*fn {name}\(", text), f"{source.file} has no test {name}"


# ----------------------------------------------------------------------------- the article itself --


def test_every_row_has_sources_and_every_source_a_row() -> None:
    for operation, sources in (("rope", ROPE), ("silu_mul", SILU_MUL)):
        assert {name for name, row in ROWS.items() if row.operation == operation} == set(sources)
    assert all(sources for sources in (ROPE | SILU_MUL).values())


def test_formulas_say_what_the_fields_say() -> None:
    """The first output as rows write it, put together from their fields."""
    for row in ROWS.values():
        if row.operation != "rope":
            continue
        computes = row.cells["compute_dtype"], row.cells["Table"]
        c = next((w[-2:] for w in computes if w not in ("x", "0")), "X")
        combine = row.cells["combine, flags"].split(",")[0]
        products = {
            "SEPARATE": f"r{c}(r{c}(x1*c) - r{c}(x2*s))",
            "COMPLEX": f"fma{c}(x1, c, -r{c}(x2*s))",
            "ADDCMUL_COS": f"fma{c}(-x2, s, r{c}(x1*c))",
            "ADDCMUL_X1": f"fma{c}(-x2, s, r{c}(x1*c))",
        }
        formula = products[combine]
        if c == "64":
            formula = f"r32({formula})"
        if c != "X":
            formula = f"rX({formula})"
        if "SUM_FROM_ZERO" in row.cells["combine, flags"]:
            formula = formula.replace("(r", "(0 + r", 1) if c == "X" else formula.replace("(r32(r", "(r32(0 + r", 1)
        if "INVERSE" in row.cells["combine, flags"]:
            formula = formula.replace(" - ", " + ")
        assert row.cells["First output"].strip("`") == formula, row.name


def test_golden_cases_that_rows_name_are_there() -> None:
    index = json.loads((table.ROOT / "tests" / "golden" / "data" / "index.json").read_text(encoding="utf-8"))
    names = [case["name"] for case in index["cases"]]
    for row in ROWS.values():
        for prefix in re.findall(r"golden `([^`]+)`", row.cells["Verified"]):
            pattern = re.escape(prefix).replace(r"\*", "[^/]+")
            assert any(re.match(pattern, name) for name in names), f"{row.name}: no golden case {prefix}"
