"""The report of made-up studies: its files, and a page that is whole, small and safe."""

from __future__ import annotations

import csv
import json
import math
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from alray.config.study.points import Point
from alray.config.study.trials import Trial
from alray.core.errors import RequestError
from alray.core.run_folder.records import Best
from alray.report.figure import file_name
from alray.studies.records import Times, read_study
from alray.studies.report import write_report
from alray.studies.results import Results

from .conftest import results, study_folder, trial, trials_of_batch_sizes

ERROR = {"metric": "validation_error", "below": 0.05}
SEARCH = {"trials": 1, "space": {"optimizer.lr": {"loguniform": [1e-3, 1.0]}}}
HOSTILE = "</script><script>alert(1)</script>"


def page_of(folder: Path) -> tuple[str, str]:
    """The page without its scripts, and the text of these."""
    page = (folder / "report.html").read_text(encoding="utf-8")
    scripts = re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL)
    return re.sub(r"(<script[^>]*>).*?(</script>)", r"\1\2", page, flags=re.DOTALL), "\n".join(scripts)


def write(of: Results, tmp_path: Path) -> Path:
    """The folder of a study with its report."""
    return Path(write_report(study_folder(of, tmp_path / "out")).summary.study_dir)


def test_a_report_has_its_files_and_can_be_made_again(tmp_path: Path) -> None:
    sizes = [trial(n, {"data.batch_size": 8 * 2**n}, steps=400 // 2**n, values={"optimizer.lr": 0.1}) for n in range(3)]
    folder = study_folder(results(sizes, search=SEARCH, target=ERROR), tmp_path / "out")
    report = write_report(folder)
    names = {path.relative_to(folder.path).as_posix() for path in folder.path.glob("[ft]*es/*")}
    forms = ("svg", "pdf", "csv")
    drawn = {f"figures/{name}.{form}" for name in ("steps_to_target", "best_lr") for form in forms}
    tables = {f"tables/{name}.{form}" for name in ("points", "trials", "batch_sizes") for form in ("csv", "md", "tex")}
    assert names >= drawn | tables
    (line, *_) = csv.DictReader((folder.path / "tables/points.csv").open())
    assert (line["data.batch_size"], line["steps_to_target"], line["tried"]) == ("8", "400.0", "1")
    (finding,) = report.summary.findings
    assert finding == "all points: the critical batch size is not known, for one seed shows no spread."
    assert json.loads((folder.path / "study.json").read_text())["findings"] == [finding]

    markdown = (folder.path / "report.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"!\[[^\]]+\]\((.*?)\)", markdown))
    assert shown == {path.relative_to(folder.path).as_posix() for path in folder.path.glob("figures/*.svg")}
    assert f"- {finding}" in markdown and (folder.path / "tables/points.md").read_text(encoding="utf-8") in markdown

    def written() -> dict[Path, bytes]:
        """Without the PDFs, whose objects have no fixed order."""
        found = (path for path in folder.path.rglob("*.*") if path.is_file() and path.suffix != ".pdf")
        return {path: path.read_bytes() for path in found}

    before = written()
    (folder.path / "figures/of_an_older_report.svg").touch()
    write_report(folder)
    assert written() == before


def test_files_of_a_metric_that_is_not_finite_are_json_and_keep_it(tmp_path: Path) -> None:
    """A seed whose error is infinite does not leave its claim to the others."""
    errors = {"a": (0.1, 0.2, 0.3, math.inf), "b": (0.9, 0.8, 0.9, 0.9)}
    cells = [(name, seed) for name in errors for seed in range(4)]
    ran = {"metric": "mean_squared_error"}
    trials = [
        trial(n, {"variant": name}, seed=seed, validation=errors[name][seed], ran=ran)
        for n, (name, seed) in enumerate(cells)
    ]
    beside = {"figure": "validation", "of": {"variant": "a"}, "minus": [{"variant": "b"}], "below": 0}
    folder = write(results(trials, verdicts=[{"claim": "a errs less", **beside}]), tmp_path)

    def refused(constant: str) -> None:
        pytest.fail(f"no JSON: {constant}")

    for file in folder.rglob("*.json"):
        json.loads(file.read_text(), parse_constant=refused)
    study = read_study(folder / "study.json")
    assert [each.answer for each in study.verdicts] == ["not decided by this study"]
    assert study.rows[0]["figures"]["validation"]["mean"] is None


def test_a_study_of_times_shows_no_accuracy(tmp_path: Path) -> None:
    took = Times(training_s=1.0, epoch_s=0.5, forward_s=0.011, backward_s=0.022, update_s=0.003)
    trials = [trial(n, {"pipeline.stages": n % 2 + 1}, seed=n // 2, validation=0.777, times=took) for n in range(6)]
    folder = write(results(trials, measures="times"), tmp_path)
    for file in folder.rglob("*.*"):
        if file.suffix in (".html", ".md", ".csv", ".tex") or file.name == "study.json":
            assert "0.777" not in file.read_text(encoding="utf-8"), file
    text = (folder / "report.md").read_text(encoding="utf-8")
    assert "measures times only" in text and "measures times only" in page_of(folder)[0]
    (head,) = re.findall(r"^\| point .*\|$", text, re.MULTILINE)
    assert "validation" not in head and "forward | backward | update" in head
    assert "| 11.0 ms |" in text and "±" not in text and not list(folder.glob("figures/*accuracy*"))


def test_a_test_accuracy_of_other_weights_than_the_validation_accuracy_is_told(tmp_path: Path) -> None:
    later = {"best": Best(step=5, validation=0.8, test=None)}
    trials = [trial(n, {"variant": "abc"[n]}, ran=later if n else {}) for n in range(3)]
    folder = write(results(trials), tmp_path)
    for text in (page_of(folder)[0], (folder / "report.md").read_text(encoding="utf-8")):
        assert "accuracy of 2 of 3 trials is that of the last weights" in text


def test_a_session_has_one_number_wherever_users_read_of_it(tmp_path: Path) -> None:
    trials = [trial(n, {"variant": "a"}, session=n) for n in range(3)]
    folder = write(results(trials, sessions=3), tmp_path)
    numbers = [row["session"] for row in csv.DictReader((folder / "tables/trials.csv").open())]
    assert numbers == ["1", "2", "3"]
    assert Trial(0, Point(0, {}, ()), 0, 5, {}, (), session=2).label == "seed=5, session=3"


def test_the_latex_table_is_one_for_a_paper(tmp_path: Path) -> None:
    """One unit a column, a column for each axis, and chosen columns."""
    times = {"al": (0.0123, 0.0124, 0.0125), "bp": (0.9, 1.0, 1.1), "scpl": (0.013, 0.014, 0.015)}
    trials = [
        trial(
            3 * place + seed,
            {"variant": name, "data.batch_size": 32},
            seed=seed,
            step_time_s=time,
            validation=right - place / 100,
        )
        for place, (name, of_seeds) in enumerate(times.items())
        for seed, (time, right) in enumerate(zip(of_seeds, (0.9, 0.91, 0.92), strict=True))
    ]
    lost = trial(9, {"variant": "bp", "data.batch_size": 32}, seed=3, status="diverged", reason="the losses grew")
    folder = study_folder(results([*trials, lost]), tmp_path / "out")
    names = ["variant", "data.batch_size", "step_time_s", "validation"]
    report = write_report(folder, names)
    assert report.table.head == ("variant", "batch size", "step time", "validation")
    assert (folder.path / "tables/points.tex").read_text().splitlines()[2:8] == [
        r"variant & batch size & step time (ms) & validation (\%) \\",
        r"\midrule",
        r"al & $32$ & $12.4 \pm 0.1$ & $91.0 \pm 1.0$ \\",
        r"bp & $32$ & $1000.0 \pm 100.0$\textsuperscript{3/4} & $90.0 \pm 1.0$\textsuperscript{3/4} \\",
        r"scpl & $32$ & $14.0 \pm 1.0$ & $89.0 \pm 1.0$ \\",
        r"\bottomrule",
    ]
    (line, *_) = csv.DictReader((folder.path / "tables/points.csv").open())
    assert {"test", "samples_per_s", "validation_deviation"} <= line.keys()
    with pytest.raises(RequestError, match="no column `accuracy`"):
        write_report(folder, ["accuracy"])


def test_the_edge_of_a_range_is_a_warning(tmp_path: Path) -> None:
    on_edge = trial(0, {"data.batch_size": 8}, steps=10, values={"optimizer.lr": 0.99})
    of = results([on_edge], search=SEARCH, target=ERROR)
    report = write_report(study_folder(of, tmp_path / "out"))
    assert len(report.summary.warnings) == 1
    assert report.summary.warnings[0] in page_of(tmp_path / "out")[0]


def test_a_page_fetches_nothing(tmp_path: Path) -> None:
    of = results([trial(n, {"pipeline.stages": n + 1}) for n in range(2)])
    html, _ = page_of(write(of, tmp_path))
    assert "default-src 'none'" in html
    links = re.findall(r"""\s(?:src|href|action|data|poster)\s*=\s*["']?([^"'> ]+)""", html)
    assert links and all(link.startswith(("#", "data:text/plain")) for link in links)
    assert "@import" not in html and "url(" not in html and "<link" not in html and "<iframe" not in html


def test_what_a_user_wrote_is_shown_and_not_run(tmp_path: Path) -> None:
    trials = [
        trial(n, {"variant": name, "a": value}) for n, (name, value) in enumerate([(HOSTILE, 1), ("b]", HOSTILE)])
    ]
    failed = trial(2, {"variant": "b]", "a": 1}, status="failed", reason=HOSTILE, summary=None)
    claim = {"claim": f"[{HOSTILE}](x)", "figure": "test", "of": {"variant": HOSTILE}, "above": 0.5}
    html, scripts = page_of(write(results([*trials, failed], verdicts=[claim]), tmp_path))
    markdown = (tmp_path / "out/report.md").read_text(encoding="utf-8")
    assert "\\<script" in markdown and not re.search(r"(?<!\\)<|(?<!\\)\]\(x", markdown)
    assert "<script>alert" not in html and "&lt;script&gt;alert" in html
    assert "</script" not in scripts.lower() and "\\u003cscript\\u003ealert" in scripts
    assert scripts.count("alert(1)") == scripts.count("\\u003cscript\\u003ealert(1)")
    assert all(path.name == file_name(path.stem) + path.suffix for path in (tmp_path / "out/figures").iterdir())
    assert len(re.findall(r"!\[([^\]\\]|\\.)*\]\(figures/", markdown)) == markdown.count("(figures/") > 0


@pytest.mark.full
def test_the_page_of_500_trials_is_small_and_made_in_seconds(tmp_path: Path) -> None:
    trials = trials_of_batch_sizes(8, 21)
    assert len(trials) > 500
    space = {"trials": 21, "space": SEARCH["space"]}
    folder = study_folder(results(trials, search=space, target=ERROR), tmp_path / "out")
    begun_s = time.process_time()
    write_report(folder)
    assert time.process_time() - begun_s < 10  # alone it takes 3
    assert (folder.path / "report.html").stat().st_size < 5e6


def test_a_study_without_figures_has_a_page_without_scripts(tmp_path: Path) -> None:
    html, scripts = page_of(write(results([trial(0, {})]), tmp_path))
    assert scripts == "" and '<h2 id="points">Points</h2>' in html


@pytest.mark.full
@pytest.mark.few
@pytest.mark.parametrize(
    "module", ["alray.studies.study", "alray.cli.study", "alray.orchestrate", "alray.studies.trial"]
)
def test_the_drawing_library_is_loaded_for_a_report_only(module: str) -> None:
    code = f"import sys, {module}; print(*({{'vl_convert'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
