"""The ctypes layer, against the header itself."""

from __future__ import annotations

import ctypes
import re
from array import array
from pathlib import Path

import pytest

from libbitexact import capi

HEADER = Path(__file__).resolve().parents[3] / "include" / "bitexact.h"
needs_header = pytest.mark.skipif(not HEADER.exists(), reason="not run from a checkout: there is no header")


def declared_constants() -> dict[str, int]:
    found = re.findall(r"^#define BITEXACT_(\w+) \(?(-?\d+)u?\)?(?:\s|$)", HEADER.read_text(), re.M)
    return {name: int(value) for name, value in found if not name.startswith("VERSION_")}


@needs_header
def test_every_constant_of_the_header() -> None:
    constants = declared_constants()
    sizes = {name for name in constants if name.endswith("_SIZE_V1")}
    assert len(constants) - len(sizes) >= 70
    for name in constants.keys() - sizes:
        assert getattr(capi, name) == constants[name], name


C_TYPES = {"int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32, "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64}


def as_ctypes(declaration: str) -> object:
    """What a C type is in capi: a class for its name, and one layer of POINTER for each star."""
    words = [word for word in re.findall(r"\w+|\*", declaration) if word != "const"]
    base, stars = words[0], words.count("*")
    if base == "char":
        return ctypes.c_char_p
    if base in ("void", "bitexact_context") and stars:
        base, stars = "void*", stars - 1
    if base == "void":
        return None
    special = {"void*": ctypes.c_void_p, "bitexact_stream": ctypes.c_void_p, "bitexact_log_fn": capi.LogFunction}
    found = special.get(base) or C_TYPES.get(base)
    if found is None:
        found = getattr(capi, "".join(part.capitalize() for part in base.removeprefix("bitexact_").split("_")))
    for _ in range(stars):
        found = ctypes.POINTER(found)
    return found


@needs_header
def test_every_function_is_declared_whole() -> None:
    text = HEADER.read_text()
    table = text[text.index("typedef struct bitexact_api {") : text.index("} bitexact_api;")]
    members = re.findall(r"bitexact_\w+_fn (\w+);", table)
    assert [name for name, _, _ in capi._MEMBERS] == members
    for name, (result, arguments) in capi.signatures().items():
        declared = re.search(rf"typedef ([\w* ]+?)\(\*bitexact_{name}_fn\)\((.*?)\);", text, re.S)
        assert declared, name
        assert result is as_ctypes(declared[1]), name
        parameters = [] if declared[2] == "void" else declared[2].split(",")
        assert list(arguments) == list(map(as_ctypes, parameters)), name
    assert capi.api.struct_size >= ctypes.sizeof(capi.Api)


@needs_header
def test_every_struct_with_size_and_members() -> None:
    text = HEADER.read_text()
    known = {re.sub(r"(?<!^)([A-Z])", r"_\1", cls.__name__).lower(): cls for cls in capi._Sized.__subclasses__()}
    structs = set(re.findall(r"^typedef struct bitexact_(\w+) \{", text, re.M)) - {"api"}
    assert structs == known.keys()
    for name, cls in known.items():
        grown = 8 if name == "silu_mul_params" else 0  # clamp and limit_bits
        assert ctypes.sizeof(cls) == declared_constants()[f"{name.upper()}_SIZE_V1"] + grown, name
        body = re.search(rf"typedef struct bitexact_{name} \{{(.*?)\}} bitexact_{name};", text, re.S)
        assert body
        plain = re.sub(r"/\*.*?\*/", "", body[1], flags=re.S)
        members = re.findall(r"[*\s](\w+)(?:\[4\])?(?=[,;])", plain)
        assert [member for member, _ in cls._fields_] == members, name


def test_initialisers_agree() -> None:
    for cls in capi._Sized.__subclasses__():
        snake = re.sub(r"(?<!^)([A-Z])", r"_\1", cls.__name__).lower()
        other = cls()
        ctypes.memset(ctypes.byref(other), 0xFF, ctypes.sizeof(other))
        getattr(capi.api, f"{snake}_init")(ctypes.byref(other))
        assert bytes(other) == bytes(cls())


def test_pointers_come_back_whole() -> None:
    """A pointer cut to 32 bits would be another one in the text."""
    params = capi.SiluMulParams(dtype=capi.DTYPE_FLOAT16, batches=1, rows=1, cols=4)
    params.gate = params.up = params.out = 0x7F1234567891
    with pytest.raises(capi.Error, match="(?i)7f1234567891") as refused:
        with capi.Context() as context:
            context.fused_silu_mul(params)
    assert refused.value.status == capi.STATUS_UNALIGNED
    with pytest.raises(capi.Error) as refused, capi.Context() as context:
        context.fused_silu_mul(params, 0x7F1234567890)
    assert refused.value.status in (capi.STATUS_INVALID_STREAM, capi.STATUS_UNALIGNED)


def test_statuses_are_told() -> None:
    assert "DECLINED" in capi.status_string(capi.STATUS_DECLINED)
    assert capi.status_string(123456)
    assert re.fullmatch(r"\d+\.\d+\.\d+", capi.version())
    assert capi.version() in capi.build_info()
    with pytest.raises(capi.Error) as refused:
        capi.Context(4096)
    assert refused.value.status in range(1, 200) and str(refused.value)


def test_raw_memory_without_a_framework() -> None:
    gate, up, out = (array("H", [0x3C00] * 8) for _ in range(3))
    log = []
    with capi.Context(log=lambda level, text: log.append((level, text))) as context:
        params = capi.SiluMulParams(dtype=capi.DTYPE_FLOAT16, batches=1, rows=1, cols=8)
        params.gate, params.up, params.out = (a.buffer_info()[0] for a in (gate, up, out))
        context.fused_silu_mul(params)
        assert set(out) == {0x39D9}  # 1 / (1 + exp(-1)) in float16
        assert [level for level, _ in log] == [capi.LOG_INFO]
        (report,) = context.used_reports()
        assert report.state == capi.STATE_ACCEPTED and report.to_dict()["fused_calls"] == 1
        expected = capi.SiluMulReference(out=params.out, out_row_stride=8)
        with pytest.raises(capi.Error) as refused:
            context.fused_silu_mul_verify(params, expected)
        assert refused.value.status == capi.STATUS_WRONG_MODE
        context.reset()
        assert not list(context.used_reports())


def test_caller_mode_by_hand() -> None:
    gate, out, mine = (array("H", [0x3C00] * 8) for _ in range(3))
    params = capi.SiluMulParams(dtype=capi.DTYPE_FLOAT16, batches=1, rows=1, cols=8)
    params.gate = params.up = gate.buffer_info()[0]
    params.out = out.buffer_info()[0]
    reference = capi.SiluMulReference(out=mine.buffer_info()[0])
    for value, verdict in ((0x39D9, capi.STATE_ACCEPTED), (0x39DA, capi.STATE_DECLINED)):
        for index in range(8):
            mine[index] = value
        with capi.Context(reference_mode=capi.REFERENCE_CALLER) as context:
            with pytest.raises(capi.Error) as refused:
                context.fused_silu_mul(params)
            assert refused.value.status == capi.STATUS_UNVERIFIED
            assert context.fused_silu_mul_verify(params, reference) == verdict
            if verdict == capi.STATE_DECLINED:
                (report,) = context.used_reports()
                assert (report.mismatch_expected, report.mismatch_actual) == (0x39DA, 0x39D9)
                with pytest.raises(capi.Error):
                    context.fused_silu_mul(params)
            else:
                context.fused_silu_mul(params)


def test_certify_adds_parts_up_and_takes_none_twice() -> None:
    with capi.Context() as context:
        report = capi.CertifyReport()
        context.certify(0, 0, 1, report)
        assert (report.parts_done, report.mismatches) == (1, 0) and report.parts_total > 1
        with pytest.raises(capi.Error) as refused:
            context.certify(0, 0, 1, report)
        assert refused.value.status == capi.STATUS_INVALID_VALUE and report.parts_done == 1
