"""The page of findings: claims of studies with the answers that are kept of them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from alray.config.study.load import read_study_file
from alray.studies.report import write_report
from alray.studies.table import ROW_FIGURES, TIMES
from benchmarks import findings_page
from benchmarks.findings_page import NOT_RUN, PAGE, REPORTS, SEEDS, Finding, findings, kept, page
from benchmarks.recomputed import OF_TIMES, SMALLEST_IS_BEST, differences

from ..studies.conftest import results, study_folder, trial

STUDY = """\
study: strong_scaling
base: ../base.yaml
axes: {variant: {al: {}, bp: {method: backpropagation}}}
verdicts:
  - {claim: AL is faster, source: "Lin 2023, 4.4", quote: "It is, by far.", figure: step_time_s,
     of: {variant: al}, over: [{variant: bp}], below: 1.0}
  - {claim: AL is quick, since: "2026-11-22", figure: step_time_s, of: {variant: al}, below: 0.1}
"""
ANSWER = {
    "claim": "AL is faster",
    "figure": "step time of variant=al, divided by that of variant=bp",
    "bound": "below 1",
    "answer": "holds",
    "compared": [{"point": "variant=a", "value": 0.5, "low": 0.4567, "high": 0.6, "p_holds": 0.01, "p_fails": 0.99}],
    "doubts": ["variant=a: one doubt"],
    "p_holds": 0.01,
    "p_fails": 0.99,
    "units": "5 days, 2026-01-01 to 2026-01-09",
}


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A study with two claims, of which a report answers the first one: of its one answer the second has nothing."""
    (tmp_path / "base.yaml").touch()
    file, before = tmp_path / "specs/strong_scaling.yaml", tmp_path / "before.yaml"
    file.parent.mkdir()
    file.write_text(STUDY, encoding="utf-8")
    before.write_text(STUDY.replace("../", "").rsplit("  - ", 1)[0], encoding="utf-8")
    answers = kept(read_study_file(before), {"verdicts": [ANSWER]})
    report = tmp_path / "docs/strong_scaling"
    report.mkdir(parents=True)
    (report / findings_page.KEPT).write_text(json.dumps(answers), encoding="utf-8")
    return file


def found_of(study: Path) -> list[Finding]:
    return findings(study.parent, study.parents[1] / "docs")


def test_a_claim_has_the_answer_to_its_own_question(study: Path) -> None:
    first, second = found_of(study)
    assert (first.says, first.earlier, second.says) == ("holds", False, NOT_RUN)
    text = page([first, second])
    (row,) = [line for line in text.split("\n") if line.startswith("| AL is faster")]
    assert text.index("## Scaling over devices") < text.index(row) < text.index("## Workers")
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1] == "Lin 2023, 4.4 [1]"
    assert cells[2:5] == ["a: 0.5 times (0.457 to 0.6)", "5 days, 2026-01-01 to 2026-01-09", "holds (p = 0.02)"]
    assert cells[5] == "[strong_scaling](studies/strong_scaling/README.md)"
    assert "- a: one doubt. This is about: AL is faster." in text and "variant=" not in text
    assert "| AL is quick | ours, bound of 2026-11-22 | – | – | not run yet | `strong_scaling` |" in text
    assert "2 claims: 1 decided, 0 estimated, 1 open." in text


def test_what_a_publication_says_stands_once_below_its_claims(study: Path) -> None:
    first, _ = found_of(study)
    rephrased = first.verdict.model_copy(update={"quote": None, "paraphrase": "very"})
    text = page([first, first, replace(first, verdict=rephrased)])
    assert [text.count(f"| Lin 2023, 4.4 {note} |") for note in ("[1]", "[2]")] == [2, 1]
    assert text.count("- [1] Lin 2023, 4.4: “It is, by far.”\n") == 1
    assert text.count("- [2] Lin 2023, 4.4, in other words: very\n") == 1
    assert "2 of 3 claims have its sentence" in " ".join(text.split())


@pytest.mark.parametrize(
    ("first", "said"), [("2026-11-21", "ours, bound of 2026-11-22, after the first run"), ("2026-11-22", "ours, bound")]
)
def test_a_bound_that_is_later_than_the_first_run_says_so(study: Path, first: str, said: str) -> None:
    """The report is of the last run, which knows nothing of the first one."""
    answers = kept(
        read_study_file(study), {"verdicts": [ANSWER, {**ANSWER, "claim": "AL is quick", "units": "5 seeds"}]}
    )
    report = study.parents[1] / "docs/strong_scaling"
    (report / findings_page.KEPT).write_text(json.dumps(answers), encoding="utf-8")
    (report / "README.md").write_text("# scaling\n\n## Made with\n\nalray 0.2.0; 2 cores; 2026-11-27\n")
    (report.parent / findings_page.FIRST_RUNS).write_text(f'{{"strong_scaling": "{first}"}}')
    (row,) = [line for line in page(found_of(study)).split("\n") if line.startswith("| AL is quick")]
    assert row.startswith(f"| AL is quick | {said}") and "| 5 seeds, 2026-11-27 |" in row
    assert ("after" in row) == ("after" in said)


def test_a_claim_has_one_verdict_in_its_report_and_on_the_page() -> None:
    rows = PAGE.read_text(encoding="utf-8").split("\n")
    compared = 0
    for report in REPORTS.glob("*/README.md"):
        table = report.read_text(encoding="utf-8").partition("\n## Verdicts\n")[2].partition("\n## ")[0]
        link = f"](studies/{report.parent.name}/README.md)"
        for claim, verdict in re.findall(r"^\| (.+?) \| (.+?) \| ", table.replace("\\", ""), re.M)[2:]:
            (row,) = [row for row in rows if row.startswith(f"| {claim} |") and link in row]
            assert f"| {verdict} |" in row or f"| {verdict} (p " in row, f"{report.parent.name}: {claim}"
            compared += 1
    claims = [row.partition(" | ")[0] for row in rows if row.startswith("| ") and "](studies/" in row]
    assert len(claims) == len({*claims}) == compared > 20


@pytest.mark.parametrize("change", [("below: 1.0", "below: 0.9"), ("of: {variant: al}, over", "of: {}, over")])
def test_an_answer_to_another_question_does_not_count(study: Path, change: tuple[str, str]) -> None:
    study.write_text(STUDY.replace(*change), encoding="utf-8")
    assert [each.says for each in found_of(study)] == [NOT_RUN, NOT_RUN]


def test_other_words_are_the_same_question_and_other_trials_are_told(study: Path) -> None:
    study.write_text(STUDY.replace("AL is faster", "AL wins") + "repeats: 3\n", encoding="utf-8")
    first, _ = found_of(study)
    assert (first.says, first.earlier) == ("holds", True)
    assert "AL wins" in page([first]) and "earlier form" in page([first])


def test_variants_in_another_order_have_other_trials(study: Path) -> None:
    """Reports have the trials by their numbers."""
    text = STUDY.replace("{al: {}, bp: {method: backpropagation}}", "{bp: {method: backpropagation}, al: {}}")
    study.write_text(text, encoding="utf-8")
    first, _ = found_of(study)
    assert (first.says, first.earlier) == ("holds", True) and text != STUDY


def test_no_path_of_this_machine_is_kept(study: Path) -> None:
    assert str(study.parents[1]) not in json.dumps(kept(read_study_file(study), {"verdicts": []}))


def test_a_study_that_is_about_no_seed_is_refused(study: Path) -> None:
    study.write_text(STUDY.replace("strong_scaling", "somewhere"), encoding="utf-8")
    with pytest.raises(ValueError, match="somewhere"):
        page(found_of(study))


def test_every_seed_has_a_study_that_is_there() -> None:
    studies = [study for seed in SEEDS for study in seed.studies]
    assert len(studies) == len({*studies}) and {*studies} <= {path.stem for path in findings_page.SPECS.glob("*.yaml")}


def test_every_committed_verdict_is_recomputed() -> None:
    folders = [path.parent for path in REPORTS.glob("*/verdicts.json")]
    assert len(folders) >= 15 and [line for folder in folders for line in differences(folder)] == []


@pytest.mark.parametrize("a_day", [1, 5])
def test_times_of_several_days_are_recomputed_day_by_day(a_day: int, tmp_path: Path) -> None:
    cells = [(session, seed, name) for session in range(5) for seed in range(2) for name in ("al", "bp")]
    trials = [
        trial(
            n,
            {"variant": name},
            seed=seed,
            session=session,
            began=f"2026-01-0{1 + session // a_day}T1{session}:00:00+00:00",
            step_time_s=0.01 + 0.001 * ((7 * n) % 5),
        )
        for n, (session, seed, name) in enumerate(cells)
    ]
    over = {"figure": "step_time_s", "of": {"variant": "al"}, "over": [{"variant": "bp"}], "below": 1.0}
    of = results(trials, verdicts=[{"claim": "fast", **over}], sessions=5, repeats=2, measures="times")
    summary = write_report(study_folder(of, tmp_path / "out")).summary
    (tmp_path / "out/verdicts.json").write_text(json.dumps(kept(of.study, summary.model_dump(mode="json"))))
    over = "5 days, 2026-01-01 to 2026-01-05" if a_day == 1 else "5 starts, 2026-01-01 10:00 to 14:00"
    assert summary.verdicts[0].units == over and differences(tmp_path / "out") == []


def test_recomputed_verdicts_know_which_figures_cost_and_which_are_times() -> None:
    costs = {*ROW_FIGURES} - {"validation", "test", "samples_per_s"}
    assert ({*SMALLEST_IS_BEST}, {*OF_TIMES}) == (costs, {*TIMES})
