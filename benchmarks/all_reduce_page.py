"""The tables of docs/replicas.md, from published figures."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

from alray.config.sections.all_reduce import ALL_REDUCES
from alray.core.parts import names_of
from alray.planning.prediction.all_reduce import LinkCost
from alray.runtime.channel.all_reduce import all_reduce_class
from benchmarks.filled import with_rows

PAGE = Path(__file__).parents[1] / "docs" / "replicas.md"
_TIMES = "| `all_reduce` | 1 KiB | 1 MiB | 64 MiB | predicted / measured |"
_COMPRESSIONS = "| `compression` | time of the all-reduce | bytes | test accuracy, digits |"
_WORKERS = "| workers | measured | 10 Gbit/s | 1 Gbit/s | 100 Mbit/s |"
_RANKS, _SIZES = 4, (2**10, 2**20, 2**26)


def page(result: dict[str, Any], of_workers: dict[str, Any]) -> str:
    """The page with its figures."""
    text = PAGE.read_text(encoding="utf-8")
    text = with_rows(with_rows(text, _TIMES, times(result)), _COMPRESSIONS, compressions(result))
    return with_rows(text, _WORKERS, workers(of_workers))


def workers(result: dict[str, Any]) -> list[str]:
    """A row for each number of workers: samples a second, and seconds to the target, measured and counted."""
    measured, counted = result["measured"], result["counted"]
    counts = sorted({*measured, *(count for steps in counted.values() for count in steps)}, key=int)
    steps, batch = measured["1"]["steps"], round(measured["1"]["samples_per_s"] * measured["1"]["step_time_s"])
    rows = []
    for count in counts:
        times = [measured.get(count, {}).get("step_time_s"), *(of_link.get(count) for of_link in counted.values())]
        rows.append(_row(count, ["-" if step_s is None else _throughput(step_s, steps, batch) for step_s in times]))
    return rows


def _throughput(step_s: float, steps: int, batch: int) -> str:
    return f"{batch / step_s:,.0f}/s, {steps * step_s:.0f} s"


def times(result: dict[str, Any]) -> list[str]:
    """A row for each all-reduce: milliseconds, and how its cost model predicts all that was measured of it."""
    rows = []
    for name in names_of("all_reduces"):
        ratios = [
            all_reduce_class(ALL_REDUCES.section(name)).seconds(cell["ranks"], cell["nbytes"], _link(result, cell))
            / cell["seconds"]
            for cell in result["cells"]
            if cell["all_reduce"] == name and cell["compression"] == "none"
        ]
        figures = [_ms(_cell(result, name, "none", nbytes)["seconds"]) for nbytes in _SIZES]
        rows.append(_row(f"`{name}`", [*figures, f"{median(ratios):.2f}"]))
    return rows


def compressions(result: dict[str, Any]) -> list[str]:
    """A row for each compression, beside none."""
    kinds = dict.fromkeys(cell["compression"] for cell in result["cells"])
    trained = {entry["compression"]: entry for entry in result["accuracy"]}
    whole_s = _cell(result, "ring", "none", _SIZES[-1])["seconds"]
    whole = trained["none"]["bytes_per_step"]
    rows = []
    for kind in kinds:
        share = _cell(result, "ring", kind, _SIZES[-1])["seconds"] / whole_s
        of = trained[kind]
        least, most = min(of["accuracies"]), max(of["accuracies"])
        accuracies = f"{100 * of['accuracy']:.1f} % ({100 * least:.1f} to {100 * most:.1f})"
        rows.append(_row(f"`{kind}`", [f"{share:.2f}", f"{of['bytes_per_step'] / whole:.1%}", accuracies]))
    return rows


def _cell(result: dict[str, Any], name: str, compression: str, nbytes: int) -> dict[str, Any]:
    wanted = (_RANKS, name, compression, nbytes)
    keys = ("ranks", "all_reduce", "compression", "nbytes")
    return next(cell for cell in result["cells"] if tuple(cell[key] for key in keys) == wanted)


def _link(result: dict[str, Any], cell: dict[str, Any]) -> LinkCost:
    entry = next(entry for entry in result["links"] if entry["ranks"] == cell["ranks"])
    return LinkCost(entry["latency_s"], entry["s_per_byte"])


def _row(name: str, figures: Iterable[str]) -> str:
    return f"| {' | '.join([name, *figures])} |"


def _ms(seconds: float) -> str:
    """Three digits."""
    ms = 1e3 * seconds
    return f"{ms:.0f} ms" if ms >= 100 else f"{ms:.1f} ms" if ms >= 10 else f"{ms:.2f} ms"
