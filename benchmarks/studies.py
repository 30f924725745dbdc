"""Run the studies of laptop size, keep their reports in docs/studies, and write docs/findings.md of them.

python -m benchmarks.studies [--beside] [NAME ...]     without names: all of them, as long as they have no report
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from alray.config.study.load import read_study_file
from benchmarks import findings_page, predictions_page

ROOT = Path(__file__).parents[1]
SPECS = ROOT / "specs" / "studies" / "laptop"
REPORTS = ROOT / "docs" / "studies"
FOLDERS = ROOT / "studies"


def run(name: str) -> float:
    """Run a study, or what is left of one that was stopped. Returns the seconds that this took."""
    folder = FOLDERS / name
    how = ["--resume", str(folder)] if folder.exists() else [str(SPECS / f"{name}.yaml"), "--output", str(folder)]
    begun_s = time.monotonic()
    subprocess.run([sys.executable, "-m", "alray", "study", *how], check=True)
    return time.monotonic() - begun_s


def keep(name: str, minutes: float, *, beside: bool = False) -> None:
    """Copy the report without the page, of which nine tenths are the library that draws it, and without the PDFs, which
    show the same as the SVGs.

    Args:
        beside: whether other programs ran at the same time. The report says so.
    """
    folder, kept = FOLDERS / name, REPORTS / name
    shutil.rmtree(kept, ignore_errors=True)
    for part in ("figures", "tables"):
        shutil.copytree(folder / part, kept / part, ignore=shutil.ignore_patterns("*.pdf"))
    summary = json.loads((folder / "study.json").read_text(encoding="utf-8"))
    answers = findings_page.kept(read_study_file(folder / "study.yaml"), summary)
    (kept / findings_page.KEPT).write_text(json.dumps(answers, indent=1) + "\n", encoding="utf-8")
    title, rest = (folder / "report.md").read_text(encoding="utf-8").split("\n", 1)
    spec = f"../../../specs/studies/laptop/{name}.yaml"
    how = f"`alray study specs/studies/laptop/{name}.yaml` ran [this study]({spec}) in {minutes:.1f} minutes"
    how += f", {findings_page.BESIDE}." if beside else "."
    (kept / "README.md").write_text(f"{title}\n\n{how}\n{rest}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies")
    parser.add_argument("--beside", action="store_true", help="other programs run at the same time")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a study; none: all that have no report")
    given = parser.parse_args()
    without = sorted(path.stem for path in SPECS.glob("*.yaml") if not (REPORTS / path.stem).exists())
    for name in given.names or without:
        seconds = run(name)
        status = json.loads((FOLDERS / name / "study.json").read_text(encoding="utf-8"))["status"]
        if status != "finished":
            raise SystemExit(f"the study {name} was {status}; the same command goes on with it")
        keep(name, seconds / 60, beside=given.beside)
        findings_page.main()
        predictions_page.main()


if __name__ == "__main__":
    main()
