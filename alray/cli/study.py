"""`alray study`."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from alray.api.console.layout import Page
from alray.cli.options import Address, AllowCode, Json, Overrides
from alray.cli.terminal import INTERRUPTED, Terminal, shown, terminal
from alray.core.errors import AlrayError, RequestError

if TYPE_CHECKING:
    from alray.studies.records import StudySummary
    from alray.studies.report import StudyReport


def study(
    spec: Annotated[Path | None, typer.Argument(metavar="SPEC", help="A study spec.")] = None,
    overrides: Overrides = None,
    *,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="List the points and what their trials ask for, and run none; with --resume those that are left.",
        ),
    ] = False,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Continue the study in this folder, instead of SPEC. It may grow: search.trials=40.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The study folder, new or empty.", show_default="studies/<name>-<time>"),
    ] = None,
    address: Address = None,
    allow_code: AllowCode = False,
    json: Json = False,
) -> None:
    """Run all trials of a study and write a table of its points.

    Ctrl-C ends the trials that are running. They begin anew with --resume, and so do those that were lost with their
    process or node. The exit code is 1 if trials failed or were lost; a trial that diverged is a result.
    """
    with terminal(as_json=json) as streams:
        given = overrides or []
        if resume is not None and spec is not None and "=" in str(spec):
            given, spec = [str(spec), *given], None  # in front of the overrides there is no SPEC
        if (spec is None) == (resume is None):
            raise RequestError("give either SPEC or --resume DIR", key="SPEC", hint="name one of them")
        if resume is not None and output is not None:
            raise RequestError(
                "this is for a new study, and --resume continues one in its folder",
                key="--output",
                hint="leave it out; what makes the study grow may be given, such as search.trials=40",
            )
        if dry_run:
            _dry_run(streams, spec, resume, given)
            return
        from alray.studies.study import StudyOptions, Watcher, progress_line, resume_study, run_study

        options = StudyOptions(address, output, allow_code)

        def lost(error: AlrayError) -> None:
            streams.refuse(error.problems)
            os._exit(1)  # nothing else ends the thread that waits for Ray

        watcher = Watcher(streams.tell, lambda progress: streams.tell(progress_line(progress)), lost)
        if resume is not None:
            report = resume_study(resume, given, options, watcher)
        else:
            assert spec is not None
            report = run_study(spec, given, options, watcher)
        show_study(report, streams)
        if report.summary.status == "interrupted":
            streams.tell(f"continue with  alray study --resume {shown(report.summary.study_dir)}")
            raise typer.Exit(INTERRUPTED)
        _require_results(report.summary, streams)


def _require_results(summary: StudySummary, streams: Terminal) -> None:
    """End with exit code 1 if trials failed or were lost, and say how many and what to do. Divergence is a result."""
    from alray.core.counting import counted

    of, failed = counted(summary.trials, "trial"), summary.statuses.get("failed", 0)
    if failed:
        streams.tell(f"{failed} of {of} failed; the report says why, and each trial.json")
    if summary.lost:
        resume = f"alray study --resume {shown(summary.study_dir)}"
        streams.tell(f"lost with process, node or disk: {summary.lost} of {of}; run again with  {resume}")
    if failed or summary.lost:
        raise typer.Exit(1)


def show_study(report: StudyReport, streams: Terminal) -> None:
    """Print the table of a study, or with `--json` its summary."""
    if streams.as_json:
        streams.answer(report.summary.model_dump(mode="json"))
        return
    streams.put(study_text(report, streams.page))


def study_text(report: StudyReport, page: Page) -> str:
    """The table of a study, what it found, and where its files are."""
    from alray.core.counting import counted

    summary = report.summary
    counts = f"{counted(summary.points, 'point')}, {counted(summary.trials, 'trial')}"
    table = f"{page.heading(f'{summary.study}: {counts}, {summary.outcome}')}\n{page.table(report.table)}"
    found = [f"{each.says_in_full}: {each.claim}" for each in summary.verdicts]
    if summary.skipped:
        found.append(f"skipped: {counted(len(summary.skipped), 'point')}; the report says which and why")
    found += [*summary.findings, *(f"warning: {warning}" for warning in summary.warnings)]
    results = [("study folder", shown(summary.study_dir)), ("report", shown(str(summary.report)))]
    parts = [table, "\n".join(map(page.sentence, found)), page.fields(results)]
    return "\n\n".join(part for part in parts if part)


def _dry_run(streams: Terminal, spec: Path | None, resume: Path | None, overrides: list[str]) -> None:
    """List the trials of a new study, or those that a resume would run."""
    from alray.config.study.load import load_study
    from alray.core.counting import counted
    from alray.studies.folder import STUDY, StudyFolder
    from alray.studies.forecast import forecasts

    if resume is not None:
        folder = StudyFolder.open(resume)
        grown = folder.grown(load_study(folder.path / STUDY, overrides))
        folder.require_same_code(grown)
        loaded = folder.left_of(grown)
    else:
        assert spec is not None
        loaded = load_study(spec, overrides)
    found = forecasts(loaded)
    if streams.as_json:
        trials = [{"number": each.number, "label": each.label, "overrides": each.overrides} for each in loaded.trials]
        skipped = [{"point": each.point.label, "reason": each.reason} for each in loaded.skipped]
        points = [asdict(one) for one in found]
        streams.answer({"study": loaded.study.study, "points": points, "skipped": skipped, "trials": trials})
        return
    from alray.report.table import Table

    rows = []
    for one in found:
        wants = ", ".join(f"{amount:g} {name}" for name, amount in one.resources.items())
        rows.append((one.point, str(one.trials), str(one.stages), str(one.replicas), wants))
    streams.put(streams.page.table(Table(("point", "trials", "stages", "replicas", "a trial asks for"), tuple(rows))))
    for each in loaded.skipped:
        streams.say(f"skipped: {each.point.label}: {each.reason}")
    left = " left" if resume is not None else ""
    streams.say(f"{counted(len(found), 'point')}, {counted(len(loaded.trials), 'trial')}{left}")
