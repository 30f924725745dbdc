"""How a run ended, in a few lines."""

from __future__ import annotations

from alray.cli.rows import counted, rows_text
from alray.cli.terminal import shown
from alray.records import Summary
from alray.report.text import accuracy, count, seconds, share


def ending_text(summary: Summary) -> str:
    """Status, accuracies, step time beside its prediction, weights, and where everything lies."""
    rows: list[tuple[str, str]] = [(summary.status, _length(summary))]
    if summary.accuracy.test is not None or summary.accuracy.validation is not None:
        splits = ("test", "validation", "train")
        told = [(name, getattr(summary.accuracy, name)) for name in splits]
        rows.append(("accuracy", ", ".join(f"{name} {accuracy(value)}" for name, value in told if value is not None)))
    rows += _by_depth(summary)
    if summary.step_time_s is not None:
        rows.append(
            (
                "step time",
                f"{seconds(summary.step_time_s)} measured, {seconds(summary.predicted_step_time_s)} predicted; "
                f"bubble {share(summary.bubble)} measured, {share(summary.predicted_bubble)} predicted",
            )
        )
        rows.append(("throughput", f"{count(_whole(summary.samples_per_s))} samples/s"))
    if summary.weights_sha256 is not None:
        rows.append(("weights_sha256", summary.weights_sha256))
    rows.append(("run folder", shown(summary.run_dir)))
    if summary.report is not None:
        rows.append(("report", shown(summary.report)))
    if summary.status != "finished":
        rows.append(("go on with", f"alray resume {shown(summary.run_dir)}"))
    return rows_text(rows)


def _length(summary: Summary) -> str:
    failures = f", through {counted(len(summary.failures), 'failure')}" if summary.failures else ""
    length = f"{counted(summary.steps, 'mini-batch')}, {counted(summary.epochs, 'epoch')}"
    return f"{length} in {seconds(summary.duration_s)}{failures}"


def _by_depth(summary: Summary) -> list[tuple[str, str]]:
    """Accuracy of every route, where there is more than the deepest."""
    name = "test" if summary.accuracy.test is not None else "validation"
    values = [(entry.depth, getattr(entry, name)) for entry in summary.accuracy_per_depth]
    if len(values) < 2 or any(value is None for _, value in values):
        return []
    return [("by depth", f"{name} " + ", ".join(f"{depth}: {accuracy(value)}" for depth, value in values))]


def _whole(value: float | None) -> float | None:
    return None if value is None else float(round(value))
