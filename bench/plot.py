#!/usr/bin/env python3
"""Draws the records: SVG pictures beside the JSON files of tools/record_gpu."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

# Grey and mid-tones on no background: readable on a light page and on a dark one.
INK = "#808890"
COLORS = {
    "copy": "#9aa0a6",
    "torch.add": "#6f767d",
    "eager": "#d9534f",
    "torch.compile": "#e39b35",
    "torch.compile, precision casts": "#c2b030",
    "Liger": "#57a55a",
    "Conch": "#3fa7a0",
    "FlagGems": "#4f8fd6",
    "FlashInfer": "#7c6fd0",
    "gated Triton": "#b868c0",
    "bitexact": "#e0457b",
}
MARKERS = dict(zip(COLORS, "_|osPDXv^<*"))
OPERATIONS = {"rope": "RoPE", "silu_mul": "SiLU-mul"}

plt.rcParams.update(
    {
        "svg.fonttype": "none",
        "svg.hashsalt": "bitexact",
        "font.size": 9,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.titlecolor": INK,
        "axes.edgecolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "grid.color": INK,
        "grid.alpha": 0.25,
        "axes.grid": True,
        "axes.facecolor": "none",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
        "legend.labelcolor": INK,
        "figure.constrained_layout.use": True,
    }
)


def save(figure: Any, path: Path) -> None:
    figure.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})
    plt.close(figure)
    print(f"{path}: {path.stat().st_size // 1024} KB")


def timed(entries: list[Any], operation: str) -> dict[str, list[tuple[Any, Any]]]:
    """By peer, the (case, row) pairs that were measured."""
    found: dict[str, list[tuple[Any, Any]]] = {name: [] for name in COLORS}
    for entry in entries:
        for row in entry["works"]:
            if entry["operation"] == operation and row["work"] in found and "median_us" in row:
                found[row["work"]].append((entry, row))
    return {name: pairs for name, pairs in found.items() if pairs}


def legend(figure: Any, axes: Any, columns: int) -> None:
    handles: dict[str, Any] = {}
    for axis in axes:
        handles.update({label: handle for handle, label in zip(*axis.get_legend_handles_labels())})
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns, fontsize=8)


def roofline(peers: Any, path: Path) -> None:
    """Achieved GB/s against bytes moved."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.8), sharey=True)
    for axis, (operation, title) in zip(axes, OPERATIONS.items()):
        for name, pairs in timed(peers["cases"], operation).items():
            own = name == "bitexact"
            axis.scatter(
                [entry["bytes"] / 1e6 for entry, _ in pairs],
                [row["gb_per_s"] for _, row in pairs],
                s=70 if own else 34,
                marker=MARKERS[name],
                color=COLORS[name],
                label=name,
                zorder=3 if own else 2,
            )
        axis.set(title=title, xscale="log", yscale="log", xlabel="bytes read and written, MB")
    axes[0].set_ylabel("GB/s")
    legend(figure, axes, 6)
    save(figure, path)


def equal_bits(peers: Any, path: Path) -> None:
    """Share of outputs whose bits equal eager's: the least of all cases, and the mean."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), sharex=True)
    for axis, (operation, title) in zip(axes, OPERATIONS.items()):
        shares = {
            name: [100 * row["equal_bits"] for _, row in pairs]
            for name, pairs in timed(peers["cases"], operation).items()
            if "equal_bits" in pairs[0][1] and name != "eager"
        }
        names = list(reversed(shares))
        means = [sum(shares[n]) / len(shares[n]) for n in names]
        axis.barh(names, means, color=[COLORS[n] for n in names], height=0.6)
        for at, name in enumerate(names):
            least = min(shares[name])
            text = f"{means[at]:.2f} %" if least == means[at] else f"{means[at]:.2f} % (least {least:.2f} %)"
            axis.text(2, at, text, va="center", color="white", fontsize=8)
        axis.set(title=f"{title}: outputs with eager's bits", xlim=(0, 100), xlabel="%, mean of all shapes")
        axis.grid(visible=False, axis="y")
    save(figure, path)


def growth(peers: Any, path: Path) -> None:
    """Time against tokens."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.4), sharey=True)
    for axis, (operation, title) in zip(axes, OPERATIONS.items()):
        for name, pairs in timed(peers["growth"], operation).items():
            axis.plot(
                [entry["tokens"] for entry, _ in pairs],
                [row["median_us"] for _, row in pairs],
                marker=MARKERS[name],
                color=COLORS[name],
                label=name,
            )
        axis.set(title=title, xscale="log", yscale="log", xlabel="tokens")
    axes[0].set_ylabel("microseconds a call")
    legend(figure, axes, 6)
    save(figure, path)


def parts(models: Any, path: Path) -> None:
    """Device time of a step outside matrix products and attention, by part."""
    entries = [m for m in models["models"] if m["parts_ms"]]
    if not entries:
        return print(f"no model was profiled: no {path.name}")
    names = sorted({n for m in entries for p in m["parts_ms"].values() for n in p} - {"linear", "attention"})
    colours = ["#d9534f", "#4f8fd6", "#57a55a", "#e39b35", "#7c6fd0", "#3fa7a0", "#b868c0", INK, "#8c6d4a", "#c2b030"]
    palette = {name: colours[i % len(colours)] for i, name in enumerate(names)}
    figure, axes = plt.subplots(1, len(entries), figsize=(10, 4.2))
    for axis, model in zip(axes if len(entries) > 1 else [axes], entries):
        for at, found in enumerate(model["parts_ms"].values()):
            bottom = 0.0
            for name in names:
                height = found.get(name, 0.0)
                axis.bar(at, height, bottom=bottom, color=palette[name], label=name, width=0.6)
                bottom += height
            axis.text(
                at, bottom, f"{bottom:.1f} of {sum(found.values()):.1f}", ha="center", va="bottom", fontsize=8
            )
        axis.set_xticks(range(len(model["parts_ms"])), list(model["parts_ms"]))
        axis.margins(y=0.12)
        axis.grid(visible=False, axis="x")
        axis.set(title=model["model"])
    (axes if len(entries) == 1 else axes[0]).set_ylabel("ms a step")
    legend(figure, axes if len(entries) > 1 else [axes], 8)
    save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--results", type=Path, default=Path(__file__).resolve().parent.parent / "docs" / "results"
    )
    results = parser.parse_args().results
    drawings = {"peers.json": [roofline, equal_bits, growth], "models.json": [parts]}
    for source, functions in drawings.items():
        if not (results / source).exists():
            print(f"{results / source} is not there: nothing drawn from it")
            continue
        data = json.loads((results / source).read_text(encoding="utf-8"))
        for function in functions:
            function(data, results / f"{function.__name__}.svg")


if __name__ == "__main__":
    main()
