"""The report page of one run: what `templates/run.html` shows, computed from the run folder."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from alray.config.loading.yaml_text import write_yaml
from alray.config.objects import how_to_give
from alray.core.counting import counted
from alray.core.run_folder.records import Figures
from alray.core.run_folder.store import has_checkpoint
from alray.report.definitions import NO_BUBBLE, NO_PEAK, of_summary
from alray.report.figure import Exhibit, exhibits_of
from alray.report.flat import flat
from alray.report.folder import RunFolder
from alray.report.html import render_page
from alray.report.run_figures import EXHIBITS
from alray.report.run_tables import ENGINES, TABLES, MeasuredRun
from alray.report.summary import figures_of
from alray.report.table import Table
from alray.report.text import number, score, seconds, share, size

_OF_TILES = of_summary(
    samples_per_s="Samples per second",
    step_time_s="Step time",
    bubble="Bubble",
    duration_s="Duration",
    peak_memory_bytes="Peak memory",
)
_CHANGES = {
    True: ", with changes that are not committed",
    False: "",
    None: ", perhaps with changes that are not committed",
}


@dataclass(frozen=True)
class RunReport:
    """The report of a run: figures, tables and the page that has them."""

    run: RunFolder

    @cached_property
    def figures(self) -> Figures:
        return figures_of(self.run.records, self.run.plan, self.run.task_metric)

    @cached_property
    def exhibits(self) -> list[Exhibit]:
        """In the order of the page."""
        return [*exhibits_of(self.run, EXHIBITS), *exhibits_of(MeasuredRun(self.run, self.figures), TABLES)]

    def page(self) -> str:
        """The HTML page."""
        files = _files(self.run)
        return render_page(
            "run.html", self.exhibits, title=f"{self.run.name} · alray report", files=files, **self.values
        )

    @property
    def values(self) -> dict[str, Any]:
        """The values that the page shows next to the exhibits."""
        run = self.run
        environment = (
            None
            if run.environment is None
            else {key: value for key, value in run.environment.items() if key != "spec_sha256"}
        )
        given = None if environment is None else environment.pop("given")
        return {
            "run": run,
            "facts": _facts(run, self.figures),
            "doubts": self.figures.doubts,
            "tiles": _tiles(run, self.figures),
            "tile_definitions": _OF_TILES,
            "reproduce": _reproduce(run),
            "given": None if given is None else write_yaml(given),
            "environment": None
            if environment is None
            else Table(("key", "value"), tuple((key, _text(value)) for key, value in flat(environment))),
        }


def _facts(run: RunFolder, figures: Figures) -> list[str]:
    """Describe the run in a few phrases."""
    replicas = f" by {figures.replicas} replicas" if figures.replicas > 1 else ""
    facts = [
        f"{figures.method.replace('_', ' ')}, schedule {figures.schedule}",
        counted(figures.stages, "stage") + replicas,
        f"partition {figures.partition}",
    ]
    return [*facts, f"seed {run.summary.seed}", ENGINES[run.summary.engine]] if run.summary else facts


def _tiles(run: RunFolder, figures: Figures) -> list[tuple[str, str, str]]:
    """The most important figures: name, value and what belongs to it."""
    test, of_test = None, "not evaluated"
    if evaluations := run.evaluations:
        last = evaluations[-1]
        is_final = run.summary is not None and last.step == figures.steps
        of = "of the final weights" if is_final else f"after {last.step:,} mini-batches"
        test, of_test = last.test, f"{of}; validation {score(last.validation)}"
    metric = figures.measures
    best, of_best = None, f"no validation {metric.title} was measured"
    if figures.best:
        best = figures.best.validation
        of_best = f"after {figures.best.step:,} mini-batches; test there {score(figures.best.test)}"
        if not has_checkpoint(run.path, figures.best.step):
            of_best += "; its weights were not kept"
    predicted_bubble = NO_BUBBLE if figures.predicted_bubble is None else f"predicted {share(figures.predicted_bubble)}"
    peak = max((peak for peak in figures.peak_memory_bytes if peak is not None), default=None)
    return [
        (f"Test {metric.title}", score(test), of_test),
        (f"Best validation {metric.title}", score(best), of_best),
        ("Samples per second", number(figures.samples_per_s), "over all replicas"),
        ("Step time", seconds(figures.step_time_s), _step_time(figures)),
        ("Bubble", share(figures.bubble), predicted_bubble),
        ("Mini-batches", number(figures.steps), f"{figures.epochs:.4g} epochs, {figures.samples:,} samples"),
        ("Duration", seconds(_duration_s(run)), counted(len(figures.failures), "failure")),
        ("Peak memory", size(peak), NO_PEAK if peak is None else "of the largest stage"),
    ]


def _step_time(figures: Figures) -> str:
    predicted = f"predicted {seconds(figures.predicted_step_time_s)}"
    if figures.step_time_quartiles_s is None:
        return predicted
    low, high = map(seconds, figures.step_time_quartiles_s)
    return f"{predicted}; half of them took {low} to {high}"


def _duration_s(run: RunFolder) -> float | None:
    """How long the run took; without a summary, until its last record."""
    if run.summary is not None:
        return run.summary.duration_s
    return run.records[-1].time_s if run.records else None


def _reproduce(run: RunFolder) -> list[tuple[str, str]]:
    """The values needed to run this again, and those that show that it was the same: name and value."""
    environment = run.environment or {}
    found = [("do it again", call_again("reproduce", str(run.path), environment.get("objects") or ()))]
    if command := environment.get("command"):
        found.append(("begun by", _typed(command)))
        again = dict.fromkeys(_typed(each) for each in environment.get("resumed_by") or ())
        found += [("resumed by", each) for each in again]
    git = environment.get("git")
    if git is not None:
        found.append(("git commit", git["commit"] + _CHANGES[git["dirty"]]))
    if environment:
        packages = environment.get("packages") or {}
        names = {
            name: environment.get(name, packages.get(name)) for name in ("alray", "python", "torch", "ray", "numpy")
        }
        found.append(("versions", ", ".join(f"{name} {version}" for name, version in names.items() if version)))
        found += (environment.get("brought_by") or {}).items()
        found.append(
            ("machine", ", ".join(str(environment[key]) for key in ("device", "platform") if key in environment))
        )
    if run.summary is not None:
        found.append(("seed", str(run.summary.seed)))
        if run.summary.weights_sha256:
            found.append(("parameters", number(run.summary.parameters)))
            found.append(("SHA-256 of the final weights", run.summary.weights_sha256))
    return [(name, value) for name, value in found if value]


def call_again(command: str, path: str, objects: Sequence[str]) -> str:
    """A command of alray as a user types it; where a run needs objects, which no file has, its call in Python."""
    if objects:
        return f"alray.{command}({path!r}, {how_to_give(objects)})"
    return shlex.join(["alray", command, path])


def _typed(command: Sequence[str]) -> str:
    """What began a run: a command of alray as a user types it, or the words of a Python program."""
    program = Path(command[0])
    if program.name == "alray" or program.parts[-2:] == ("alray", "__main__.py"):
        return shlex.join(["alray", *command[1:]])
    return f"a Python program: {shlex.join(command)}"


def _files(run: RunFolder) -> list[str]:
    """The files of the run folder that the page links: those that are there."""
    logs = [f"logs/{log.name}" for log in (run.path / "logs").glob("*.log")] if isinstance(run.path, Path) else []
    names = ["records.jsonl", "summary.json", "plan.json", "spec.yaml", "environment.json"]
    return [name for name in names if (run.path / name).is_file()] + sorted(logs)


def _text(value: Any) -> str:
    """A value as one text; the entries of a list are joined by commas."""
    if isinstance(value, list):
        return ", ".join(str(item) for item in value) or "none"
    return "" if value is None else str(value)
