"""The parts of the page that tell what was learned: headline, losses, accuracies, accuracy per depth."""

from __future__ import annotations

from html import escape

from alray.records import DepthAccuracy, EngineName, EvaluationRecord
from alray.report.curves import accuracy_curves, loss_curves
from alray.report.folder import RunFolder
from alray.report.line_chart import line_chart
from alray.report.summary import Figures
from alray.report.text import Markup, accuracy, count, meter, seconds, share, size, table

_STEPS = "mini-batches completed"
_ENGINES: dict[EngineName, str] = {
    "ray": "Ray actors",
    "ray_train": "Ray Train with torch's DDP",
    "inline": "in one process (inline)",
}


def headline(run: RunFolder, figures: Figures) -> str:
    """Name, what was run, and the figures one looks for first."""
    status = run.summary.status if run.summary else "unfinished"
    said = {"unfinished": "no summary was written: the run goes on, or it was killed"}.get(status, status)
    parts = [
        f"{figures.method.replace('_', ' ')}, schedule {figures.schedule}",
        _number(figures.stages, "stage") + (f" by {figures.replicas} replicas" if figures.replicas > 1 else ""),
        f"partition {figures.partition}",
    ]
    if run.summary:
        parts.append(f"seed {run.summary.seed}")
        parts.append(_ENGINES[run.summary.engine])
    return (
        f'<h1>{escape(run.name)}</h1><p class="sub"><span class="status {status}">{escape(said)}</span> · '
        f"{escape(' · '.join(parts))}</p>{_tiles(run, figures)}{_weights(run)}"
    )


def losses(run: RunFolder) -> str:
    """One chart per loss, a line per component."""
    charts = [
        line_chart(curves, title=f"{name.replace('_', ' ')} loss", y_label="loss of a mini-batch", x_label=_STEPS)
        for name, curves in loss_curves(run.kept).items()
    ]
    if not charts:
        return '<h2>Losses</h2><p class="none">No mini-batch was recorded.</p>'
    return f'<h2>Losses</h2><div class="{"pair" if len(charts) > 1 else "single"}">{"".join(charts)}</div>'


def accuracies(run: RunFolder) -> str:
    """Accuracy over the course of the run, and per depth at the last evaluation."""
    evaluations = [record for record in run.kept if isinstance(record, EvaluationRecord)]
    if not evaluations:
        return '<h2>Accuracy</h2><p class="none">The run made no evaluation.</p>'
    chart = line_chart(accuracy_curves(run.kept), title="Accuracy", y_label="accuracy", x_label=_STEPS, scale="even")
    last = evaluations[-1]
    depth = _per_depth(last.per_depth)
    heading = f"<figcaption><b>Accuracy per depth</b> · after {last.step:,} mini-batches</figcaption>"
    return (
        f'<h2>Accuracy</h2><div class="pair">{chart}<figure>{heading}{depth}</figure></div>'
        '<p class="note">Training accuracy is measured without augmentation. '
        "A route of depth n uses the first n components only.</p>"
    )


def _tiles(run: RunFolder, figures: Figures) -> str:
    evaluations = [record for record in run.kept if isinstance(record, EvaluationRecord)]
    peaks = [peak for peak in figures.peak_memory_bytes if peak is not None]
    tiles = [
        _accuracy_tile(evaluations, figures),
        (
            "Best validation accuracy",
            accuracy(figures.best.validation if figures.best else None),
            f"after {figures.best.step:,} mini-batches; test there {accuracy(figures.best.test)}"
            if figures.best
            else "no validation accuracy was measured",
        ),
        ("Samples per second", count(figures.samples_per_s), "over all replicas"),
        ("Step time", seconds(figures.step_time_s), f"predicted {seconds(figures.predicted_step_time_s)}"),
        ("Bubble", share(figures.bubble), f"predicted {share(figures.predicted_bubble)}"),
        (
            "Mini-batches",
            count(figures.steps),
            f"{figures.epochs:.4g} epochs, {figures.samples:,} samples",
        ),
        (
            "Duration",
            seconds(run.summary.duration_s if run.summary else None),
            f"{_number(len(figures.failures), 'failure')}",
        ),
        ("Peak memory", size(max(peaks, default=None)), "of the largest stage"),
    ]
    return '<dl class="tiles">' + "".join(_tile(*tile) for tile in tiles) + "</dl>"


def _accuracy_tile(evaluations: list[EvaluationRecord], figures: Figures) -> tuple[str, str, str]:
    """Test accuracy of the final weights, or of the last evaluation, which the tile then says."""
    if not evaluations:
        return "Test accuracy", accuracy(None), "not evaluated"
    last = evaluations[-1]
    of = "of the final weights" if last.step == figures.steps else f"after {last.step:,} mini-batches"
    return "Test accuracy", accuracy(last.test), f"{of}; validation {accuracy(last.validation)}"


def _tile(name: str, value: str, more: str) -> str:
    return f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(more)}</small></dd></div>"


def _weights(run: RunFolder) -> str:
    if run.summary is None or run.summary.weights_sha256 is None:
        return ""
    return (
        f'<p class="note">{run.summary.parameters:,} parameters. SHA-256 of the final weights: '
        f"<code>{escape(run.summary.weights_sha256)}</code></p>"
    )


def _per_depth(depths: list[DepthAccuracy]) -> str:
    if not depths:
        return '<p class="none">No route was evaluated.</p>'
    rows = []
    for entry in depths:
        shown = entry.test if entry.test is not None else entry.validation
        bar = meter(shown) if shown is not None else Markup("")
        rows.append([str(entry.depth), accuracy(entry.train), accuracy(entry.validation), accuracy(entry.test), bar])
    return table(["depth", "train", "validation", "test", ""], rows)


def _number(value: int, noun: str) -> str:
    return f"{value} {noun}" if value == 1 else f"{value} {noun}s"
