"""The C interface through ctypes: every struct, constant and function of bitexact.h.

Needs nothing but Python. Pointers are plain integers, so that it works with any owner of memory; `bitexact.h`
is the documentation of each function, struct and constant. Functions are members of `api`, the table that the
library hands out: `api.fused_rope(context, byref(params), stream)`. ctypes lets go of the GIL during each
call. `Context` wraps a context; `check` turns a status into an exception.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import POINTER, byref, c_char_p, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from typing import Any, Callable, Iterator

from . import _library

API_VERSION = 1

STATUS_OK = 0
STATUS_NULL_POINTER = 1
STATUS_STRUCT_SIZE = 2
STATUS_UNKNOWN_FIELD = 3
STATUS_INVALID_VALUE = 4
STATUS_INVALID_SHAPE = 5
STATUS_INVALID_STRIDE = 6
STATUS_OVERLAP = 7
STATUS_TOO_LARGE = 8
STATUS_UNALIGNED = 9
STATUS_INVALID_STREAM = 10
STATUS_INVALID_DEVICE = 11
STATUS_INDEX = 12
STATUS_API_VERSION = 13
STATUS_ENVIRONMENT = 14
STATUS_UNSUPPORTED = 15
STATUS_FORKED = 16
STATUS_WRONG_MODE = 17
STATUS_NO_DRIVER = 100
STATUS_NO_DEVICE = 101
STATUS_DRIVER_TOO_OLD = 102
STATUS_NO_KERNEL_IMAGE = 103
STATUS_OUT_OF_MEMORY = 104
STATUS_CUDA_ERROR = 105
STATUS_NO_CUDA_BACKEND = 106
STATUS_HOST_LIBM = 107
STATUS_INTERNAL = 108
STATUS_UNVERIFIED = 200
STATUS_DECLINED = 201
STATUS_CAPTURING = 202

DTYPE_DEFAULT = 0
DTYPE_FLOAT32 = 1
DTYPE_FLOAT16 = 2
DTYPE_BFLOAT16 = 3
DTYPE_FLOAT64 = 4
DTYPE_INT32 = 5
DTYPE_INT64 = 6

DEVICE_HOST = -1

POLICY_VERIFY = 0
POLICY_REFERENCE = 1
POLICY_TRUST = 2
POLICY_AUDIT = 3
POLICY_STRICT = 4

REFERENCE_BUILTIN = 0
REFERENCE_CALLER = 1

OPERATION_FUSED_ROPE = 1
OPERATION_FUSED_SILU_MUL = 2

IMAGE_HOST = 0
IMAGE_SASS = 1
IMAGE_PTX = 2

STATE_UNDECIDED = 0
STATE_ACCEPTED = 1
STATE_DECLINED = 2

REASON_NONE = 0
REASON_EQUAL = 1
REASON_MISMATCH = 2
REASON_LAUNCH_ERROR = 3
REASON_NO_IMAGE = 4
REASON_POLICY = 5
REASON_REFERENCE = 6

BASIS_PROBE = 1
BASIS_LIVE = 2
BASIS_CERTIFICATE = 4

LOG_WARNING = 2
LOG_INFO = 3

SILU_ATEN = 0
SILU_SIGMOID = 1
SILU_CANDLE = 2
SILU_GLU = 3
CLAMP_NONE = 0
CLAMP_BEFORE = 1
CLAMP_AFTER = 2

ROPE_INVERSE = 1
ROPE_SUM_FROM_ZERO = 2

COMBINE_SEPARATE = 0
COMBINE_COMPLEX = 1
COMBINE_COMPLEX_ALT = 2
COMBINE_ADDCMUL_COS = 3
COMBINE_ADDCMUL_X1 = 4

PAIRING_HALF = 0
PAIRING_INTERLEAVED = 1

POLICY_NAMES = ("verify", "reference", "trust", "audit", "strict")
STATE_NAMES = ("undecided", "accepted", "declined")
REASON_NAMES = ("none", "equal", "mismatch", "launch error", "no image", "policy", "wrong reference")
IMAGE_NAMES = ("host", "sass", "ptx")
DTYPE_NAMES = ("default", "float32", "float16", "bfloat16", "float64", "int32", "int64")


# ------------------------------------------------------------------------------------ structs --


class _Sized(ctypes.Structure):
    """A size-first struct: made with every field zero and struct_size set, then the fields given by name."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(struct_size=ctypes.sizeof(type(self)), **fields)

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, struct_size and flags left out."""
        skip = ("struct_size", "flags", "reserved")
        values = {name: getattr(self, name) for name, *_ in type(self)._fields_ if name not in skip}
        return {k: list(v) if isinstance(v, ctypes.Array) else _text(v) for k, v in values.items()}


def _text(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


_HEAD: list[Any] = [("struct_size", c_uint32), ("flags", c_uint32)]


def _int32(*names: str) -> list[Any]:
    return [(name, c_int32) for name in names]


def _int64(*names: str) -> list[Any]:
    return [(name, c_int64) for name in names]


def _strided(name: str, *axes: str) -> list[Any]:
    return [(name, c_void_p), *_int64(*(f"{name.replace('_data', '')}_{axis}_stride" for axis in axes))]


class ContextOptions(_Sized):
    _fields_ = [*_HEAD, *_int32("device", "gate_policy", "reference_mode", "reserved")]


class ContextInfo(_Sized):
    _fields_ = [
        *_HEAD,
        *_int32("device", "gate_policy", "reference_mode", "architecture", "image", "image_architecture"),
        *_int32("driver_version", "runtime_version"),
        ("position_errors", c_int64),
        ("device_name", c_char_p),
    ]


class SiluMulParams(_Sized):
    _fields_ = [
        *_HEAD,
        *_int32("dtype", "compute_dtype", "silu", "reserved"),
        *_int64("batches", "rows", "cols"),
        *_strided("gate", "batch", "row"),
        *_strided("up", "batch", "row"),
        *_strided("out", "batch", "row"),
        *_int32("clamp"),
        ("limit_bits", c_uint32),
    ]


class SiluMulReference(_Sized):
    _fields_ = [*_HEAD, *_strided("out", "batch", "row")]


class RopeParams(_Sized):
    _fields_ = [
        *_HEAD,
        *_int32("dtype", "table_dtype", "compute_dtype", "combine", "pairing_in", "pairing_out"),
        *_int64(
            "batches", "tokens", "q_heads", "k_heads", "head_dim", "rotary_dim", "table_width", "table_rows"
        ),
        *_strided("q_in", "batch", "token", "head"),
        *_strided("q_out", "batch", "token", "head"),
        *_strided("k_in", "batch", "token", "head"),
        *_strided("k_out", "batch", "token", "head"),
        *_strided("cos", "batch", "token", "head", "element"),
        *_strided("sin", "batch", "token", "head", "element"),
        *_strided("positions", "batch", "token"),
        *_int32("positions_dtype", "reserved"),
    ]


class RopeReference(_Sized):
    _fields_ = [*_HEAD, *_strided("q", "batch", "token", "head"), *_strided("k", "batch", "token", "head")]


class GateReport(_Sized):
    _fields_ = [
        *_HEAD,
        *_int32("operation", "state", "reason", "basis", "status", "dtype", "table_dtype", "compute_dtype"),
        *_int32("numerics", "mismatch_basis", "mismatch_tensor", "reserved"),
        *_int64("fused_calls", "reference_calls", "declined_calls", "checks", "compared"),
        *_int64("nan_payload_differences", "mismatches", "mismatch_index"),
        ("mismatch_expected", c_uint64),
        ("mismatch_actual", c_uint64),
        ("kernel_name", c_char_p),
    ]


class CertifyParams(_Sized):
    _fields_ = [*_HEAD, *_int64("kernel_index", "first_part", "part_count")]


class CertifyReport(_Sized):
    _fields_ = [
        *_HEAD,
        *_int64("kernel_index", "parts_total", "parts_done", "exhaustive_compared", "sampled_compared"),
        *_int64("mismatches", "nan_payload_differences"),
        ("digest", c_uint64),
        ("mismatch_inputs", c_uint64 * 4),
        ("mismatch_expected", c_uint64),
        ("mismatch_actual", c_uint64),
    ]


# ---------------------------------------------------------------------------- function table --

LogFunction = ctypes.CFUNCTYPE(None, c_int32, c_char_p, c_void_p)

_STREAM = c_void_p
_CONTEXT = c_void_p

# Member of the table, return type, argument types; in the table's own order.
_MEMBERS: list[tuple[str, Any, list[Any]]] = [
    ("version", c_uint32, []),
    ("build_info", c_char_p, []),
    ("status_string", c_char_p, [c_int32]),
    ("last_error", c_char_p, []),
    ("last_cuda_error", c_int32, []),
    ("context_options_init", None, [POINTER(ContextOptions)]),
    ("context_info_init", None, [POINTER(ContextInfo)]),
    ("silu_mul_params_init", None, [POINTER(SiluMulParams)]),
    ("silu_mul_reference_init", None, [POINTER(SiluMulReference)]),
    ("rope_params_init", None, [POINTER(RopeParams)]),
    ("rope_reference_init", None, [POINTER(RopeReference)]),
    ("gate_report_init", None, [POINTER(GateReport)]),
    ("certify_params_init", None, [POINTER(CertifyParams)]),
    ("certify_report_init", None, [POINTER(CertifyReport)]),
    ("context_create", c_int32, [POINTER(ContextOptions), POINTER(_CONTEXT)]),
    ("context_destroy", None, [_CONTEXT]),
    ("context_set_log", c_int32, [_CONTEXT, LogFunction, c_void_p]),
    ("context_get_info", c_int32, [_CONTEXT, POINTER(ContextInfo)]),
    ("fused_silu_mul", c_int32, [_CONTEXT, POINTER(SiluMulParams), _STREAM]),
    ("fused_silu_mul_can_use", c_int32, [_CONTEXT, POINTER(SiluMulParams)]),
    (
        "fused_silu_mul_verify",
        c_int32,
        [_CONTEXT, POINTER(SiluMulParams), POINTER(SiluMulReference), _STREAM, POINTER(c_int32)],
    ),
    ("fused_rope", c_int32, [_CONTEXT, POINTER(RopeParams), _STREAM]),
    ("fused_rope_can_use", c_int32, [_CONTEXT, POINTER(RopeParams)]),
    (
        "fused_rope_verify",
        c_int32,
        [_CONTEXT, POINTER(RopeParams), POINTER(RopeReference), _STREAM, POINTER(c_int32)],
    ),
    ("gate_warm_up", c_int32, [_CONTEXT, POINTER(RopeParams), POINTER(SiluMulParams), _STREAM]),
    ("gate_count", c_int32, [_CONTEXT, POINTER(c_int64)]),
    ("gate_get", c_int32, [_CONTEXT, c_int64, POINTER(GateReport)]),
    ("gate_reset", c_int32, [_CONTEXT]),
    ("certify", c_int32, [_CONTEXT, POINTER(CertifyParams), POINTER(CertifyReport)]),
]


class Api(ctypes.Structure):
    """struct bitexact_api."""

    _fields_ = [
        ("struct_size", c_uint32),
        ("api_version", c_uint32),
        *((name, ctypes.CFUNCTYPE(result, *arguments)) for name, result, arguments in _MEMBERS),
    ]


_handle = _library.open_library()
_handle.bitexact_version.argtypes = []
_handle.bitexact_version.restype = c_uint32
_handle.bitexact_get_api.argtypes = [c_uint32, POINTER(POINTER(Api))]
_handle.bitexact_get_api.restype = c_int32


def _table() -> Api:
    table = POINTER(Api)()
    if _handle.bitexact_get_api(API_VERSION, byref(table)) != STATUS_OK:
        raise _library.LibraryNotFound(
            f"{_library.path()} is version {_handle.bitexact_version()} and does not serve "
            f"API version {API_VERSION}"
        )
    return table.contents


api = _table()
api_address = ctypes.addressof(api)


def version() -> str:
    """Version of the loaded library, such as 0.9.0."""
    number = api.version()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def build_info() -> str:
    """One line: version, source revision, compilers, architectures."""
    return _text(api.build_info())


def status_string(status: int) -> str:
    """Name and meaning of a status; known and unknown ones."""
    return _text(api.status_string(status))


def last_error() -> str:
    """Text of the last non-zero status on this thread."""
    return _text(api.last_error())


class Error(RuntimeError):
    """A non-zero status. `status` is the number; the text names function, argument and what is accepted."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def check(status: int) -> None:
    """Raises Error unless the status is 0. Call it on the thread of the failing call."""
    if status != STATUS_OK:
        raise Error(status, f"{status_string(status)}: {last_error()}")


# ----------------------------------------------------------------------------------- context --

Log = Callable[[int, str], None]


class Context:
    """A context: verdicts of every kernel on one device.

    Args:
        device: CUDA ordinal, or DEVICE_HOST.
        policy: POLICY value; the environment variable BITEXACT_GATE overrides it.
        reference_mode: REFERENCE_BUILTIN, or REFERENCE_CALLER (your own result is the truth).
        log: called with (LOG value, text) once per verdict.

    Raises:
        Error: environment statuses, INVALID_DEVICE, ENVIRONMENT.
    """

    def __init__(
        self,
        device: int = DEVICE_HOST,
        policy: int = POLICY_VERIFY,
        reference_mode: int = REFERENCE_BUILTIN,
        log: Log | None = None,
    ) -> None:
        self.pointer: int | None = None
        options = ContextOptions(device=device, gate_policy=policy, reference_mode=reference_mode)
        pointer = c_void_p()
        check(api.context_create(byref(options), byref(pointer)))
        self.pointer = pointer.value
        self._log = LogFunction(lambda level, text, _: log(level, _text(text))) if log else LogFunction()
        check(api.context_set_log(self.pointer, self._log, None))

    def close(self) -> None:
        """Frees the context; twice is harmless. Not while another call uses it."""
        if self.pointer is not None:
            api.context_destroy(self.pointer)
            self.pointer = None

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "pointer", None) is not None and api is not None:
            self.close()

    def info(self) -> ContextInfo:
        """Facts about the device, image and policy. Reads one counter from the device."""
        info = ContextInfo()
        check(api.context_get_info(self.pointer, byref(info)))
        return info

    def fused_silu_mul(self, params: SiluMulParams, stream: int = 0) -> None:
        """Runs the operation. Raises Error for every status but 0."""
        check(api.fused_silu_mul(self.pointer, byref(params), stream))

    def fused_rope(self, params: RopeParams, stream: int = 0) -> None:
        """Runs the operation. Raises Error for every status but 0."""
        check(api.fused_rope(self.pointer, byref(params), stream))

    def fused_silu_mul_verify(
        self, params: SiluMulParams, reference: SiluMulReference, stream: int = 0
    ) -> int:
        """Compares with the caller's result; returns a STATE value. Synchronises the stream."""
        verdict = c_int32()
        check(
            api.fused_silu_mul_verify(self.pointer, byref(params), byref(reference), stream, byref(verdict))
        )
        return verdict.value

    def fused_rope_verify(self, params: RopeParams, reference: RopeReference, stream: int = 0) -> int:
        """Compares with the caller's result; returns a STATE value. Synchronises the stream."""
        verdict = c_int32()
        check(api.fused_rope_verify(self.pointer, byref(params), byref(reference), stream, byref(verdict)))
        return verdict.value

    def warm_up(
        self, rope: RopeParams | None = None, silu_mul: SiluMulParams | None = None, stream: int = 0
    ) -> None:
        """Decides by probe, ahead of a capture; without arguments every kernel."""
        check(
            api.gate_warm_up(
                self.pointer, byref(rope) if rope else None, byref(silu_mul) if silu_mul else None, stream
            )
        )

    def __len__(self) -> int:
        count = c_int64()
        check(api.gate_count(self.pointer, byref(count)))
        return count.value

    def report(self, index: int) -> GateReport:
        """The report of one kernel; index in [0, len(context))."""
        report = GateReport()
        check(api.gate_get(self.pointer, index, byref(report)))
        return report

    def used_reports(self) -> Iterator[GateReport]:
        """Reports of kernels that were called or checked."""
        for index in range(len(self)):
            r = self.report(index)
            if r.fused_calls or r.reference_calls or r.declined_calls or r.checks or r.status:
                yield r

    def reset(self) -> None:
        """Forgets every verdict. Not while another call uses the context."""
        check(api.gate_reset(self.pointer))

    def certify(self, kernel_index: int, first_part: int, part_count: int, report: CertifyReport) -> None:
        """Runs parts of a kernel's certificate and adds to the report."""
        params = CertifyParams(kernel_index=kernel_index, first_part=first_part, part_count=part_count)
        check(api.certify(self.pointer, byref(params), byref(report)))


@functools.lru_cache(maxsize=None)
def signatures() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Declared return and argument types of each member of the table, for tests and for readers."""
    return {name: (result, tuple(arguments)) for name, result, arguments in _MEMBERS}
