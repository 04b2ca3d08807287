"""What happened so far: environment, sites, verdicts, and why calls ran eager."""

from __future__ import annotations

import platform
import sys
from typing import Any

from . import _library, capi


class Report(dict):  # type: ignore[type-arg]
    """A dict of plain values (JSON can hold it); str() is for people. No path and no host name is in it."""

    def __str__(self) -> str:
        lines = [f"{name}: {value}" for name, value in self["environment"].items()]
        for site in self["sites"]:
            lines.append(f"site {site['name']} ({site['operation']})")
            lines += [f"  {_verdict_text(verdict)}" for verdict in site["verdicts"]]
            lines += [f"  {count} x {reason}" for reason, count in site["counts"].items()]
            lines += [f"  note: {note}" for note in site["notes"]]
        if not self["sites"]:
            lines.append("no calls so far")
        return "\n".join(lines)


def _verdict_text(v: dict[str, Any]) -> str:
    text = f"{v['device']} {v['kernel_name']}: {capi.STATE_NAMES[v['state']]}"
    if v["state"] == capi.STATE_ACCEPTED:
        text += f", {v['compared']} elements equal"
    if v["reason"] == capi.REASON_MISMATCH:
        tensor = "k" if v["mismatch_tensor"] else "element"
        text += (
            f", {v['mismatches']} elements differ, first {tensor} {v['mismatch_index']}: eager "
            f"{v['mismatch_expected']:#06x}, fused {v['mismatch_actual']:#06x}"
        )
    elif v["state"] == capi.STATE_DECLINED:
        text += f", {capi.REASON_NAMES[v['reason']]}"
    return f"{text}; {v['fused_calls']} fused calls, {v['declined_calls']} left to eager"


def environment() -> dict[str, Any]:
    """Versions of everything whose bits matter. Imports nothing and touches no GPU that is not in use."""
    facts: dict[str, Any] = {
        "libbitexact": capi.version(),
        "build": capi.build_info(),
        "library": "packaged" if _library.path().name == _library.PACKAGED_NAME else "BITEXACT_LIBRARY",
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
    torch = sys.modules.get("torch")
    if torch is not None:
        facts["torch"] = torch.__version__
        facts["torch cuda"] = torch.version.cuda or "none"
        if "libbitexact._backend" in sys.modules:
            facts["call path"] = sys.modules["libbitexact._backend"].name
    for name in ("transformers", "diffusers", "numpy", "jax", "cupy"):
        if name in sys.modules:
            facts[name] = getattr(sys.modules[name], "__version__", "unknown")
    return facts


def device_facts(context: capi.Context) -> dict[str, Any]:
    """What a context knows of its device."""
    info = context.info()
    return {
        "name": info.device_name.decode("utf-8", "replace") if info.device_name else "host",
        "architecture": info.architecture,
        "image": capi.IMAGE_NAMES[info.image],
        "image architecture": info.image_architecture,
        "driver": info.driver_version,
        "runtime": info.runtime_version,
        "policy": capi.POLICY_NAMES[info.gate_policy],
        "positions outside tables": info.position_errors,
    }


def report() -> Report:
    """Environment, and for each site its verdicts, how many calls ran eager, and why.

    Returns:
        A Report: a dict, and a text by str().
    """
    sites, devices = [], {}
    if "libbitexact._site" in sys.modules:
        for site in sys.modules["libbitexact._site"].all_sites():
            if not site.counts and not site._contexts:
                continue  # never called
            for device, context in site._contexts.items():
                devices["cpu" if device < 0 else f"cuda:{device}"] = device_facts(context)
            sites.append(
                {
                    "name": site.name,
                    "operation": site.operation,
                    "verdicts": list(site.verdicts()),
                    "counts": dict(site.counts),
                    "notes": list(site.notes),
                }
            )
    facts = environment()
    for name, device in devices.items():
        facts[f"device {name}"] = device
    return Report(environment=facts, sites=sites)
