"""The results of a run, as `alray run` and `alray.run` show them at the end."""

from __future__ import annotations

from collections.abc import Callable

from alray.core.counting import counted
from alray.core.run_folder.records import Best, Summary
from alray.report.definitions import NO_BUBBLE
from alray.report.text import score, seconds, share, whole


def summary_rows(summary: Summary, path: Callable[[str], str] = str) -> list[tuple[str, str]]:
    """The results of a run: status, accuracies or the task's metric, step time next to its prediction, weights and
    paths.

    Args:
        path: how a path is shown.
    """
    rows: list[tuple[str, str]] = [(summary.status, _length(summary))]
    scores, metric = summary.scores, summary.measures
    splits = [(name, getattr(scores, name)) for name in ("test", "validation", "train")]
    if scores.test is not None or scores.validation is not None:
        rows.append((metric.title, ", ".join(f"{name} {score(value)}" for name, value in splits if value is not None)))
    rows += _by_depth(summary)
    if summary.best is not None and summary.best.step != summary.steps:
        rows.append(("best", _best(summary.best)))
    if summary.step_time_s is not None:
        step = f"{seconds(summary.step_time_s)} measured, {seconds(summary.predicted_step_time_s)} predicted"
        bubble = f"bubble {share(summary.bubble)} measured, {share(summary.predicted_bubble)} predicted"
        rows.append(("step time", step if summary.bubble is None else f"{step}; {bubble}"))
        if summary.bubble is None:
            rows.append(("bubble", NO_BUBBLE))
        rows.append(("throughput", f"{whole(summary.samples_per_s)} samples/s at this step time"))
        rows += [("doubt", doubt) for doubt in summary.doubts]
    if summary.weights_sha256 is not None:
        rows.append(("weights_sha256", summary.weights_sha256))
    rows.append(("run folder", path(summary.run_dir)))
    if summary.report is not None:
        rows.append(("report", path(summary.report)))
    return rows


def _length(summary: Summary) -> str:
    failures = f", with {counted(len(summary.failures), 'failure')}" if summary.failures else ""
    length = f"{counted(summary.steps, 'mini-batch')}, {counted(summary.epochs, 'epoch')}"
    return f"{length} in {seconds(summary.duration_s)}{failures}"


def _best(best: Best) -> str:
    use = "use it with --best" if best.checkpoint is not None else "its weights were not kept"
    return f"validation {score(best.validation)} after mini-batch {best.step:,}; {use}"


def _by_depth(summary: Summary) -> list[tuple[str, str]]:
    """The metric of every route; empty if there is only one."""
    name = "test" if summary.scores.test is not None else "validation"
    values = [(entry.depth, getattr(entry, name)) for entry in summary.scores_per_depth]
    if len(values) < 2 or any(value is None for _, value in values):
        return []
    return [("by depth", f"{name} " + ", ".join(f"{depth}: {score(value)}" for depth, value in values))]
