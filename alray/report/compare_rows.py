"""The tables of a comparison as rows of text, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from alray.report.compare import Comparison, Group, Spread
from alray.report.text import NOT_MEASURED, accuracy, count, seconds, share, size


@dataclass(frozen=True)
class Rows:
    """A table: its columns, and a row of as many texts for each entry; the first is its name."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def accuracy_rows(comparison: Comparison) -> Rows:
    """What was run, how it ended, and how well it did at the evaluation that counts."""
    head = ("run", "method", "schedule", "seeds", "status", "chosen after", "validation", "test")
    return Rows(
        head,
        tuple(
            (
                group.label,
                group.method.replace("_", " "),
                f"{group.first.figures.schedule}, {group.first.figures.stages}",
                " ".join(str(run.seed) for run in group.runs),
                group.status,
                _chosen_steps(group),
                shown(group.accuracy("validation"), accuracy),
                shown(group.accuracy("test"), accuracy),
            )
            for group in comparison.groups
        ),
    )


def depth_rows(comparison: Comparison) -> Rows:
    """Accuracy of the route of every depth, on the set that `Comparison.split` names."""
    depths = sorted({depth for group in comparison.groups for depth in group.depths})
    return Rows(
        ("run", *(f"depth {depth}" for depth in depths)),
        tuple(
            (group.label, *(shown(group.accuracy(comparison.split, depth), accuracy) for depth in depths))
            for group in comparison.groups
        ),
    )


def bag_rows(comparison: Comparison) -> Rows:
    """The bag of embeddings beside the whole network, for every group that has one."""
    return Rows(
        ("bag of embeddings", "its test", "whole network"),
        tuple(
            (group.label, shown(group.accuracy("test", 1), accuracy), shown(group.accuracy("test"), accuracy))
            for group in comparison.groups
            if group.has_bag_of_embeddings
        ),
    )


def cost_rows(comparison: Comparison) -> Rows:
    """Parameters, memory and time."""
    head = ("run", "effective", "affiliate", "peak memory", "step time", "predicted", "samples/s", "bubble", "duration")
    return Rows(head, tuple(_costs(group) for group in comparison.groups))


def _costs(group: Group) -> tuple[str, ...]:
    return (
        group.label,
        count(group.first.effective_parameters),
        count(group.first.affiliate_parameters),
        shown(group.spread(lambda run: run.peak_memory_bytes), size),
        shown(group.spread(lambda run: run.figures.step_time_s), seconds),
        shown(group.spread(lambda run: run.figures.predicted_step_time_s), seconds),
        shown(group.spread(lambda run: run.figures.samples_per_s), _whole),
        shown(group.spread(lambda run: run.figures.bubble), share),
        shown(group.spread(lambda run: run.duration_s), seconds),
    )


def _chosen_steps(group: Group) -> str:
    """Mini-batches after which the evaluations that count were made, from the fewest to the most."""
    steps = sorted({run.chosen.step for run in group.counted if run.chosen})
    if not steps:
        return NOT_MEASURED
    return count(steps[0]) if len(steps) == 1 else f"{count(steps[0])} to {count(steps[-1])}"


def _whole(value: float | None) -> str:
    return count(None if value is None else float(round(value)))


def shown(value: Spread | None, form: Callable[[float | None], str]) -> str:
    """The mean, and of several runs the deviation behind it."""
    if value is None:
        return form(None)
    if value.deviation is None:
        return form(value.mean)
    return f"{form(value.mean)} ± {form(value.deviation)}"
