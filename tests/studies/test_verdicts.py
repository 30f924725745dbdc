"""Claims of a study, and what its figures say of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alray.studies.records import Compared, TrialRecord, read_study
from alray.studies.report import write_report
from alray.studies.verdicts import answers_of, compared_text

from .conftest import results, study_folder, trial

FASTER = {"claim": "streaming is faster", "figure": "step_time_s", "of": {"variant": "streamed"}, "below": 1.0}


def timed(**times_s: list[float]) -> list[TrialRecord]:
    """Trials of two batch sizes by variant; the second batch size takes twice as long."""
    cells = [(name, size, seed) for name in times_s for size in (32, 64) for seed in range(len(times_s[name]))]
    return [
        trial(
            number,
            {"variant": name, "data.batch_size": size},
            seed=seed,
            step_time_s=times_s[name][seed] * size / 32,
        )
        for number, (name, size, seed) in enumerate(cells)
    ]


@pytest.mark.parametrize(
    ("naive", "gpipe", "answer"),
    [
        ([0.020, 0.021, 0.022], [0.015, 0.016, 0.017], "holds"),
        ([0.020, 0.021, 0.022], [0.0050, 0.0051, 0.0052], "does not hold"),
        ([0.020, 0.021, 0.022], [0.009, 0.011, 0.012], "not decided by this study"),
        ([0.020, 0.021, 0.022], [0.015], "not decided by this study"),
        ([0.020, 0.021, 0.022], [0.015, 0.015], "not decided by this study"),
    ],
)
def test_a_claim_about_times_is_that_of_the_best_of_the_others(
    naive: list[float], gpipe: list[float], answer: str
) -> None:
    claim = {**FASTER, "over": [{"variant": "naive"}, {"variant": "gpipe"}]}
    (found,) = answers_of(results(timed(streamed=[0.010, 0.0101, 0.0102], naive=naive, gpipe=gpipe), verdicts=[claim]))
    assert found.answer == answer
    if len(gpipe) < 3:
        assert found.compared == [] and any("no spread" in doubt for doubt in found.doubts)
    else:
        assert [each.point for each in found.compared] == ["data.batch_size=32", "data.batch_size=64"]
        ratio = 0.0101 / np.exp(np.mean(np.log(gpipe)))
        assert all(each.low < ratio < each.high for each in found.compared)


def test_a_seed_that_is_missing_is_a_doubt() -> None:
    trials = timed(streamed=[0.010, 0.0101, 0.0102], naive=[0.02, 0.021, 0.022])
    trials[2] = trials[2].model_copy(update={"status": "diverged"})
    (found,) = answers_of(results(trials, verdicts=[{**FASTER, "over": [{"variant": "naive"}]}]))
    assert any("1 seed of 3 did not come to an end" in doubt for doubt in found.doubts)


def test_a_seed_that_learned_nothing_is_a_doubt_about_accuracies() -> None:
    trials = [trial(n, {"variant": "al"}, seed=n, validation=v) for n, v in enumerate((0.9, 0.91, 0.1))]
    claim = {"claim": "good", "figure": "validation", "above": 0.5, "source": "Ours, 1"}
    (found,) = answers_of(results(trials, verdicts=[claim]))
    assert (found.source, found.doubts) == ("Ours, 1", ["variant=al: 1 seed of 3 learned next to nothing"])


def test_a_claim_without_results_is_not_decided() -> None:
    trials = timed(streamed=[0.010, 0.011], naive=[0.02, 0.021])
    (found,) = answers_of(results(trials, verdicts=[{**FASTER, "of": {}, "over": [{"variant": "gpipe"}]}]))
    assert (found.answer, found.compared) == ("not decided by this study", [])


def searched(variant: str, useful: int, generator: np.random.Generator) -> list[TrialRecord]:
    """A search of the rate at six batch sizes, whose true steps halve up to the batch size `useful` and no longer."""
    trials = []
    for size in (8, 16, 32, 64, 128, 256):
        fewest = 12_800 / min(size, useful) * 0.999 ** (size / useful)
        for index in range(40):
            away = generator.uniform(-2.0, 2.0)
            for seed in range(3):
                steps = round(fewest * np.exp(away**2 + 0.03 * generator.standard_normal()))
                found = trial(
                    len(trials),
                    {"variant": variant, "data.batch_size": size},
                    index=index,
                    seed=seed,
                    values={"optimizer.lr": float(10.0**away)},
                    steps=steps,
                )
                trials.append(found)
    return trials


def search_study(*trials: TrialRecord, kind: str = "random", **more: Any) -> Any:
    return results(
        trials,
        target={"metric": "validation_error", "below": 0.1},
        search={"kind": kind, "trials": 40, "space": {"optimizer.lr": {"loguniform": [0.01, 100.0]}}},
        repeats=3,
        **more,
    )


@pytest.mark.full
def test_the_largest_useful_batch_sizes_of_two_series_are_compared() -> None:
    generator = np.random.default_rng(0)
    trials = [*searched("sgd", 16, generator), *searched("momentum", 128, generator)]
    trials = [each.model_copy(update={"number": number}) for number, each in enumerate(trials)]
    series = {"figure": "largest_useful_batch_size", "of": {"variant": "momentum"}}
    claims = [
        {"claim": "momentum profits longer", **series, "over": [{"variant": "sgd"}], "above": 1.0},
        {"claim": "momentum profits beyond 512", **series, "above": 512},
        {"claim": "momentum needs fewer", "figure": "steps_to_target", "of": {"variant": "momentum"}, "below": 2000},
    ]
    longer, beyond, fewer = answers_of(search_study(*trials, verdicts=claims))
    assert longer.answer == "holds" and longer.compared[0].low == longer.compared[0].high == 8.0
    assert beyond.answer == "does not hold"
    assert all(each.low <= 12_800 / min(int(each.point.split("=")[1]), 128) * 1.02 for each in fewer.compared)


@pytest.mark.full
@pytest.mark.filterwarnings("error")
def test_a_batch_size_that_is_useful_to_the_end_may_be_larger() -> None:
    """Two series whose largest batch size is still useful: which of them goes on for longer, the study cannot show."""
    generator = np.random.default_rng(0)
    trials = [*searched("sgd", 10**6, generator), *searched("momentum", 10**6, generator)]
    trials += searched("short", 16, generator)
    trials = [each.model_copy(update={"number": number}) for number, each in enumerate(trials)]
    series = {"figure": "largest_useful_batch_size", "of": {"variant": "momentum"}}
    claims = [
        {"claim": "not shorter", **series, "over": [{"variant": "sgd"}], "above": 0.99},
        {"claim": "not longer", **series, "over": [{"variant": "sgd"}], "below": 1.01},
        {"claim": "longer than the short one", **series, "over": [{"variant": "short"}], "above": 1.0},
        {"claim": "ends before 512", **series, "below": 512},
    ]
    not_shorter, not_longer, longer, ends = answers_of(search_study(*trials, verdicts=claims))
    assert [each.answer for each in (not_shorter, not_longer, ends)] == ["not decided by this study"] * 3
    assert any("may lie above 256" in doubt for doubt in not_shorter.doubts)
    assert (not_shorter.compared[0].low, not_shorter.compared[0].high) == (0.0, None)
    assert longer.answer == "holds" and (longer.compared[0].low, longer.compared[0].high) == (16.0, None)


@pytest.mark.filterwarnings("error")
def test_a_plateau_may_not_begin() -> None:
    trials = searched("sgd", 16, np.random.default_rng(0))
    begins = {"claim": "a plateau begins by 64", "figure": "plateau_from", "below": 65}
    (found,) = answers_of(search_study(*trials, verdicts=[begins]))
    assert found.answer == "holds" and found.compared[0].value is not None
    straight = searched("sgd", 10**6, np.random.default_rng(0))
    (found,) = answers_of(search_study(*straight, verdicts=[begins]))
    assert found.answer == "does not hold" and found.compared[0].value is None


def test_a_batch_size_is_written_out() -> None:
    assert compared_text(Compared(point="", value=1024.0, low=64.0, high=None, share=1.0)) == "1,024 (64 or more)"


def test_proposed_settings_do_not_show_how_far_the_best_is() -> None:
    claim = {"claim": "few", "figure": "steps_to_target", "of": {"data.batch_size": 8}, "below": 1e6}
    trials = searched("sgd", 16, np.random.default_rng(0))
    found = [answers_of(search_study(*trials, kind=kind, verdicts=[claim]))[0].answer for kind in ("random", "optuna")]
    assert found == ["holds", "not decided by this study"]


def test_the_report_has_the_verdicts(tmp_path: Path) -> None:
    trials = timed(streamed=[0.010, 0.0101, 0.0102], naive=[0.02, 0.021, 0.022])
    folder = study_folder(results(trials, verdicts=[{**FASTER, "over": [{"variant": "naive"}]}]), tmp_path / "out")
    write_report(folder)
    (answer,) = read_study(tmp_path / "out/study.json").verdicts
    assert answer.answer == "holds"
    assert "| streaming is faster | holds |" in (tmp_path / "out/report.md").read_text()
