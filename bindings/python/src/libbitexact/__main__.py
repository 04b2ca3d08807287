"""python -m libbitexact: what is installed, does it work here, and what did the gate say.

    python -m libbitexact              environment, devices, images
    python -m libbitexact doctor       runs both operations on every device against PyTorch (if there); exit
                                       status 1 if a bit differs or nothing could be run
    python -m libbitexact certify      sweeps whole input domains through every kernel of the CUDA devices, or of
                                       --device; --kernel TEXT takes those whose name holds it; --quick runs two
                                       parts of each, which proves little and is said to
    python -m libbitexact bench        host time of a call, beside eager's (needs torch)

--json prints one JSON object. No path and no host name is printed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from functools import partial
from typing import Any, Callable

from . import _report, capi


def devices() -> list[int]:
    """The host, and every CUDA device of this process."""
    found = [capi.DEVICE_HOST]
    while True:
        try:
            with capi.Context(len(found) - 1):
                found.append(len(found) - 1)
        except capi.Error:
            return found


def show(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(result, indent=1))
        return
    for name, value in result.items():
        if isinstance(value, dict):
            print(f"{name}:")
            for key, inner in value.items():
                print(f"  {key}: {inner}")
        elif isinstance(value, list):
            print(f"{name}:")
            for inner in value:
                print(f"  {inner}")
        else:
            print(f"{name}: {value}")


def info() -> dict[str, Any]:
    facts: dict[str, Any] = {"environment": _report.environment()}
    for device in devices():
        with capi.Context(device) as context:
            facts["cpu" if device < 0 else f"cuda:{device}"] = _report.device_facts(context)
    if len(facts) == 2:
        try:
            capi.Context(0).close()
        except capi.Error as error:
            facts["cuda"] = str(error)
    return facts


# ------------------------------------------------------------------------------------- doctor --


def doctor() -> tuple[dict[str, Any], int]:
    """Both operations on every device; the truth is PyTorch eager where it is installed, else the
    reference."""
    lines, failed = [], False
    try:
        import torch

        from . import _backend  # noqa: F401  (so that the environment tells of it)
    except ImportError:
        torch = None  # type: ignore[assignment]
        lines.append("PyTorch is not installed: checked against the library's own reference")
    result = info()
    for device in devices():
        if device >= 0 and torch is not None and not torch.cuda.is_available():
            lines.append(f"cuda:{device}: PyTorch has no CUDA: not checked")
            continue
        check = _check_with_torch if torch is not None else _check_builtin
        for line, ok in check(device):
            lines.append(line)
            failed |= not ok
    result["checks"] = lines
    result["verdict"] = "FAILED" if failed else "ok"
    return result, 1 if failed else 0


def _check_with_torch(device: int) -> list[tuple[str, bool]]:
    import torch

    from . import RopeSite, SiluMulSite
    from .numerics import Rope

    name = "cpu" if device < 0 else f"cuda:{device}"
    lines = []
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        gate, up = (torch.randn(64, 256, device=name).to(dtype) for _ in range(2))
        q = torch.randn(2, 16, 8, 128, device=name).to(dtype)
        cos, sin = (torch.randn(16, 128, device=name).to(dtype) for _ in range(2))
        silu = SiluMulSite("eager", name=f"doctor {name} {dtype} silu_mul")
        rope = RopeSite(Rope(), name=f"doctor {name} {dtype} rope")
        calls: list[tuple[Any, Callable[[], Any], Any]] = [
            (silu, partial(silu, gate, up), silu.reference(gate, up)),
            (rope, partial(rope, q, None, cos, sin), rope.reference(q, None, cos, sin, None)),
        ]
        for site, call, expected in calls:
            call()
            same = bool((call().view(torch.uint8) == expected.view(torch.uint8)).all())
            verdicts = list(site.verdicts())
            states = ", ".join(capi.STATE_NAMES[v["state"]] for v in verdicts) or "eager"
            why = "" if any(v["fused_calls"] for v in verdicts) else f" ({site.last_reason})"
            declined = any(v["state"] == capi.STATE_DECLINED for v in verdicts)
            lines.append(
                (f"{site.name[7:]}: {states}, {'equal' if same else 'DIFFERENT'}{why}", same and not declined)
            )
    return lines


def _check_builtin(device: int) -> list[tuple[str, bool]]:
    if device >= 0:
        return [(f"cuda:{device}: no framework to own device memory: decided by probe", _probe(device))]
    return [("cpu: decided by probe", _probe(device))]


def _probe(device: int) -> bool:
    with capi.Context(device) as context:
        context.warm_up()
        return not any(context.report(i).state == capi.STATE_DECLINED for i in range(len(context)))


# -------------------------------------------------------------------------- certify and bench --


def certify(wanted: list[int], kernel: str, quick: bool) -> tuple[dict[str, Any], int]:
    """Certificates of the kernels whose name holds `kernel`. Only whole ones without a difference end in status 0."""
    lines: list[str] = []
    counts = {"equal": 0, "differ": 0, "unsupported": 0, "unfinished": 0}
    for device in wanted:
        name = "cpu" if device < 0 else f"cuda:{device}"
        with capi.Context(device) as context:
            for index in range(len(context)):
                kernel_name = _report.capi._text(context.report(index).kernel_name)
                if kernel in kernel_name:
                    outcome, line = _certificate(context, index, quick)
                    counts[outcome] += 1
                    lines.append(f"{name}: {kernel_name}: {line}")
    if not wanted:
        verdict = "not certified: no CUDA device; on a CPU (--device cpu) it takes from minutes to an hour a kernel"
    elif counts["differ"]:
        verdict = "FAILED"
    elif counts["unfinished"] or not counts["equal"]:
        verdict = "not a certificate: nothing was swept to the end"
    else:
        verdict = "certified" + ("" if kernel == "" else " what was asked for")
    result = {"environment": _report.environment(), "certificates": lines, "counts": counts, "verdict": verdict}
    return result, 0 if verdict.startswith("certified") else 1


def _certificate(context: capi.Context, index: int, quick: bool) -> tuple[str, str]:
    report = capi.CertifyReport()
    while report.parts_total == 0 or report.parts_done < (min(2, report.parts_total) if quick else report.parts_total):
        try:
            context.certify(index, report.parts_done, 1 if quick or report.parts_total == 0 else 64, report)
        except capi.Error as error:
            return ("unsupported" if error.status == capi.STATUS_UNSUPPORTED else "unfinished"), str(error)
    told = f"{report.parts_done} of {report.parts_total} parts, {report.exhaustive_compared} exhaustive, "
    told += f"{report.sampled_compared} sampled, {report.mismatches} differ, digest {report.digest:#018x}"
    if report.mismatches:
        return "differ", told
    return ("equal" if report.parts_done == report.parts_total else "unfinished"), told


def bench() -> tuple[dict[str, Any], int]:
    """Host time of a call on small tensors, out given, gate accepted; medians of microseconds."""
    try:
        import torch
    except ImportError:
        return {"bench": "PyTorch is not installed: nothing to measure against"}, 1

    from . import RopeSite, SiluMulSite, chains
    from .numerics import Rope

    result: dict[str, Any] = {"environment": _report.environment(), "start": _start_times()}
    for device in devices():
        name = "cpu" if device < 0 else f"cuda:{device}"
        if device >= 0 and not torch.cuda.is_available():
            continue
        gate, up = (torch.randn(1, 256, device=name).bfloat16() for _ in range(2))
        q, k = (torch.randn(1, 1, heads, 64, device=name).bfloat16() for heads in (4, 2))
        cos, sin = (torch.randn(1, 64, device=name).bfloat16() for _ in range(2))
        out, q_out, k_out = torch.empty_like(gate), torch.empty_like(q), torch.empty_like(k)
        silu, rope = SiluMulSite(name=f"bench {name} silu"), RopeSite(Rope(), name=f"bench {name} rope")
        c, s = cos[:, None], sin[:, None]

        def rotate(x: Any) -> Any:
            return x * c + torch.cat((-x[..., 32:], x[..., :32]), -1) * s

        calls: dict[str, Callable[[], Any]] = {
            "silu_mul fused": lambda: silu(gate, up, out),
            "silu_mul eager": lambda: chains.SILU_MUL["eager"](gate, up),
            "rope fused": lambda: rope(q, k, cos, sin, None, q_out, k_out),
            "rope eager": lambda: (rotate(q), rotate(k)),
        }
        with torch.inference_mode():
            result[name] = {label: f"{_median(call, device, torch):.2f} us" for label, call in calls.items()}
        served = all(any(v["fused_calls"] for v in site.verdicts()) for site in (silu, rope))
        result[name]["served fused"] = "yes" if served else f"no: {silu.last_reason or rope.last_reason}"
    return result, 0


# Run by another Python: what importing costs after torch, and the first two calls (the second one is fused).
_START = """
import time, torch
device = "cuda" if torch.cuda.is_available() else "cpu"
x = torch.ones(64, 256, device=device).bfloat16()
torch.nn.functional.silu(x) * x
start = time.perf_counter()
import libbitexact
libbitexact.fused_silu_mul
imported = time.perf_counter()
for _ in range(2):
    libbitexact.fused_silu_mul(x, x)
if device == "cuda":
    torch.cuda.synchronize()
print(f"{(imported - start) * 1e3:.1f} {(time.perf_counter() - imported) * 1e3:.1f} {device}")
"""


def _start_times() -> dict[str, str]:
    done = subprocess.run([sys.executable, "-c", _START], capture_output=True, text=True)
    if done.returncode != 0:
        return {"failed": done.stderr.strip().splitlines()[-1]}
    imported, first, device = done.stdout.split()
    return {
        "import after torch": f"{imported} ms",
        "first fused result after import": f"{first} ms ({device})",
    }


def _median(call: Callable[[], Any], device: int, torch: Any) -> float:
    for _ in range(20):
        call()
    times = []
    for _ in range(31):
        if device >= 0:
            torch.cuda.synchronize(device)
        start = time.perf_counter()
        for _ in range(100):  # fewer than the launches that a stream can hold
            call()
        times.append((time.perf_counter() - start) / 100)
    return sorted(times)[len(times) // 2] * 1e6


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m libbitexact", description=__doc__.split("\n")[0])
    parser.add_argument("command", nargs="?", default="info", choices=("info", "doctor", "certify", "bench"))
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--device", default="", help="certify: cpu or cuda:N (default: every CUDA device)")
    parser.add_argument("--kernel", default="", metavar="TEXT", help="certify: kernels whose name holds it")
    parser.add_argument("--quick", action="store_true", help="certify: two parts a kernel, not a certificate")
    arguments = parser.parse_args()
    name = arguments.device
    if name not in ("", "cpu") and not (name.startswith("cuda:") and name[5:].isdigit()):
        parser.error(f"--device is {name}; accepted: cpu, or cuda: and a number")
    if arguments.command != "certify" and (name or arguments.kernel or arguments.quick):
        parser.error(f"--device, --kernel and --quick belong to certify, not to {arguments.command}")

    def certificates() -> tuple[dict[str, Any], int]:
        wanted = [-1 if name == "cpu" else int(name[5:])] if name else [d for d in devices() if d >= 0]
        return certify(wanted, arguments.kernel, arguments.quick)

    commands = {"info": lambda: (info(), 0), "doctor": doctor, "certify": certificates, "bench": bench}
    result, status = commands[arguments.command]()
    show(result, arguments.json)
    return status


if __name__ == "__main__":
    sys.exit(main())
