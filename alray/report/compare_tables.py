"""The tables of a comparison as rows of text, for the terminal and for the page."""

from __future__ import annotations

from alray.core.counting import counted
from alray.core.errors import printable
from alray.core.run_folder.records import Figures
from alray.report.compare import ComparedRuns, Group
from alray.report.single_step import HEAD, rows_of
from alray.report.spread import shown
from alray.report.table import Table
from alray.report.text import NOT_MEASURED, number, score, seconds, share, size, whole


def score_table(comparison: ComparedRuns) -> Table:
    """The spec of each group, how it ended, and its metric at the chosen evaluations."""
    head = ("run", "method", "schedule", "engine", "seeds", "status", "chosen after", "validation", "test")
    return Table(
        head,
        tuple(
            (
                group.label,
                group.method.replace("_", " "),
                _schedule(group.first.figures),
                group.first.engine,
                " ".join(str(run.seed) for run in group.runs),
                group.status,
                _chosen_steps(group),
                shown(group.score("validation"), score),
                shown(group.score("test"), score),
            )
            for group in comparison.groups
        ),
    )


def depth_table(comparison: ComparedRuns) -> Table:
    """The metric of each route, on the set that `ComparedRuns.split` names."""
    depths = sorted({depth for group in comparison.groups for depth in group.depths})
    return Table(
        ("run", *(f"depth {depth}" for depth in depths)),
        tuple(
            (group.label, *(shown(group.score(comparison.split, depth), score) for depth in depths))
            for group in comparison.groups
        ),
    )


def cost_table(comparison: ComparedRuns) -> Table:
    """Parameters, memory and time of each group."""
    head = ("run", "effective", "affiliate", "peak memory", "step time", "predicted", "samples/s", "bubble", "duration")
    return Table(head, tuple(_costs(group) for group in comparison.groups))


def step_table(comparison: ComparedRuns) -> Table:
    """The mean stage of a mini-batch of each group: two rows, predicted and measured."""
    rows = rows_of((group.label, group.single_step.step) for group in comparison.groups)
    return Table(("run", "source", *HEAD), rows)


def difference_table(comparison: ComparedRuns) -> Table:
    """The keys in which the specs differ, with the value of each group."""
    head = ("key", *(group.label for group in comparison.groups))
    return Table(head, tuple((key, *values) for key, values in comparison.differences.items()))


def run_table(comparison: ComparedRuns) -> Table:
    """Every run."""
    head = (
        "folder",
        "run",
        "seed",
        "engine",
        "status",
        "mini-batches",
        "chosen after",
        "validation",
        "test",
        "duration",
    )
    return Table(
        (*head, "failure", "git commit", "SHA-256 of the weights"),
        tuple(
            (
                printable(str(run.folder.path)),
                group.label,
                str(run.seed),
                run.engine,
                run.status,
                number(run.figures.steps),
                number(run.chosen.step if run.chosen else None),
                score(run.score("validation")),
                score(run.score("test")),
                seconds(run.duration_s),
                run.figures.failures[-1].message if run.figures.failures else "",
                (run.environment.get("git") or {}).get("commit", ""),
                run.weights_sha256 or "",
            )
            for group in comparison.groups
            for run in group.runs
        ),
    )


def _costs(group: Group) -> tuple[str, ...]:
    return (
        group.label,
        number(group.first.effective_parameters),
        number(group.first.affiliate_parameters),
        shown(group.spread(lambda run: run.peak_memory_bytes), size),
        shown(group.spread(lambda run: run.figures.step_time_s), seconds),
        shown(group.spread(lambda run: run.figures.predicted_step_time_s), seconds),
        shown(group.spread(lambda run: run.figures.samples_per_s), whole),
        shown(group.spread(lambda run: run.figures.bubble), share),
        shown(group.spread(lambda run: run.duration_s), seconds),
    )


def _schedule(figures: Figures) -> str:
    replicas = f", {counted(figures.replicas, 'replica')}" if figures.replicas > 1 else ""
    return f"{figures.schedule}, {counted(figures.stages, 'stage')}{replicas}"


def _chosen_steps(group: Group) -> str:
    """The number of mini-batches before the chosen evaluations, as a range if the runs differ."""
    steps = sorted({run.chosen.step for run in group.counted if run.chosen})
    return " to ".join(map(number, dict.fromkeys((steps[0], steps[-1])))) if steps else NOT_MEASURED
