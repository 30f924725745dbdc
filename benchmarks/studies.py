"""Run the studies of laptop size, keep their reports in docs/studies, and write docs/findings.md of them.

python -m benchmarks.studies [--beside] [NAME ...]     without names: all of them, as long as they have no report
python -m benchmarks.studies --into DIR NAME ...       the reports are kept there, for `benchmarks.again`
python -m benchmarks.studies --session NAME ...        one more session of studies that have a report, from its tables
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import vl_convert
from PIL import Image

from alray.config.study.load import read_study_file
from alray.studies.folder import StudyFolder
from benchmarks import findings_page, predictions_page
from benchmarks.committed import SESSIONS, report_of

ROOT = Path(__file__).parents[1]
SPECS = ROOT / "specs" / "studies" / "laptop"
REPORTS = ROOT / "docs" / "studies"
FOLDERS = ROOT / "studies"
ENVIRONMENT = "environment.json"
_OF_A_TRIAL = ("data_sha256", "host")
_OF_NO_TRIAL: dict[str, Any] = {"command": [], "given": {}, "spec_sha256": []}
KEPT_TABLES = ("points.csv", "trials.csv")
_SCALE = 2.0
_COLOURS = 96  # lines, bands and letters with their soft edges


def run(name: str) -> float | None:
    """Run a study, or what is left of one that was stopped.

    Returns:
        The minutes that it took; None if it was stopped before: those of a part say nothing of the whole. Ends the
        program if the study does not finish.
    """
    folder = FOLDERS / name
    resumed = folder.exists()
    how = ["--resume", str(folder)] if resumed else [str(SPECS / f"{name}.yaml"), "--output", str(folder)]
    begun_s = time.monotonic()
    subprocess.run([sys.executable, "-m", "alray", "study", *how], check=True)
    status = json.loads((folder / "study.json").read_text(encoding="utf-8"))["status"]
    if status != "finished":
        raise SystemExit(f"the study {name} was {status}; the same command goes on with it")
    return None if resumed else (time.monotonic() - begun_s) / 60


def run_session(name: str) -> None:
    """Run one more session of a study, on another day say. Where its folder is gone, it is made again from its report.

    Raises SystemExit if a session of it is under way.
    """
    folder = FOLDERS / name
    report = report_of(name)
    if not folder.exists():
        made = StudyFolder.make(report.loaded, folder)
        for record in report.results.records:
            made.write(record)
            environment = report.session_folder(record.number) / ENVIRONMENT
            shutil.copyfile(environment, made.trial_dir(record.number) / ENVIRONMENT)
    sessions = f"sessions={report.loaded.study.sessions + 1}"
    subprocess.run([sys.executable, "-m", "alray", "study", "--resume", str(folder), sessions], check=True)


def keep(name: str, minutes: float | None, *, beside: bool = False, into: Path | None = None) -> None:
    """Copy what the pages of the docs show: each figure as one small picture, the tables of points and trials as CSV,
    and the verdicts. The study folder has the rest, and running the study makes it again.

    Args:
        minutes: as `run` returned them.
        beside: whether other programs ran at the same time. The report says so.
        into: the folder of reports; None: docs/studies.

    Raises SystemExit for trials of a tree with uncommitted changes, which nobody can check out.
    """
    folder, kept = FOLDERS / name, (into or REPORTS) / name
    report = (folder / "report.md").read_text(encoding="utf-8")
    if has_changes(report):
        raise SystemExit(f"{folder}: the tree of these trials had changes; commit them, and run the study again")
    shutil.rmtree(kept, ignore_errors=True)
    for part in ("figures", "tables"):
        (kept / part).mkdir(parents=True)
    for figure in sorted((folder / "figures").glob("*.svg")):
        keep_figure(figure, kept / "figures")
    for table in KEPT_TABLES:
        shutil.copyfile(folder / "tables" / table, kept / "tables" / table)
    summary = json.loads((folder / "study.json").read_text(encoding="utf-8"))
    _keep_environments(StudyFolder.open(folder), kept)
    answers = findings_page.kept(read_study_file(folder / "study.yaml"), summary)
    (kept / findings_page.KEPT).write_text(json.dumps(answers, indent=1) + "\n", encoding="utf-8")
    title, rest = pictured(report).split("\n", 1)
    spec = Path(os.path.relpath(SPECS / f"{name}.yaml", kept)).as_posix()
    how = f"`alray study specs/studies/laptop/{name}.yaml` ran [this study]({spec})"
    how += "" if minutes is None else f" in {minutes:.1f} minutes"
    how += f", {findings_page.BESIDE}." if beside else "."
    (kept / "README.md").write_text(f"{title}\n\n{how}\n{rest}", encoding="utf-8")


def _keep_environments(folder: StudyFolder, kept: Path) -> None:
    """Keep where each session ran: of its first trial, without the names of folders."""
    for record in folder.records():
        to = kept / SESSIONS / str(record.session + 1) / ENVIRONMENT
        if not to.is_file():
            to.parent.mkdir(parents=True)
            environment = json.loads((folder.trial_dir(record.number) / ENVIRONMENT).read_text(encoding="utf-8"))
            of_all = {key: environment[key] for key in environment if key not in _OF_A_TRIAL}
            to.write_text(json.dumps(of_all | _OF_NO_TRIAL, indent=1) + "\n", encoding="utf-8")


def has_changes(report: str) -> bool:
    """Whether trials of a report ran from a tree with uncommitted changes."""
    return " with changes," in report.partition("\n## Made with\n")[2]


def keep_figure(figure: Path, folder: Path) -> None:
    """Write an SVG as a PNG of its most frequent colours, which is a tenth of its size where it has many points."""
    png = vl_convert.svg_to_png(figure.read_text(encoding="utf-8"), scale=_SCALE)
    drawn = Image.open(io.BytesIO(png)).convert("RGB")
    found, counts = np.unique(np.asarray(drawn).reshape(-1, 3), axis=0, return_counts=True)
    palette = Image.new("P", (1, 1))
    palette.putpalette(found[np.argsort(-counts)[:_COLOURS]].flatten().tolist())
    drawn.quantize(palette=palette, dither=Image.Dither.NONE).save(folder / f"{figure.stem}.png", optimize=True)


def pictured(page: str) -> str:
    """A report's page with the kept pictures in place of its SVGs, and without links to what is not kept."""
    return re.sub(r"(figures/[^\s)]+)\.svg", r"\1.png", page)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies")
    parser.add_argument("--beside", action="store_true", help="other programs run at the same time")
    parser.add_argument("--into", type=Path, metavar="DIR", help="folder of the reports; no page follows from them")
    parser.add_argument("--session", action="store_true", help="one more session of studies that have a report")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a study; none: all that have no report")
    given = parser.parse_args()
    if given.into is not None and not given.names:
        parser.error("--into needs names")
    if given.session:
        begin: Callable[[str], float | None] = run_session
        names = given.names
    else:
        begin = run
        names = given.names or sorted(path.stem for path in SPECS.glob("*.yaml") if not (REPORTS / path.stem).exists())
    # A report in docs/ changes the tree, and the studies after it would say that they ran from a tree "with changes".
    minutes = {name: begin(name) for name in names}
    for name in names:
        keep(name, minutes[name], beside=given.beside, into=given.into)
    if given.into is None:
        findings_page.main()
        predictions_page.main()


if __name__ == "__main__":
    main()
