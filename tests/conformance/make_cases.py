"""Writes cases.json: calls as data, with the status or the bytes that each must give.

The digests come from the program given, which computes them with tests/reference, not with the library. Run it
after a change here: make_cases.py build/dev/tests/conformance/conformance_digests
"""

import json
import struct
import subprocess
import sys
from pathlib import Path

F32, F16, BF16, F64, I32, I64 = 1, 2, 3, 4, 5, 6
SIZE = {0: 2, F32: 4, F16: 2, BF16: 2, F64: 8, I32: 4, I64: 8}
NULL_POINTER, STRUCT_SIZE, UNKNOWN_FIELD, INVALID_VALUE, INVALID_SHAPE = 1, 2, 3, 4, 5
INVALID_STRIDE, OVERLAP, TOO_LARGE, UNALIGNED, UNSUPPORTED = 6, 7, 8, 9, 15

cases = []


class Memory:
    """Lays tensors out one after the other, with a gap whose bytes must not change."""

    def __init__(self) -> None:
        self.end = 64
        self.write: list[list] = []

    def place(self, elements: int, dtype: int, skew: int = 0) -> int:
        offset = (self.end + 63) // 64 * 64 + skew * SIZE[dtype]
        self.end = offset + max(elements, 0) * SIZE[dtype] + 32
        return offset

    def put(self, offset: int, data: bytes) -> None:
        self.write.append([offset, data.hex()])

    def put16(self, offset: int, *values: int) -> None:
        self.put(offset, struct.pack(f"<{len(values)}H", *values))

    def put32(self, offset: int, *values: int) -> None:
        self.put(offset, struct.pack(f"<{len(values)}I", *values))


def add(name: str, operation: str, rows: list, memory: Memory, params: dict, pointers: dict, status: int = 0,
        **more) -> None:
    case = {"name": name, "operation": operation, "rows": rows, "bytes": (memory.end + 127) // 64 * 64,
            "seed": len(cases) + 1, "write": memory.write,
            "params": {k: v for k, v in params.items() if v != 0}, "pointers": pointers, "status": status}
    case.update(more)
    cases.append(case)


# -------------------------------------------------------------------------------- silu_mul --


def silu(name: str, rows: list, b: int = 1, r: int = 1, c: int = 8, dtype: int = BF16, layout: str = "separate",
         gap: int = 0, skew: int = 0, status: int = 0, change: dict = {}, move: dict = {}, put: dict = {},
         drop: tuple = (), **more) -> None:
    m = Memory()
    n = SIZE.get(dtype, 2)
    p = {"dtype": dtype, "batches": b, "rows": r, "cols": c}
    packed = layout in ("packed", "packed_reversed")
    in_row = 2 * c + gap if packed else c + gap
    gate = m.place(b * r * in_row, dtype, skew)
    if packed:
        up = gate + c * n
        if layout == "packed_reversed":
            gate, up = up, gate
    else:
        up = m.place(b * r * in_row, dtype, skew)
    out_row = in_row if layout in ("into_gate", "into_up") else c + gap
    out = {"into_gate": gate, "into_up": up}.get(layout)
    if out is None:
        out = m.place(b * r * out_row, dtype, skew)
    for tensor, row in (("gate", in_row), ("up", in_row), ("out", out_row)):
        p[f"{tensor}_row_stride"] = row
        p[f"{tensor}_batch_stride"] = r * row
    pointers = {"gate": gate, "up": up, "out": out}
    for tensor, values in put.items():
        (m.put32 if n == 4 else m.put16)(pointers[tensor], *values)
    p.update(change)
    for tensor, bytes_on in move.items():
        pointers[tensor] += bytes_on
    for tensor in drop:
        del pointers[tensor]
    add(f"silu_mul/{name}", "silu_mul", rows, m, p, pointers, status, **more)


NAMES = {F16: "f16", BF16: "bf16", F32: "f32"}
# Middle roundings that a single rounding would not give; the last is a subnormal product.
silu("bf16/two_roundings", [56, 58, 61, 64], c=2, put={"gate": [0xBF68, 0xC2B1], "up": [0x3E24, 0x3C24]},
     bits={"out": "2cbd2380"})
silu("f16/two_roundings", [56, 58, 64], dtype=F16, c=1, put={"gate": [0xBF73], "up": [0x3FF0]},
     bits={"out": "f2b7"})
silu("bf16/tail_of_silu", [68, 71, 72], c=6,
     put={"gate": [0xC2AE, 0xC2AF, 0xC2B0, 0xC2B1, 0xC2B2, 0xC2C8], "up": [0x3F80] * 6},
     bits={"out": "f48395833583dd8200800080"})
silu("bf16/special_values", [68, 77, 79], c=12,
     put={"gate": [0xFF80, 0x7F80, 0x7FC0, 0x7FFF, 0xFFC1, 0x7F81, 0x0000, 0x8000, 0x0001, 0x8001, 0x7F7F, 0xFF7F],
          "up": [0x3F80] * 12},
     bits={"out": "ff7f807fff7fff7fff7fff7f00000080000000807f7f0080"})
for dtype in (BF16, F16):
    for cols in (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64):
        silu(f"{NAMES[dtype]}/width_{cols}", [9, 25], b=1, r=3, c=cols, dtype=dtype)
    for cols in (1, 2, 3, 4, 5, 7, 9, 352, 1234):
        silu(f"{NAMES[dtype]}/packed_{cols}", [1, 13, 25, 26], r=3, c=cols, dtype=dtype, layout="packed")
for cols in (3420, 4095, 8192, 8200):
    silu(f"bf16/packed_{cols}", [9, 25], r=2, c=cols, layout="packed")
for layout in ("packed", "packed_reversed", "into_gate", "into_up", "separate"):
    for gap in (0, 3, 8):
        for skew in (0, 1):
            silu(f"bf16/{layout}/gap_{gap}/skew_{skew}", [12, 13, 14, 15, 17, 22, 50, 52, 53], b=2, r=3, c=24,
                 layout=layout, gap=gap, skew=skew)
silu("bf16/different_row_strides", [15], r=3, c=8, gap=16, change={"up_row_stride": 11})
silu("bf16/gate_broadcast", [18], b=2, r=3, c=8, change={"gate_row_stride": 0, "gate_batch_stride": 0})
silu("bf16/negative_stride", [], r=3, c=8, move={"gate": 32}, change={"gate_row_stride": -8})
for code, text in ((1, "sigmoid"), (2, "candle"), (3, "glu")):
    for dtype in (BF16, F16):
        silu(f"{NAMES[dtype]}/{text}", [61, 63], r=3, c=40, dtype=dtype, change={"silu": code})
silu("bf16/gate_of_attention", [], c=5, change={"silu": 3},
     put={"gate": [0x0000, 0xFF80, 0x7F80, 0x7FC0, 0x3F80], "up": [0x4040, 0x4040, 0x4040, 0x4040, 0x3F80]},
     bits={"out": "c03f00004040ff7f3b3f"})
TEN, LESS = 0x41200000, 0x3E99999A  # 10 and 0.3 in float32; no 16-bit type holds the second
for code, text in ((1, "before"), (2, "after")):
    for limit in (TEN, LESS):
        for dtype in (BF16, F16):
            silu(f"{NAMES[dtype]}/clamp_{text}_{'10' if limit == TEN else '0.3'}", [72], r=3, c=40, dtype=dtype,
                 change={"clamp": code, "limit_bits": limit})
# The limit itself, the next number, infinities and NaN, in gate and then in up.
for code, text in ((1, "before"), (2, "after")):
    silu(f"bf16/clamp_{text}_of_gates", [72], c=6, change={"clamp": code, "limit_bits": TEN},
         put={"gate": [0x4120, 0x4121, 0x7F80, 0x7FC0, 0xFF80, 0x8000], "up": [0x3F80] * 6},
         bits={"out": "204120412041ff7fff7f0080"})
    silu(f"bf16/clamp_{text}_of_ups", [72], c=6, change={"clamp": code, "limit_bits": TEN},
         put={"gate": [0x7F80] * 6, "up": [0x4121, 0xC121, 0x7F80, 0xFF80, 0x7FC0, 0x8000]},
         bits={"out": "c842c8c2c842c8c2ff7f0080"})
silu("bf16/struct_of_the_first_version", [126], struct_size=120, raw=True)
for rows_, text in ((dict(b=0), "batches"), (dict(r=0), "rows"), (dict(c=0), "cols")):
    silu(f"bf16/zero_{text}", [84, 86], **rows_)
    silu(f"bf16/zero_{text}_and_null", [84, 85, 87], drop=("gate", "up", "out"), raw=True, **rows_)
# On the host float32 is well-formed, but not proven.
silu("f32/not_on_the_host", [], dtype=F32, c=8, status=UNSUPPORTED, check=0, cuda=0)
silu("bf16/float32_compute_not_on_the_host", [61], c=8, change={"compute_dtype": F32}, status=UNSUPPORTED, check=0,
     cuda=0)

refused = dict(raw=True)
silu("refused/output_rows_overlap", [18, 19], r=3, c=8, status=INVALID_STRIDE, change={"out_row_stride": 7})
silu("refused/output_expanded", [18, 19], r=3, c=8, status=INVALID_STRIDE, change={"out_row_stride": 0})
silu("refused/shifted_by_8", [55], r=3, c=64, layout="into_gate", move={"out": 16}, status=OVERLAP)
silu("refused/in_place_with_other_strides", [22, 55], r=3, c=8, gap=8, layout="into_gate",
     change={"out_row_stride": 8}, status=OVERLAP)
silu("refused/float64", [42], status=INVALID_VALUE, change={"dtype": F64})
silu("refused/no_dtype", [42], status=INVALID_VALUE, change={"dtype": 0}, **refused)
silu("refused/unknown_silu", [37], status=INVALID_VALUE, change={"silu": 4}, **refused)
silu("refused/unknown_clamp", [37], status=INVALID_VALUE, change={"clamp": 3, "limit_bits": TEN}, **refused)
silu("refused/clamp_with_sigmoid", [37], status=UNSUPPORTED, change={"silu": 1, "clamp": 1, "limit_bits": TEN})
silu("refused/clamp_after_in_float32", [37], status=UNSUPPORTED,
     change={"compute_dtype": F32, "clamp": 2, "limit_bits": TEN})
silu("refused/limit_alone", [37], status=INVALID_VALUE, change={"limit_bits": TEN}, **refused)
for bits, text in ((0, "zero"), (0x80000000, "negative_zero"), (0x7F800000, "infinite"), (0x7FC00000, "nan")):
    silu(f"refused/limit_{text}", [37], status=INVALID_VALUE, change={"clamp": 1, "limit_bits": bits}, **refused)
silu("refused/candle_in_float32", [], dtype=F32, status=UNSUPPORTED, change={"silu": 2})
silu("refused/flags", [34], status=UNKNOWN_FIELD, change={"flags": 1}, **refused)
silu("refused/reserved", [34], status=UNKNOWN_FIELD, change={"reserved": 1}, **refused)
silu("refused/negative_rows", [5], status=INVALID_SHAPE, change={"rows": -1}, **refused)
silu("refused/null_gate", [87], status=NULL_POINTER, drop=("gate",), **refused)
silu("refused/null_out", [87], status=NULL_POINTER, drop=("out",), **refused)
silu("refused/odd_address", [], status=UNALIGNED, move={"up": 1}, **refused)
silu("refused/past_63_bits", [5], r=3, status=TOO_LARGE, change={"gate_row_stride": 2**62}, **refused)
for size, status in ((0, STRUCT_SIZE), (7, STRUCT_SIZE), (4097, STRUCT_SIZE)):
    silu(f"refused/struct_size_{size}", [126], status=status, struct_size=size, **refused)

# Pointers of memory that is not there: arguments are judged, nothing is touched.
big = {"gate": 1 << 44, "up": 2 << 44, "out": 3 << 44}


def judged(name: str, operation: str, rows: list, params: dict, addresses: dict, status: int = 0) -> None:
    add(name, operation, rows, Memory(), params, {}, status, addresses=addresses, raw=True)


def wide(rows_: int, cols: int) -> dict:
    return {"dtype": BF16, "batches": 1, "rows": rows_, "cols": cols, "gate_row_stride": cols,
            "up_row_stride": cols, "out_row_stride": cols}


judged("silu_mul/judged/2^31_elements", "silu_mul", [3, 5], wide(1 << 21, 1 << 10), big)
judged("silu_mul/judged/2^32_and_8_elements", "silu_mul", [4, 5], wide(1, (1 << 32) + 8), big)
judged("silu_mul/judged/row_past_2^31", "silu_mul", [1, 3], wide(75_000, 28_672), big)
judged("silu_mul/judged/65536_rows", "silu_mul", [8], wide(65_536, 16), big)
judged("silu_mul/judged/2^62_elements", "silu_mul", [5], wide(1 << 31, 1 << 31), big, TOO_LARGE)
judged("silu_mul/judged/tagged_address", "silu_mul", [139], wide(1, 8), {**big, "gate": 0x7F12_3456_789A_0010})


# ------------------------------------------------------------------------------------ rope --


def rope(name: str, rows: list, b: int = 1, t: int = 3, hq: int = 2, hk: int = 1, d: int = 16, rd: int | None = None,
         dtype: int = BF16, table: int = 0, full: bool = True, heads_first: bool = False, in_place: bool = False,
         gap: int = 0, positions: list | None = None, pdtype: int = I64, table_rows: int | None = None,
         per_batch: bool = False, per_head: bool = False, element: int = 1, status: int = 0, change: dict = {},
         move: dict = {}, put: dict = {}, drop: tuple = (), **more) -> None:
    m = Memory()
    rd = d if rd is None else rd
    trows = table_rows if table_rows is not None else t
    width = rd if full else rd // 2
    tdtype = table or dtype
    p = {"dtype": dtype, "table_dtype": table, "batches": b, "tokens": t, "q_heads": hq, "k_heads": hk, "head_dim": d,
         "rotary_dim": rd, "table_width": width, "table_rows": trows}
    pointers = {}
    head = d + gap
    for x, heads in (("q", hq), ("k", hk)):
        strides = {"batch": t * heads * head, "token": head if heads_first else heads * head,
                   "head": t * head if heads_first else head}
        for side in ("in", "out"):
            pointers[f"{x}_{side}"] = (pointers[f"{x}_in"] if side == "out" and in_place
                                       else m.place(b * t * heads * head, dtype))
            for axis, stride in strides.items():
                p[f"{x}_{side}_{axis}_stride"] = stride
    heads = max(hq, hk) if per_head else 1
    row = heads * width * element
    for x in ("cos", "sin"):
        pointers[x] = m.place((b if per_batch else 1) * trows * row, tdtype)
        p.update({f"{x}_batch_stride": trows * row if per_batch else 0, f"{x}_token_stride": row,
                  f"{x}_head_stride": width * element if per_head else 0, f"{x}_element_stride": element})
    if positions is not None:
        pointers["positions"] = m.place(len(positions), pdtype)
        m.put(pointers["positions"], struct.pack(f"<{len(positions)}{'i' if pdtype == I32 else 'q'}", *positions))
        p.update({"positions_dtype": pdtype, "positions_batch_stride": t, "positions_token_stride": 1})
    for tensor, values in put.items():
        (m.put32 if SIZE[tdtype if tensor in ("cos", "sin") else dtype] == 4 else m.put16)(pointers[tensor], *values)
    p.update(change)
    for tensor, bytes_on in move.items():
        pointers[tensor] += bytes_on
    for tensor in drop:
        del pointers[tensor]
    add(f"rope/{name}", "rope", rows, m, p, pointers, status, **more)


one = dict(t=1, hq=1, hk=0, d=2)
rope("bf16/rounded_twice", [59], put={"q_in": [0x3E10, 0xBEF5], "cos": [0xBF1F] * 2, "sin": [0x3F49] * 2}, **one,
     first={"q_out": "933e"})
rope("f16/rounded_twice", [59], dtype=F16, put={"q_in": [0xBE82, 0xB3A3], "cos": [0xB79D] * 2, "sin": [0xBB09] * 2},
     **one, first={"q_out": "8338"})
rope("f32/not_contracted", [62, 63, 64], dtype=F32,
     put={"q_in": [0xC0023096, 0x3FF51C56], "cos": [0xBF02BB02] * 2, "sin": [0x3F5C1A7D] * 2}, **one,
     first={"q_out": "528c1bbf"})
rope("f32/all_equal_gives_plus_zero", [62], dtype=F32,
     put={"q_in": [0x3F8CCCCD] * 2, "cos": [0x3F8CCCCD] * 2, "sin": [0x3F8CCCCD] * 2}, **one,
     first={"q_out": "00000000"})
for dtype in (BF16, F16, F32):
    for table in (0, F32, F64):
        for pairing in (0, 1):
            rope(f"{NAMES[dtype]}/table_{table}/pairing_{pairing}", [37, 40, 42], dtype=dtype, table=table,
                 change={"pairing_in": pairing, "pairing_out": pairing})
for combine in range(5):
    for compute in (0, F32, F64):
        rope(f"bf16/combine_{combine}/compute_{compute}", [43, 63], change={"combine": combine, "compute_dtype": compute})
rope("bf16/interleaved_to_half", [37], change={"pairing_in": 1, "pairing_out": 0})
rope("bf16/half_to_interleaved", [37], change={"pairing_in": 0, "pairing_out": 1})
rope("bf16/inverse", [43], change={"flags": 1})
rope("bf16/sum_from_zero", [43], change={"flags": 2})
rope("bf16/half_width_table", [31, 46], full=False)
rope("bf16/partial", [31, 33, 35], t=5, d=32, rd=16)
rope("bf16/partial_of_odd_head", [29], d=17, rd=16)
rope("bf16/rotary_0_copies", [86], rd=0)
rope("bf16/head_dim_100", [28], d=100)
rope("bf16/in_place", [22, 50], in_place=True)
rope("bf16/in_place_partial", [31, 52], d=32, rd=16, in_place=True)
rope("bf16/heads_first", [11], heads_first=True)
rope("bf16/slices", [12, 50, 53], gap=8, b=2)
rope("bf16/q_expanded_over_heads", [18], hq=3, change={"q_in_head_stride": 0})
rope("bf16/table_of_each_batch", [39], b=2, per_batch=True)
# Strides that nothing walks.
rope("bf16/axes_of_one", [18], t=1, hq=1, hk=1, change={
    f"{x}_{side}_{axis}_stride": 2**40 for x in "qk" for side in ("in", "out") for axis in ("batch", "token", "head")})
rope("bf16/table_expanded_over_batches", [39], b=2)
rope("bf16/table_of_each_head", [39], hq=3, hk=3, per_head=True)
rope("bf16/complex_table", [43], full=False, element=2, table=F32, change={"combine": 1, "pairing_in": 1, "pairing_out": 1})
rope("bf16/q_alone", [36], hk=0)
rope("bf16/q_alone_and_null_k", [36, 87], hk=0, drop=("k_in", "k_out"))
rope("bf16/k_alone", [36], hq=0, hk=2, raw=True)
for hq, hk in ((28, 4), (32, 8), (16, 4), (13, 1), (12, 12)):
    rope(f"bf16/heads_{hq}_{hk}", [51], hq=hq, hk=hk, d=8)
for pdtype in (I32, I64):
    rope(f"bf16/positions_{pdtype}", [33, 47], t=4, positions=[0, 1, 6, 2], pdtype=pdtype, table_rows=7)
    rope(f"bf16/positions_outside_{pdtype}", [44, 47], t=4, positions=[-1, 6, 7, 2**31 - 1], pdtype=pdtype,
         table_rows=7, position_errors=3)
# So far outside that reading the table there would fault, also for the elements that are only copied.
rope("bf16/positions_outside_partial", [44, 47], t=3, d=48, rd=32, positions=[2**31 - 1, 0, -(2**31)], table_rows=3,
     position_errors=2)
rope("bf16/positions_beyond_31_bits", [44, 47], t=3, positions=[2**31, 2**32, 2**62], table_rows=3, position_errors=3)
rope("bf16/positions_of_each_batch", [39], b=2, t=2, positions=[3, 1, 0, 2], table_rows=4)
rope("bf16/table_at_the_end_of_memory", [31], d=128, rd=64)
for tokens in (1, 2, 33, 130):
    rope(f"bf16/tokens_{tokens}", [32], t=tokens, hq=4, hk=2, d=128 if tokens < 40 else 16, rd=64 if tokens < 40 else 16)
for what in (dict(b=0), dict(t=0), dict(hq=0, hk=0), dict(d=0, rd=0)):
    text = "_".join(what)
    rope(f"bf16/zero_{text}", [84, 86], raw=True, **what)
rope("bf16/zero_tokens_and_null", [84, 87], t=0, drop=("q_in", "q_out", "k_in", "k_out", "cos", "sin"), raw=True)

rope("refused/rotary_33", [29], d=64, status=INVALID_SHAPE, change={"rotary_dim": 33}, **refused)
rope("refused/rotary_66_of_65", [29], d=65, rd=64, status=INVALID_SHAPE, change={"rotary_dim": 66, "table_width": 66}, **refused)
rope("refused/table_of_128_with_64", [46], d=64, status=INVALID_SHAPE, change={"table_width": 128}, **refused)
rope("refused/table_shorter_than_tokens", [45], t=3, status=INVALID_SHAPE, change={"table_rows": 2}, **refused)
rope("refused/null_k_with_heads", [36, 87], drop=("k_in",), status=NULL_POINTER, **refused)
rope("refused/unknown_pairing", [37], status=INVALID_VALUE, change={"pairing_in": 2}, **refused)
rope("refused/unknown_combine", [43], status=INVALID_VALUE, change={"combine": 5}, **refused)
rope("refused/f16_table_with_bf16", [40], table=F16, status=INVALID_VALUE)
rope("refused/positions_of_bf16", [47], t=2, positions=[0, 1], status=INVALID_VALUE, change={"positions_dtype": BF16}, **refused)
rope("refused/output_expanded", [18, 19], hq=3, status=INVALID_STRIDE, change={"q_out_head_stride": 0})
rope("refused/in_place_expanded", [18], hq=3, in_place=True, status=INVALID_STRIDE,
     change={"q_in_head_stride": 0, "q_out_head_stride": 0})
rope("refused/shifted_by_8", [55], d=64, in_place=True, move={"q_out": 16}, status=OVERLAP)
rope("refused/output_on_its_table", [52], status=OVERLAP, d=16, t=1, hq=1, hk=0, in_place=True, raw=True,
     table_rows=1, change={"cos_token_stride": 0}, same={"cos": "q_in"})
rope("refused/other_pairing_in_place", [22, 37], in_place=True, change={"pairing_out": 1}, status=OVERLAP)
rope("refused/flags", [34], status=UNKNOWN_FIELD, change={"flags": 4}, **refused)
rope("refused/sum_from_zero_with_fma", [43], status=UNSUPPORTED, change={"flags": 2, "combine": 1})

at = {"q_in": 1 << 44, "q_out": 2 << 44, "cos": 3 << 44, "sin": 4 << 44}


def long(tokens: int, heads: int, dim: int) -> dict:
    return {"dtype": BF16, "batches": 1, "tokens": tokens, "q_heads": heads, "head_dim": dim, "rotary_dim": dim,
            "table_width": dim, "table_rows": tokens, "q_in_token_stride": heads * dim, "q_in_head_stride": dim,
            "q_out_token_stride": heads * dim, "q_out_head_stride": dim, "cos_token_stride": dim,
            "sin_token_stride": dim, "cos_element_stride": 1, "sin_element_stride": 1}


judged("rope/judged/2^31_elements", "rope", [3], long(1 << 17, 128, 128), at)
judged("rope/judged/65536_tokens", "rope", [8], long(65_536, 1, 2), at)
judged("rope/judged/table_offset_past_128_bits", "rope", [5, 44],
       {**long(1, 1, 2), "table_dtype": F64, "positions_dtype": I64, "table_rows": 2**62 + 1,
        "cos_token_stride": -(2**63), "sin_token_stride": -(2**63)}, {**at, "positions": 5 << 44}, TOO_LARGE)
judged("rope/judged/2^62_elements", "rope", [5], long(1 << 40, 1 << 11, 1 << 11), at, TOO_LARGE)


def main() -> int:
    path = Path(__file__).parent / "cases.json"
    for case in cases:
        for tensor, other in case.pop("same", {}).items():
            case["pointers"][tensor] = case["pointers"][other]
    names = [case["name"] for case in cases]
    assert len(set(names)) == len(names), "two cases of one name"
    lines = ",\n".join(json.dumps(case) for case in cases)
    path.write_text(f"[\n{lines}\n]\n")
    digests = json.loads(subprocess.run([sys.argv[1], path], check=True, capture_output=True, text=True).stdout)
    for case in cases:
        if case["name"] in digests:
            case["digest"] = digests[case["name"]]
    lines = ",\n".join(json.dumps(case) for case in cases)
    path.write_text(f"[\n{lines}\n]\n")
    print(f"{len(cases)} cases, {len(digests)} with bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
