"""Runs cases.json through ctypes, with nothing but the standard library: run_ctypes.py LIBRARY HEADER

The structs are read from the header, so that a wrong layout here cannot hide one there.
"""

import ctypes
import json
import re
import struct
import sys
from pathlib import Path

CARRIERS = {"int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32, "int64_t": ctypes.c_int64,
            "uint64_t": ctypes.c_uint64}
MASK = (1 << 64) - 1


def struct_of(header: str, name: str) -> type:
    body = re.search(rf"typedef struct {name} {{(.*?)}} {name};", header, re.S).group(1)
    fields = []
    for line in re.sub(r"/\*.*?\*/", "", body, flags=re.S).split(";"):
        found = re.match(r"\s*(?:const )?(\w+)(\s*\*)?\s*(.*)$", line.strip(), re.S)
        if not found:
            continue
        kind, star, names = found.groups()
        for field in names.split(","):
            pointer = star or kind == "void" or "*" in field
            fields.append((field.strip(" *"), ctypes.c_void_p if pointer else CARRIERS[kind]))
    return type(name, (ctypes.Structure,), {"_fields_": fields})


def memory_of(case: dict) -> bytearray:
    state, parts = case["seed"], []
    for _ in range(case["bytes"] // 8):
        state = state + 0x9E3779B97F4A7C15 & MASK
        z = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
        parts.append(z ^ z >> 31)
    memory = bytearray(struct.pack(f"<{len(parts)}Q", *parts))
    for offset, text in case["write"]:
        data = bytes.fromhex(text)
        memory[offset:offset + len(data)] = data
    return memory


def digest(data: bytes) -> str:
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & MASK
    return f"{value:016x}"


def params_of(case: dict, kind: type, base: int) -> ctypes.Structure:
    params = kind()
    params.struct_size = case.get("struct_size", ctypes.sizeof(kind))
    values = {**case["params"], **{k: v + base for k, v in case["pointers"].items()}, **case.get("addresses", {})}
    known = {name for name, _ in kind._fields_}
    for name, value in values.items():
        assert name in known, f"a field that the struct does not have: {name}"
        setattr(params, name, value)
    return params


class Disagreement(Exception):
    pass


def must(holds: bool, text: str) -> None:
    if not holds:
        raise Disagreement(text)


def judge(case: dict, before: bytes, after: bytes, errors: int) -> None:
    """After a call that was served."""
    if "digest" in case:
        must(digest(after) == case["digest"], f"wrong bytes: digest {digest(after)}")
    must(errors == case.get("position_errors", 0), f"position_errors is {errors}")
    for tensor, text in {**case.get("bits", {}), **case.get("first", {})}.items():
        at, data = case["pointers"][tensor], bytes.fromhex(text)
        must(after[at:at + len(data)] == data, f"{tensor} does not start with {text}")


def run(case: dict, library: ctypes.CDLL, kinds: dict) -> None:
    before = bytes(memory_of(case))
    # One buffer with room to start it at a multiple of 64.
    room = ctypes.create_string_buffer(len(before) + 64)
    base = (ctypes.addressof(room) + 63) // 64 * 64
    ctypes.memmove(base, before, len(before))
    name = case["operation"]
    params = params_of(case, kinds[name], base)
    block = ctypes.create_string_buffer(bytes(params), 8192)
    text = library.bitexact_last_error
    status = getattr(library, f"bitexact_fused_{name}_can_use")(None, block)
    must(status == case.get("check", case["status"]), f"can_use gave {status}: {text().decode()}")
    if "addresses" in case:
        return
    options = kinds["options"](struct_size=ctypes.sizeof(kinds["options"]), device=-1)
    context = ctypes.c_void_p()
    must(library.bitexact_context_create(ctypes.byref(options), ctypes.byref(context)) == 0, "no context")
    try:
        status = getattr(library, f"bitexact_fused_{name}")(context, block, None)
        told = text().decode()
        info = kinds["info"](struct_size=ctypes.sizeof(kinds["info"]))
        must(library.bitexact_context_get_info(context, ctypes.byref(info)) == 0, "get_info failed")
    finally:
        library.bitexact_context_destroy(context)
    after = ctypes.string_at(base, len(before))
    must(status == case["status"], f"the call gave {status}: {told}")
    if status == 0:
        judge(case, before, after, info.position_errors)
    else:
        must(after == before, "a refused call wrote")


def main() -> int:
    library, header = ctypes.CDLL(sys.argv[1]), Path(sys.argv[2]).read_text()
    library.bitexact_last_error.restype = ctypes.c_char_p
    library.bitexact_context_create.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    library.bitexact_context_get_info.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    library.bitexact_context_destroy.argtypes = [ctypes.c_void_p]
    library.bitexact_context_destroy.restype = None
    for name in ("silu_mul", "rope"):
        getattr(library, f"bitexact_fused_{name}").argtypes = [ctypes.c_void_p] * 3
        getattr(library, f"bitexact_fused_{name}_can_use").argtypes = [ctypes.c_void_p] * 2
    kinds = {"silu_mul": struct_of(header, "bitexact_silu_mul_params"), "rope": struct_of(header, "bitexact_rope_params"),
             "options": struct_of(header, "bitexact_context_options"), "info": struct_of(header, "bitexact_context_info")}
    cases = json.loads((Path(__file__).parent / "cases.json").read_text())
    failed = 0
    for case in cases:
        try:
            run(case, library, kinds)
        except Disagreement as error:
            failed += 1
            print(f"{case['name']}: {error}")
    print(f"{len(cases)} cases through ctypes, {failed} failed")
    return 1 if failed or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
