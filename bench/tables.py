"""Turns the JSON of the benchmarks into Markdown lines."""

from __future__ import annotations

from typing import Any

LIMITS = ("copy", "torch.add")
OWN = ("bitexact", "bitexact, Python package")


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(row)} |" for row in rows)]


def number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def fastest(works: list[Any], start: str) -> Any:
    found = [w for w in works if w["work"].startswith(start)]
    return min(found, key=lambda w: w["median_us"]) if found else None


# ----------------------------------------------------------------------------- C++ programs --


def program(data: Any) -> list[str]:
    """One program's shapes: kernels held against their limits, or plain medians."""
    lines = ["", f"## {data['title']}", "", f"{data['build']}; CUDA driver {data['driver']}.", ""]
    empty = next(
        (s["works"][0]["median_us"] for s in data["shapes"] if s["shape"] == "empty kernel" and "works" in s),
        None,
    )
    held, others, failed = [], [], []
    for shape in data["shapes"]:
        works = shape.get("works", [])
        limit, own, copy = (fastest(works, start) for start in ("plain", "bitexact", "cudaMemcpy"))
        if loose := sum(w.get("not_held", 0) for w in works):
            failed.append(f"- {shape['shape']}: {loose} replays began before they were queued whole")
        if "error" in shape:
            failed.append(f"- {shape['shape']}: FAILED: {shape['error']}")
        elif shape["bytes"] and limit and own:
            spread = f"{own['p10_us']:.2f} to {own['p90_us']:.2f}"
            held.append([shape["shape"], limit["work"].removeprefix("plain "), number(limit["median_us"])])
            held[-1] += [
                number(own["median_us"]),
                spread,
                number(own["tb_per_s"]),
                number(own["ratio_to_limit"], 3),
            ]
            held[-1].append(number(copy["median_us"] / own["median_us"], 3) if copy else "-")
            held[-1].append(number(own["median_us"] - empty) if empty and own["median_us"] < 20 else "-")
            held[-1].append(own["work"].removeprefix("bitexact: "))
        else:
            for w in works:
                ratio = f"{1 / w['ratio_to_limit']:.3f}" if "ratio_to_limit" in w else "-"
                others.append([shape["shape"], w["work"], number(w["median_us"], 3), number(w["p10_us"], 3)])
                others[-1] += [number(w["p90_us"], 3), ratio]
    if held:
        head = [
            "shape",
            "fastest plain kernel",
            "its us",
            "bitexact us",
            "p10 to p90",
            "TB/s",
            "ratio to plain",
        ]
        lines += table([*head, "ratio to cudaMemcpy", "us over an empty kernel", "kernel"], held) + [""]
    if others:
        lines += table(["what", "work", "median us", "p10", "p90", "times the plain one"], others) + [""]
    return lines + failed


# ------------------------------------------------------------------------------------- peers --


def machine(data: Any) -> str:
    return f"PyTorch {data['torch']} with CUDA {data.get('cuda')}; {data['build']}."


def peers(data: Any) -> list[str]:
    lines = [f"{machine(data)} Python package: {data['python_package']}.", "", "## The fastest peer", ""]
    rows, missing = [], {}
    for entry in data["cases"]:
        timed = [w for w in entry["works"] if "median_us" in w]
        for w in entry["works"]:
            if "reason" in w:
                missing.setdefault((w["work"], w["reason"]), []).append(entry["case"])
        if "reason" in entry:
            missing.setdefault(("all", entry["reason"]), []).append(entry["case"])
        own = next((w for w in timed if w["work"] == "bitexact"), None)
        others = [w for w in timed if w["work"] not in LIMITS + OWN]
        if own and others:
            best = min(others, key=lambda w: w["median_us"])
            rows.append([entry["case"], number(own["median_us"]), best["work"], number(best["median_us"])])
            rows[-1] += [
                number(best["median_us"] / own["median_us"], 3),
                share(best),
                number(own["ratio_to_copy"], 3),
            ]
    head = [
        "shape",
        "bitexact us",
        "fastest peer",
        "its us",
        "its time over bitexact's",
        "its bits equal to eager",
    ]
    lines += table([*head, "bitexact: ratio to copy"], rows)
    lines += ["", "## Everything", ""] + every(data["cases"])
    lines += ["", "## Growth with tokens", ""] + every(data["growth"])
    lines += ["", "## Not measured", ""]
    lines += [f"- {name}: {why} ({len(cases)} shapes)" for (name, why), cases in missing.items()]
    return lines


def share(row: Any) -> str:
    text = f"{100 * row['equal_bits']:.4f} %" if "equal_bits" in row else "-"
    return text + (f" ({row['note']})" if "note" in row else "")


def every(entries: list[Any]) -> list[str]:
    rows = []
    for entry in entries:
        for w in entry["works"]:
            if "median_us" in w:
                name = w["work"] + (" (in place)" if w.get("in_place") else "")
                rows.append(
                    [entry["case"], name, number(w["median_us"]), f"{w['p10_us']:.2f} to {w['p90_us']:.2f}"]
                )
                rows[-1] += [number(w["gb_per_s"], 0), number(w["ratio_to_copy"], 3), share(w)]
                rows[-1] += [number(w["launches"], 0), number(w["host_us"], 1)]
    head = ["shape", "work", "median us", "p10 to p90", "GB/s", "ratio to copy", "bits equal to eager"]
    return table([*head, "launches", "host us a call"], rows)


# ------------------------------------------------------------------------------------ models --


def models(data: Any) -> list[str]:
    runs, kinds, parts = [], [], []
    for model in data["models"]:
        base = model["runs"].get("eager", {}).get("median_ms")
        for name, run in model["runs"].items():
            against = model["runs"].get("eager" + name.removeprefix("eager").removeprefix("bitexact"), run)
            change = 100 * (run["median_ms"] / against["median_ms"] - 1)
            spread = f"{run['least_ms']:.3f} to {run['greatest_ms']:.3f}"
            runs.append([model["model"], name, number(run["median_ms"], 3), spread, f"{change:+.1f} %"])
            runs[-1].append(f"`{run['sha256'][:16]}`")
        equal = "equal bytes in every run" if model.get("equal") else "NOT EQUAL"
        if model.get("eager_repeats") is False:
            equal += ", but eager differs from itself"
        outcome = f"{equal if base else 'not measured'} {model.get('reason', '')}"
        kinds.append(f"- {model['model']}: {outcome} {model.get('shape')}")
        names = sorted({name for found in model["parts_ms"].values() for name in found})
        for name in names:
            both = [model["parts_ms"].get(which, {}).get(name) for which in ("eager", "bitexact")]
            parts.append([model["model"], name, *(number(value, 3) for value in both)])
    lines = [machine(data), "", *kinds, ""]
    lines += table(
        ["model", "run", "median ms", "least to greatest", "against eager", "SHA-256 of the output"], runs
    )
    lines += ["", "## Milliseconds on the device, by part", ""]
    return lines + table(["model", "part", "eager", "bitexact"], parts)
