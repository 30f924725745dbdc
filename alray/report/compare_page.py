"""The page of a comparison: curves, tables and what differs, in one self-contained HTML file."""

from __future__ import annotations

from html import escape
from pathlib import Path

from alray import __version__
from alray.report.compare import Comparison
from alray.report.compare_curves import AXES, curve_split, depth_curves, training_curves
from alray.report.compare_rows import Rows, accuracy_rows, bag_rows, cost_rows, depth_rows
from alray.report.document import write_document
from alray.report.line_chart import line_chart
from alray.report.single_step_section import HEAD, cells
from alray.report.text import NOT_MEASURED, accuracy, count, seconds, table


def write_comparison(comparison: Comparison, path: Path) -> Path:
    """Write the page to `path` and return it. The file is the old one or the new one, whole."""
    names = [group.label for group in comparison.groups]
    return write_document(
        path,
        title="Comparison · alray",
        sections=[
            f'<h1>Comparison</h1><p class="sub">{escape(" · ".join(names))}</p>{_notes(comparison)}',
            _accuracies(comparison),
            _training(comparison),
            _depths(comparison),
            _costs(comparison),
            _single_steps(comparison),
            _differences(comparison),
            _runs(comparison),
        ],
        footer=f"alray {__version__} · made from the records.jsonl, plan.json and spec.yaml of each run",
    )


def _accuracies(comparison: Comparison) -> str:
    bags = bag_rows(comparison)
    return (
        f"<h2>Accuracy</h2>{_table(accuracy_rows(comparison))}"
        '<p class="note">Runs that differ by their seed alone are one row: mean ± sample standard deviation of those '
        "that finished. The evaluation that counts is the one with the best validation accuracy; nothing is chosen on "
        f"the test set.</p>{_table(bags) if bags.rows else ''}"
    )


def _training(comparison: Comparison) -> str:
    split = curve_split(comparison)
    charts = [
        line_chart(
            training_curves(comparison, axis),
            title=f"{split.capitalize()} accuracy against {axis}",
            y_label=f"{split} accuracy",
            x_label=label,
            scale="even",
        )
        for axis, (label, _) in AXES.items()
        if training_curves(comparison, axis)
    ]
    if not charts:
        return '<h2>Over the course of training</h2><p class="none">No run made an evaluation.</p>'
    return (
        f'<h2>Over the course of training</h2><div class="pair">{"".join(charts)}</div>'
        '<p class="note">Of several seeds, the line is their mean, the band reaches from lowest to highest.</p>'
    )


def _depths(comparison: Comparison) -> str:
    curves = depth_curves(comparison)
    if not curves:
        return ""
    chart = line_chart(
        curves,
        title=f"{comparison.split.capitalize()} accuracy per depth",
        y_label=f"{comparison.split} accuracy",
        x_label="depth of the route",
        scale="even",
    )
    return (
        f'<h2>Accuracy per depth</h2>{_table(depth_rows(comparison))}<div class="single">{chart}</div>'
        f'<p class="note">On the {comparison.split} set, at the evaluation that counts. A route of depth n uses '
        "the first n components only; without a label chain the only route is the whole network.</p>"
    )


def _costs(comparison: Comparison) -> str:
    return (
        f"<h2>Parameters, memory and time</h2>{_table(cost_rows(comparison))}"
        '<p class="note">Effective parameters are those that inference at full depth uses: every encoder f and label '
        "decoder h, and the last bridge b or the head. The rest are affiliate: only training uses them. Memory is that "
        "of the largest stage; step times are medians after warm-up, beside the plan's prediction.</p>"
    )


def _single_steps(comparison: Comparison) -> str:
    rows = []
    for group in comparison.groups:
        step = group.single_step.step
        rows.append([group.label, "predicted", *cells(step.predicted)])
        rows.append(["", "measured", *cells(step.measured)])
    return (
        f"<h2>The single step</h2>{table(['run', '', *HEAD], rows, long=(0, 1))}"
        '<p class="note">Milliseconds of one mini-batch, means after warm-up and over the stages, of the first run of '
        "each row.</p>"
    )


def _differences(comparison: Comparison) -> str:
    if not comparison.differences:
        return ""
    rows = [[key, *values] for key, values in comparison.differences.items()]
    names = [group.label for group in comparison.groups]
    columns = tuple(range(len(names) + 1))
    return f"<h2>What differs in the specs</h2>{table(['key', *names], rows, long=columns)}"


def _runs(comparison: Comparison) -> str:
    rows = []
    for group in comparison.groups:
        for run in group.runs:
            failures = run.figures.failures
            rows.append(
                [
                    str(run.folder.path),
                    group.label,
                    str(run.seed),
                    run.status,
                    count(run.figures.steps),
                    count(run.chosen.step) if run.chosen else NOT_MEASURED,
                    accuracy(run.accuracy("validation")),
                    accuracy(run.accuracy("test")),
                    seconds(run.duration_s),
                    failures[-1].message if failures else "",
                ]
            )
    head = [
        "folder",
        "run",
        "seed",
        "status",
        "mini-batches",
        "chosen after",
        "validation",
        "test",
        "duration",
        "failure",
    ]
    return f"<h2>Every run</h2>{table(head, rows, long=(0, 1, 9))}"


def _notes(comparison: Comparison) -> str:
    return "".join(f'<p class="note">{escape(note)}</p>' for note in comparison.notes)


def _table(rows: Rows) -> str:
    return table(rows.head, rows.rows, long=(0,))
