"""The measured tables of docs/pipelines.md, from published figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.filled import with_rows

PAGE = Path(__file__).parents[1] / "docs" / "pipelines.md"
_SCHEDULES = "| schedule | step over that of `1f1b` | predicted / measured | bubble | predicted bubble |"
_OTHERS = "| step of ... over that of ... | cases | median | over the cases |"


def page(results: Path) -> str:
    """The page with the figures of all results that there are."""
    text = PAGE.read_text(encoding="utf-8")
    found = {name: _read(results, name) for name in SECTIONS if (results / f"{name}.json").exists()}
    rows = {name: SECTIONS[name](result) for name, result in found.items()}
    schedules = rows.pop("schedules", [])
    return with_rows(with_rows(text, _SCHEDULES, schedules), _OTHERS, [row for each in rows.values() for row in each])


def schedules(result: dict[str, Any]) -> list[str]:
    """A row for each schedule, on one network."""
    runs = result["runs"]
    return [
        f"| `{name}` | {_of_repeats(entries, runs['1f1b'])} | {_predicted(entries):.2f} "
        f"| {_percent(entries, 'bubble')} | {_percent(entries, 'predicted_bubble')} |"
        for name, entries in runs.items()
    ]


def engines(result: dict[str, Any]) -> list[str]:
    """alray's executor beside torch's."""
    cases = {name: median(case["ratios"]) for name, case in result.items()}
    sleeping = {name for name in cases if "sleeping" in name}
    what = "alray's executor over that of torch.distributed.pipelining"
    return [
        *_row(f"{what}, two stages", [ratio for name, ratio in cases.items() if name not in sleeping]),
        *_row("the same, 8 and 16 stages that sleep", [cases[name] for name in sleeping]),
    ]


def split_backward(result: dict[str, Any]) -> list[str]:
    """The lists of zero_bubble beside those of 1f1b."""
    ratios = [median(case["ratios"]) for case in result.values()]
    return _row("`zero_bubble` over `1f1b`, 8 and 16 stages that sleep", ratios)


def plain_pipelines(result: dict[str, Any]) -> list[str]:
    """alray as users run it, beside a plain script."""
    ratios = {
        name: median(entry["alray_s"] / entry["plain_s"] for entry in case["repeats"]) for name, case in result.items()
    }
    streamed = [ratio for name, ratio in ratios.items() if name.endswith("streamed")]
    pipelines = [ratio for name, ratio in ratios.items() if not name.endswith("streamed")]
    return [
        *_row("`alray run` over a plain script of torch.distributed.pipelining, two stages", pipelines),
        *_row("streamed DGL by `alray run` over two plain processes with a queue", streamed),
    ]


def recomputation(result: dict[str, Any]) -> list[str]:
    """Recomputation before and after the gradient arrives."""
    ratios = [median(case["ratios"]) for case in result.values()]
    return _row("`activation_checkpointing` with C before the gradient over C after it", ratios)


def laws(result: dict[str, Any]) -> list[str]:
    """The four schedules of local losses beside their laws."""
    ratios = [
        median(entry["step_time_s"] / entry["clocks_law_s"] for entry in entries) for entries in result["runs"].values()
    ]
    return _row(f"schedules of local losses over their law, {result['stages']} stages that sleep", ratios)


def uneven(result: dict[str, Any]) -> list[str]:
    """The cut that the plan chose, and the even one."""
    return [
        *_row("the cut that the plan chose over the fastest of all, uneven VGG", result["over_best"]),
        *_row("the even cut over the one that the plan chose, uneven VGG", result["over_uniform"]),
    ]


def step_ratios(entries: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]]) -> list[float]:
    """The step times of runs over those of others in the same repeats."""
    return [own["step_time_s"] / other["step_time_s"] for own, other in zip(entries, others, strict=True)]


def _read(results: Path, name: str) -> Any:
    return json.loads((results / f"{name}.json").read_text(encoding="utf-8"))


def _row(what: str, ratios: Sequence[float]) -> list[str]:
    """No row where there is no case."""
    if not ratios:
        return []
    return [f"| {what} | {len(ratios)} | {median(ratios):.2f} | {min(ratios):.2f} to {max(ratios):.2f} |"]


def _of_repeats(entries: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]]) -> str:
    """The step times over those of others in the same repeats: the median, and the smallest and largest."""
    found = step_ratios(entries, others)
    return f"{median(found):.2f} ({min(found):.2f} to {max(found):.2f})"


def _predicted(entries: Sequence[dict[str, Any]]) -> float:
    return float(median(entry["predicted_step_time_s"] / entry["step_time_s"] for entry in entries))


def _percent(entries: Sequence[dict[str, Any]], key: str) -> str:
    return f"{100 * median(entry[key] for entry in entries):.1f} %"


SECTIONS: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "schedules": schedules,
    "engines": engines,
    "plain_pipelines": plain_pipelines,
    "split_backward": split_backward,
    "recomputation": recomputation,
    "laws": laws,
    "uneven": uneven,
}
"""The rows of each result, by its file's name, in the page's order."""
