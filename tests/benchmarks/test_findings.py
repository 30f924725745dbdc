"""The page of findings: claims of studies with the answers that are kept of them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from alray.config.study.load import read_study_file
from alray.studies.busy import is_disturbed
from alray.studies.report import write_report
from alray.studies.table import ROW_FIGURES, TIMES
from benchmarks import findings_page
from benchmarks.committed import report_of
from benchmarks.findings_page import NOT_RUN, OWN_PAGE, PAGE, REPORTS, SPECS, Finding, findings, kept, page, pages
from benchmarks.recomputed import OF_TIMES, SMALLEST_IS_BEST, differences

from ..studies.conftest import results, study_folder, trial

STUDY = """\
study: scaling
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
    "units": "5 sessions",
}


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A study with two claims, of which a report answers the first one: of its one answer the second has nothing."""
    (tmp_path / "base.yaml").touch()
    file, before = tmp_path / "specs/scaling.yaml", tmp_path / "before.yaml"
    file.parent.mkdir()
    file.write_text(STUDY, encoding="utf-8")
    before.write_text(STUDY.replace("../", "").rsplit("  - ", 1)[0], encoding="utf-8")
    answers = kept(read_study_file(before), {"verdicts": [ANSWER]})
    report = tmp_path / "docs/scaling"
    report.mkdir(parents=True)
    (report / findings_page.KEPT).write_text(json.dumps(answers), encoding="utf-8")
    return file


def found_of(study: Path) -> list[Finding]:
    return findings(study.parent, study.parents[1] / "docs")


def test_a_claim_has_the_answer_to_its_own_question(study: Path) -> None:
    first, second = found_of(study)
    assert (first.says, first.earlier, second.says) == ("holds", False, NOT_RUN)
    texts = pages([first, second])
    (row,) = [line for line in texts[PAGE].split("\n") if line.startswith("| AL is faster")]
    assert texts[PAGE].index("## Associated Learning") < texts[PAGE].index(row)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1] == "Lin 2023, 4.4 [1]"
    assert cells[2:5] == ["a: 0.5 times (0.457 to 0.6)", "5 sessions", "holds (p = 0.02)"]
    assert cells[5] == "[scaling](studies/scaling/README.md)"
    assert "- a: one doubt. This is about: AL is faster." in texts[PAGE] and "variant=" not in texts[PAGE]
    assert "| AL is quick | 2026-11-22 | – | – |" in texts[OWN_PAGE] and "AL is quick" not in texts[PAGE]


def test_what_a_publication_says_stands_once_below_its_claims(study: Path) -> None:
    first, _ = found_of(study)
    rephrased = first.verdict.model_copy(update={"quote": None, "paraphrase": "very"})
    text = page([first, first, replace(first, verdict=rephrased)])
    assert [text.count(f"| Lin 2023, 4.4 {note} |") for note in ("[1]", "[2]")] == [2, 1]
    assert text.count("- [1] Lin 2023, 4.4: “It is, by far.”\n") == 1
    assert text.count("- [2] Lin 2023, 4.4, in other words: very\n") == 1
    assert "2 of 3 claims have its sentence" in " ".join(text.split())


def test_a_bound_stands_beside_the_day_on_which_its_study_began(study: Path) -> None:
    """The bound of AL is quick is of 2026-11-22; here the report answers this claim too."""
    answers = kept(read_study_file(study), {"verdicts": [ANSWER, {**ANSWER, "claim": "AL is quick"}]})
    report = study.parents[1] / "docs/scaling"
    (report / findings_page.KEPT).write_text(json.dumps(answers), encoding="utf-8")
    for day, said in (("2026-11-21", "1 are later than that day, and 0 of"), ("2026-11-22", "0 are later than that")):
        (report / "README.md").write_text(f"# scaling\n\n## Made with\n\nalray 0.2.0; 2 cores; {day}\n")
        text = pages(found_of(study))[OWN_PAGE]
        assert f"| AL is quick | 2026-11-22 | {day} | {day} |" in text
        assert f"Of 1 bounds whose study ran, {said}" in " ".join(text.split())


def test_a_bound_stands_beside_the_first_day_of_a_study_that_ran_again(study: Path) -> None:
    """Its report is of the last run, which knows nothing of the first one."""
    report = study.parents[1] / "docs/scaling"
    (report / "README.md").write_text("# scaling\n\n## Made with\n\nalray 0.2.0; 2 cores; 2026-11-27\n")
    (report.parent / findings_page.FIRST_RUNS).write_text('{"scaling": "2026-11-21"}')
    text = pages(found_of(study))[OWN_PAGE]
    assert "| AL is quick | 2026-11-22 | 2026-11-21 | 2026-11-27 |" in text
    assert "Of 1 bounds whose study ran, 1 are later" in " ".join(text.split())


def test_a_claim_has_one_verdict_in_its_report_and_on_the_pages() -> None:
    rows = [row for path in (PAGE, OWN_PAGE) for row in path.read_text(encoding="utf-8").split("\n")]
    compared = 0
    for report in REPORTS.glob("*/README.md"):
        table = report.read_text(encoding="utf-8").partition("\n## Verdicts\n")[2].partition("\n## ")[0]
        link = f"](studies/{report.parent.name}/README.md)"
        for claim, verdict in re.findall(r"^\| (.+?) \| (.+?) \| ", table.replace("\\", ""), re.M)[2:]:
            for row in rows:
                if row.startswith(f"| {claim} |") and link in row:
                    assert f"| {verdict} |" in row or f"| {verdict} (p " in row, f"{report.parent.name}: {claim}"
                    compared += 1
    assert compared > 100


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


def test_a_source_that_no_seed_has_is_refused(study: Path) -> None:
    study.write_text(STUDY.replace("Lin 2023", "Somebody 2023"), encoding="utf-8")
    with pytest.raises(ValueError, match="Somebody 2023"):
        page(found_of(study))


def test_claims_about_sleeping_layers_say_what_two_real_stages_take() -> None:
    answers = json.loads((REPORTS / "language_pipelines" / findings_page.KEPT).read_text(encoding="utf-8"))["verdicts"]
    measured = [f"{each['compared'][0]['value']:.2f}" for each in answers if "SOLO" in each["claim"]]
    claims = [verdict.claim for verdict in read_study_file(SPECS / "language_sleeping.yaml").verdicts]
    told = [found[1] for claim in claims if (found := re.search(r"two real stages it takes ([\d.]+) times", claim))]
    assert told == measured and len(told) == 2


def test_a_report_keeps_its_trials_beside_other_programs() -> None:
    """Its tables do not have them, its page does."""
    found = {name: report_of(name).results.records for name in ("race", "training_process")}
    assert [each.number for each in found["race"] if is_disturbed(each)] == [18, 21]
    assert all(map(is_disturbed, found["training_process"]))


def test_times_of_several_sessions_are_recomputed_session_by_session(tmp_path: Path) -> None:
    cells = [(session, seed, name) for session in range(5) for seed in range(2) for name in ("al", "bp")]
    trials = [
        trial(n, {"variant": name}, seed=seed, session=session, step_time_s=0.01 + 0.001 * ((7 * n) % 5))
        for n, (session, seed, name) in enumerate(cells)
    ]
    over = {"figure": "step_time_s", "of": {"variant": "al"}, "over": [{"variant": "bp"}], "below": 1.0}
    of = results(trials, verdicts=[{"claim": "fast", **over}], sessions=5, repeats=2, measures="times")
    summary = write_report(study_folder(of, tmp_path / "out")).summary
    (tmp_path / "out/verdicts.json").write_text(json.dumps(kept(of.study, summary.model_dump(mode="json"))))
    assert summary.verdicts[0].units == "5 sessions" and differences(tmp_path / "out") == []


def test_recomputed_verdicts_know_which_figures_cost_and_which_are_times() -> None:
    costs = {name for name, (column, _) in ROW_FIGURES.items() if column.best == "smallest"}
    assert ({*SMALLEST_IS_BEST}, {*OF_TIMES}) == (costs, {*TIMES})
