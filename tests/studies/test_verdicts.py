"""Claims of a study, and what its figures say of them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alray.config.known_code import CodeRecord, write_record
from alray.config.study.section import Study
from alray.core.run_folder.records import Best, Writer
from alray.studies.figures import OTHER_DATA, warnings_of
from alray.studies.records import Answer, Compared, Reached, TrialRecord, read_study
from alray.studies.report import made_with, write_report
from alray.studies.results import Results
from alray.studies.verdicts import answers_of, compared_text, decided, p_text

from .conftest import evaluation, results, study_folder, trial

OPEN = "not decided by this study"
FASTER = {"claim": "streaming is faster", "figure": "step_time_s", "of": {"variant": "streamed"}, "below": 1.0}


def timed(**times_s: list[float]) -> list[TrialRecord]:
    """Trials of two batch sizes by variant, one in each session; the second batch size takes twice as long."""
    cells = [(name, size, at) for name in times_s for size in (32, 64) for at in range(len(times_s[name]))]
    return [
        trial(
            number,
            {"variant": name, "data.batch_size": size},
            session=at,
            step_time_s=times_s[name][at] * size / 32,
        )
        for number, (name, size, at) in enumerate(cells)
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
    trials = timed(streamed=[0.010, 0.0101, 0.0102], naive=naive, gpipe=gpipe)
    (found,) = answers_of(results(trials, verdicts=[claim], sessions=3))
    assert found.answer == answer
    if len(gpipe) < 3:
        assert found.compared == [] and any("no spread" in doubt for doubt in found.doubts)
    else:
        assert [each.point for each in found.compared] == ["data.batch_size=32", "data.batch_size=64"]
        ratio = 0.0101 / np.exp(np.mean(np.log(gpipe)))
        assert all(each.low < ratio < each.high for each in found.compared)


def test_a_claim_names_a_section_with_its_keys_in_any_order() -> None:
    noisy, plain = {"kind": "adam", "eps": 1e-6}, "adam"
    trials = [
        trial(number, {"optimizer": optimizer}, session=session, step_time_s=seconds + 0.0001 * session)
        for number, (optimizer, seconds, session) in enumerate(
            (optimizer, seconds, at) for optimizer, seconds in ((noisy, 0.01), (plain, 0.02)) for at in range(3)
        )
    ]
    claim = {
        "claim": "it is faster",
        "figure": "step_time_s",
        "of": {"optimizer": {"eps": 1e-6, "kind": "adam"}},
        "over": [{"optimizer": plain}],
        "below": 1.0,
    }
    (found,) = answers_of(results(trials, verdicts=[claim], sessions=3))
    assert found.answer == "holds"


def test_a_seed_that_is_missing_is_a_doubt() -> None:
    trials = timed(streamed=[0.010, 0.0101, 0.0102], naive=[0.02, 0.021, 0.022])
    trials[2] = trials[2].model_copy(update={"status": "diverged"})
    (found,) = answers_of(results(trials, verdicts=[{**FASTER, "over": [{"variant": "naive"}]}]))
    assert any("1 seed of 3 did not come to an end" in doubt for doubt in found.doubts)


def test_trials_without_a_figure_and_those_that_have_not_ended_are_doubts() -> None:
    scores = {"al": (0.9, 0.91, 0.92, None), "bp": (0.8, 0.8, 0.81)}
    cells = [(name, seed) for name in scores for seed in range(len(scores[name]))]
    trials = [
        trial(n, {"variant": name}, seed=seed, validation=scores[name][seed]) for n, (name, seed) in enumerate(cells)
    ]
    beside = {"figure": "validation", "of": {"variant": "al"}, "minus": [{"variant": "bp"}], "above": 0}
    (found,) = answers_of(results(trials, verdicts=[{"claim": "better", **beside}], repeats=4))
    assert found.units == "3 seeds" and found.doubts == ["3 of 4 trials have ended", "1 of 4 trials lacks the figure"]
    searched_in_part = [each for each in searched("sgd", 64, np.random.default_rng(0)) if each.index < 12]
    claim = {"claim": "B_c", "figure": "critical_batch_size"}
    (found,) = answers_of(search_study(*searched_in_part, verdicts=[claim]))
    assert sum("36 of 120 trials have ended" in doubt for doubt in found.doubts) == 6


def test_a_claim_about_points_with_other_numbers_of_seeds_says_both() -> None:
    cells = [(size, name, seed) for size in (32, 64) for name in ("al", "bp") for seed in range(5)]
    trials = [
        trial(
            n, {"variant": name, "data.batch_size": size}, seed=seed, validation=0.8 + seed / 100 + (name == "al") / 20
        )
        for n, (size, name, seed) in enumerate(cells)
        if not (size == 64 and name == "bp" and seed > 2)
    ]
    beside = {"figure": "validation", "of": {"variant": "al"}, "minus": [{"variant": "bp"}], "above": 0.04}
    (found,) = answers_of(results(trials, verdicts=[{"claim": "better", **beside}], repeats=5))
    assert found.units == "3 to 5 seeds"


def test_times_of_trials_that_may_have_run_side_by_side_are_doubtful() -> None:
    trials = timed(streamed=[0.010, 0.0101, 0.0102], naive=[0.02, 0.021, 0.022])
    claims = [{**FASTER, "over": [{"variant": "naive"}]}, {"claim": "good", "figure": "validation", "above": 0.4}]
    for most, doubts in ((None, 1), (2, 1), (1, 0)):
        times, accuracy = answers_of(results(trials, verdicts=claims, sessions=3, max_concurrent=most))
        assert len([doubt for doubt in times.doubts if "side by side" in doubt]) == doubts
        assert not any("side by side" in doubt for doubt in accuracy.doubts)


def test_a_seed_that_learned_nothing_is_a_doubt_about_accuracies() -> None:
    trials = [trial(n, {"variant": "al"}, seed=n, validation=v) for n, v in enumerate((0.9, 0.91, 0.1))]
    claim = {"claim": "good", "figure": "validation", "above": 0.5, "source": "Ours, 1", "paraphrase": "it is"}
    (found,) = answers_of(results(trials, verdicts=[claim]))
    assert (found.source, found.doubts) == (
        "Ours, 1, in other words: it is",
        ["variant=al: 1 seed of 3 learned next to nothing"],
    )


def test_a_claim_without_results_is_not_decided() -> None:
    trials = timed(streamed=[0.010, 0.011], naive=[0.02, 0.021])
    (found,) = answers_of(results(trials, verdicts=[{**FASTER, "of": {}, "over": [{"variant": "gpipe"}]}]))
    assert (found.answer, found.compared) == ("not decided by this study", [])


def searched(variant: str, critical: int, generator: np.random.Generator) -> list[TrialRecord]:
    """A search of the rate at six batch sizes, whose true steps have this critical batch size. What a seed does to all
    of its steps is larger than the rest of chance."""
    of_seeds = 0.1 * np.random.default_rng(1).standard_normal(3)
    trials = []
    for size in (8, 16, 32, 64, 128, 256):
        fewest = 12_800 / critical * (1.0 + critical / size)
        for index in range(40):
            away = generator.uniform(-2.0, 2.0)
            for seed in range(3):
                steps = round(fewest * np.exp(away**2 + of_seeds[seed] + 0.03 * generator.standard_normal()))
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


def search_study(*trials: TrialRecord, kind: str = "random", folder: Path = Path("nowhere"), **more: Any) -> Any:
    return results(
        trials,
        folder,
        target={"metric": "validation_error", "below": 0.1},
        search={"kind": kind, "trials": 40, "space": {"optimizer.lr": {"loguniform": [0.01, 100.0]}}},
        repeats=3,
        **more,
    )


def test_the_critical_batch_sizes_of_two_series_are_compared() -> None:
    generator = np.random.default_rng(0)
    trials = [*searched("sgd", 16, generator), *searched("momentum", 64, generator)]
    trials = [each.model_copy(update={"number": number}) for number, each in enumerate(trials)]
    series = {"figure": "critical_batch_size", "of": {"variant": "momentum"}}
    claims = [
        {"claim": "momentum profits longer", **series, "over": [{"variant": "sgd"}], "above": 1.0},
        {"claim": "momentum profits beyond 512", **series, "above": 512},
    ]
    longer, beyond = answers_of(search_study(*trials, verdicts=claims))
    assert (longer.answer, beyond.answer) == ("holds", "does not hold")
    assert longer.compared[0].low < 4.0 < longer.compared[0].high < 6.0
    assert beyond.compared[0].low < 64 < beyond.compared[0].high


def test_two_series_are_compared_by_the_seeds_that_both_have() -> None:
    generator = np.random.default_rng(0)
    trials = [*searched("sgd", 16, generator), *searched("momentum", 64, generator)]
    trials = [
        each.model_copy(update={"number": number, "seed": each.seed + (each.point["variant"] == "sgd")})
        for number, each in enumerate(trials)
    ]
    further = [each for each in trials if each.point["variant"] == "momentum" and each.seed == 0]
    trials += [each.model_copy(update={"number": len(trials) + at, "seed": 3}) for at, each in enumerate(further)]
    claim = {"claim": "longer", "figure": "critical_batch_size", "of": {"variant": "momentum"}, "above": 1.0}
    study = search_study(*trials, verdicts=[{**claim, "over": [{"variant": "sgd"}]}])
    (found,) = answers_of(study)
    assert (found.answer, found.units) == ("holds", "3 seeds")
    assert "the series share 3 of 4 seeds" in found.doubts


def test_the_best_rate_grows_as_a_power_of_the_batch_size() -> None:
    """With the square root of the batch size, and not by the linear rule."""
    trials = [
        each.model_copy(
            update={"overrides": [f"optimizer.lr={each.values['optimizer.lr'] * each.point['data.batch_size'] ** 0.5}"]}
        )
        for each in searched("sgd", 16, np.random.default_rng(0))
    ]
    (found,) = answers_of(
        search_study(*trials, verdicts=[{"claim": "slower", "figure": "growth_of_best_rate", "below": 1.0}])
    )
    assert (found.answer, found.figure) == ("holds", "growth of best rate")
    assert found.compared[0].low < 0.5 < found.compared[0].high < 0.8


def test_steps_that_fall_to_the_end_show_no_critical_batch_size() -> None:
    trials = searched("sgd", 10**6, np.random.default_rng(0))
    claim = {"claim": "small", "figure": "critical_batch_size", "below": 64}
    (found,) = answers_of(search_study(*trials, verdicts=[claim]))
    assert found.compared == [] and found.doubts == ["variant=sgd: the batch sizes show no bend of the curve"]


def test_a_large_figure_is_written_out() -> None:
    compared = Compared(point="", value=1024.0, low=64.0, high=4096.0, p_holds=0.1, p_fails=0.9)
    assert compared_text(compared) == "1,024 (64 to 4,096)"


def test_the_rounding_error_of_a_mean_is_shown_as_zero() -> None:
    compared = Compared(point="", value=-2.2e-17, low=-0.0141, high=0.0141, p_holds=0.5, p_fails=0.5)
    assert compared_text(compared) == "0 (-0.0141 to 0.0141)"
    ratio = Compared(point="", value=1.2, low=1e-5, high=2e9, p_holds=0.5, p_fails=0.5)
    assert compared_text(ratio) == "1.2 (1e-05 to 2,000,000,000)"
    beside_one = compared.model_copy(update={"value": 0.997, "low": 0.9912, "high": 1.0026})
    assert compared_text(beside_one) == "0.997 (0.991 to 1.003)"
    perplexity = Compared(point="", value=999.7, low=999.4, high=1000.4, p_holds=0.5, p_fails=0.5)
    assert compared_text(perplexity) == "1,000 (999 to 1,000)"


@pytest.mark.parametrize("kind", ["random", "optuna"])
def test_the_best_of_a_search_is_that_of_the_settings_that_were_tried(kind: str) -> None:
    """Which were chosen on the same seeds: the claim says so."""
    steps = {0: (40, 44, 48), 1: (20, 22, 24), 2: (30, 30, None)}
    trials = [
        trial(3 * index + seed, {}, index=index, seed=seed, values={"optimizer.lr": 0.1 * 2**index}, steps=of[seed])
        for index, of in steps.items()
        for seed in range(3)
    ]
    claim = {"claim": "few", "figure": "steps_to_target", "below": 100}
    (found,) = answers_of(search_study(*trials, kind=kind, verdicts=[claim]))
    (compared,) = found.compared
    assert found.answer == "holds" and compared.value == pytest.approx((20 * 22 * 24) ** (1 / 3))
    assert any("the best of those tried on the same seeds" in doubt for doubt in found.doubts)


@pytest.mark.parametrize(("figure", "doubted"), [("validation", True), ("test", False)])
def test_a_validation_by_which_a_search_chose_is_doubtful(figure: str, doubted: bool) -> None:
    trials = [
        trial(3 * index + seed, {"variant": "a"}, index=index, seed=seed, validation=0.9 + seed / 100 + index / 50)
        for index in range(2)
        for seed in range(3)
    ]
    search = {"trials": 2, "space": {"optimizer.lr": {"loguniform": [1e-4, 1.0]}}}
    claim = {"claim": "it is good", "figure": figure, "above": 0.1}
    (found,) = answers_of(results(trials, search=search, verdicts=[claim]))
    assert any("tried on the same seeds" in doubt for doubt in found.doubts) is doubted


def test_points_of_other_seeds_cannot_be_compared() -> None:
    seeds = {"a": (0, 1, 2), "b": (5, 6, 7)}
    trials = [
        trial(3 * at + n, {"variant": name}, seed=seed, validation=0.9 + n / 100)
        for at, (name, of_name) in enumerate(seeds.items())
        for n, seed in enumerate(of_name)
    ]
    claim = {"claim": "b is as good", "figure": "validation", "of": {"variant": "b"}, "minus": [{"variant": "a"}]}
    (found,) = answers_of(results(trials, verdicts=[{**claim, "above": -0.1}]))
    assert (found.answer, found.doubts) == ("not decided by this study", ["the points share 0 of 3 seeds"])


def test_points_are_compared_seed_by_seed() -> None:
    """What a seed does to both variants is ten times their difference, and says nothing of it."""
    of_seeds = (0.80, 0.85, 0.90, 0.95)
    scores = {"bp": of_seeds, "al": [each - 0.005 - 0.001 * (seed % 2) for seed, each in enumerate(of_seeds)]}
    cells = [(name, seed) for name in scores for seed in range(4)]
    trials = [trial(n, {"variant": v}, seed=s, validation=scores[v][s]) for n, (v, s) in enumerate(cells)]
    claim = {
        "claim": "worse",
        "figure": "validation",
        "of": {"variant": "al"},
        "minus": [{"variant": "bp"}],
        "below": 0,
    }
    (found,) = answers_of(results(trials, verdicts=[claim]))
    (compared,) = found.compared
    # Student's t with three degrees of freedom: 2.3534 times the standard error of 0.005, 0.006, 0.005, 0.006
    half = 2.3534 * 0.001 / 12**0.5
    assert (compared.low, compared.high) == pytest.approx((-0.0055 - half, -0.0055 + half), abs=1e-7)
    assert (found.answer, found.units, found.says) == ("holds", "4 seeds", "holds")


def write_evaluations(folder: Path, trials: Sequence[TrialRecord], every: int) -> None:
    """The records of these trials, in folders of this one, with evaluations so many mini-batches apart."""
    for record in trials:
        assert record.reached is not None
        (folder / f"{record.number:04d}").mkdir()
        writer = Writer(folder / f"{record.number:04d}" / "records.jsonl")
        for at in range(every, record.reached.step + 1, every):
            writer.write(evaluation(at, at / 100, 0.5))
        writer.close()


@pytest.mark.parametrize("figure", ["steps_to_target", "samples_to_target"])
@pytest.mark.parametrize("every", [10, 1])
def test_equal_steps_of_a_search_are_known_to_an_evaluation_alone(tmp_path: Path, figure: str, every: int) -> None:
    """The seeds of the best settings reach the target at one evaluation: that they are equal is no certainty. How far
    they may differ is the interval between evaluations, whatever divides the steps that were reached."""
    trials = [
        trial(
            number,
            {"variant": variant},
            index=index,
            seed=seed,
            values={"optimizer.lr": 0.01 * (index + 1)},
            steps=20 if index < 6 else 30,
        )
        for number, (variant, index, seed) in enumerate(product(("al", "bp"), range(8), range(3)))
    ]
    write_evaluations(tmp_path, trials, every)
    claim = {"claim": "alike", "figure": figure, "of": {"variant": "al"}, "over": [{"variant": "bp"}], "below": 1.2}
    (found,) = answers_of(search_study(*trials, folder=tmp_path, verdicts=[claim]))
    (compared,) = found.compared
    assert compared.low < 1.0 < compared.high
    assert (compared.low < 0.9) == (compared.high > 1.1) == (every == 10)


@pytest.mark.parametrize(
    ("own", "others", "answer"),
    [
        ((20, 20, 20), (30, 30, 30), "not decided by this study"),
        ((20, 20, 20), (300, 300, 300), "holds"),
        ((300, 300, 300), (600, 600, 600), "holds"),
        ((300, 300, 310), (600, 600, 600), "holds"),
        ((20, 30, 50), (40, 60, 100), "holds"),
    ],
)
def test_seeds_that_reach_the_target_at_one_evaluation_are_no_certainty(
    tmp_path: Path, own: tuple[int, ...], others: tuple[int, ...], answer: str
) -> None:
    """With an evaluation every ten steps, 20 of them may be 11, and 30 may be 21: 20 / 21 is above the bound."""
    cells = [(name, seed, steps) for name, of in (("al", own), ("bp", others)) for seed, steps in enumerate(of)]
    trials = [trial(n, {"variant": name}, seed=seed, steps=steps) for n, (name, seed, steps) in enumerate(cells)]
    write_evaluations(tmp_path, trials, every=10)
    claim = {"claim": "fewer", "figure": "steps_to_target", "of": {"variant": "al"}, "over": [{"variant": "bp"}]}
    target = {"metric": "validation_error", "below": 0.1}
    (found,) = answers_of(results(trials, tmp_path, verdicts=[{**claim, "below": 0.9}], target=target))
    assert found.answer == answer and found.p_holds > 0.0
    assert found.compared[0].low < own[0] / others[0] < found.compared[0].high


def of_accuracies(
    *accuracies: float, metric: str = "accuracy", same_weights: bool = False, **claim: Any
) -> tuple[Answer, list[str]]:
    """What a study says of a claim about the last point, and why not more. Each point has one accuracy for three
    seeds."""
    trials = [
        trial(
            3 * at + seed,
            {"variant": "abc"[at]},
            seed=seed,
            validation=value,
            ran={"metric": metric, "weights_sha256": f"{seed}{'' if same_weights else at}"},
        )
        for at, value in enumerate(accuracies)
        for seed in range(3)
    ]
    of = {"variant": "abc"[len(accuracies) - 1]}
    (found,) = answers_of(results(trials, verdicts=[{"claim": "good", "figure": "validation", "of": of, **claim}]))
    return found.answer, list(found.doubts)


@pytest.mark.parametrize(
    ("more", "answer"),
    [
        ({"above": -0.001}, "not decided by this study"),
        ({"above": -0.001, "same_weights": True}, "holds"),
        ({"above": -0.1}, "holds"),
    ],
)
def test_accuracies_that_tie_are_known_to_a_sample(more: dict[str, Any], answer: str) -> None:
    """The set has 20 samples or more, as 0.85 shows. Another point, of another set, changes nothing."""
    minus = [{"variant": "b"}]
    assert of_accuracies(0.123456, 0.85, 0.85, minus=minus, **more)[0] == answer


def test_accuracies_of_sets_of_any_size_tie() -> None:
    """Denominators whose product no number of a computer holds."""
    trials = [
        trial(seed, {"variant": "a"}, seed=seed, validation=1.0 - 1.0 / (999_983 - 2 * seed)) for seed in range(80)
    ]
    trials += [trial(80 + seed, {"variant": "b"}, seed=seed, validation=0.5) for seed in range(3)]
    claim = {"claim": "good", "figure": "validation", "of": {"variant": "b"}, "above": 0.1}
    (found,) = answers_of(results(trials, verdicts=[claim]))
    assert found.compared[0].low == pytest.approx(0.5 - 2.92 * 0.5 / 3 / 3**0.5, abs=1e-3)


@pytest.mark.parametrize(
    ("accuracy", "more"),
    [(1.0, {}), (0.9, {"metric": "balanced_accuracy"}), (0.9, {"metric": "macro_f1"})],
)
def test_shares_that_tie_decide_nothing_where_a_sample_is_not_known(accuracy: float, more: dict[str, Any]) -> None:
    assert of_accuracies(accuracy, above=0.1, **more) == (
        "not decided by this study",
        ["all seeds are equal, and what one sample changes is not known"],
    )


def test_a_test_set_without_a_mistake_is_a_sample_too() -> None:
    trials = [
        trial(seed, {"variant": "a"}, seed=seed, ran={"best": Best(step=1, validation=1.0, test=1.0)})
        for seed in range(3)
    ]
    claim = {"claim": "no mistake", "figure": "test", "above": 0.995, "samples": 100}
    (found,) = answers_of(results(trials, verdicts=[claim]))
    assert found.answer == "not decided by this study" and found.compared[0].low < 0.99


def test_figures_that_have_no_ratio() -> None:
    def answer(values: tuple[float, ...], **claim: Any) -> Answer:
        cells = [("al", seed, each) for seed, each in enumerate(values)] + [("bp", seed, 0.8) for seed in range(4)]
        trials = [trial(n, {"variant": v}, seed=s, validation=score) for n, (v, s, score) in enumerate(cells)]
        whole = {"claim": "c", "figure": "validation", "of": {"variant": "al"}, "above": 0.5, **claim}
        return answers_of(results(trials, verdicts=[whole]))[0]

    beside: dict[str, Any] = {"over": [{"variant": "bp"}]}
    assert answer((0.8, 0.8, 0.8, 0.8), **beside).answer == "holds"
    with_none = answer((0.8, 0.8, 0.8, 0.0), **beside)
    assert not with_none.compared and "a ratio needs figures above 0" in with_none.doubts
    for lost in (answer((0.8, 0.8, 0.8, math.nan)), answer((math.inf,) * 4)):
        assert not lost.compared and any("not all of its values are finite" in doubt for doubt in lost.doubts)
    unshared = answer((0.8, 0.8, 0.8, 0.8, math.nan), minus=[{"variant": "bp"}])
    assert unshared.units == "4 seeds" and unshared.answer == "does not hold"


def test_a_figure_that_is_zero_lies_below_a_bound() -> None:
    trials = [trial(number, {"pipeline.stages": 1}, seed=number, ran={"bytes_sent": {}}) for number in range(3)]
    claim = {"claim": "nothing is sent", "figure": "bytes_sent", "below": 10}
    assert answers_of(results(trials, verdicts=[claim]))[0].answer == "holds"


def test_a_target_that_one_side_never_reached_is_told() -> None:
    cells = [(name, seed) for name in ("al", "bp") for seed in range(3)]
    trials = [
        trial(n, {"variant": name}, seed=seed, steps=20 + seed if name == "al" else None)
        for n, (name, seed) in enumerate(cells)
    ]
    claim = {"claim": "fewer", "figure": "steps_to_target", "of": {"variant": "al"}, "over": [{"variant": "bp"}]}
    target = {"metric": "validation_error", "below": 0.1}
    (found,) = answers_of(results(trials, verdicts=[{**claim, "below": 1}], target=target))
    assert not found.compared and "0 of 3 seeds reached the target" in found.doubts


def test_samples_say_nothing_of_a_metric_that_counts_none() -> None:
    ran = {"metric": "nats_per_token"}
    trials = [trial(number, {}, seed=number, validation=2.7 + 0.001 * number, ran=ran) for number in range(3)]
    claim = {"claim": "it learns", "figure": "validation", "below": 3.0, "samples": 10_000}
    (found,) = answers_of(results(trials, verdicts=[claim], repeats=3))
    assert found.compared == [] and "nats a token" in found.doubts[0]


def test_one_difference_is_compared_with_another_one_seed_by_seed() -> None:
    """Smoothing brings 0.02 or 0.03 at 64 samples and nothing at 8. What a seed does to all is ten times as much."""
    gains = {8: (0.0, 0.0, 0.0), 64: (0.02, 0.03, 0.03)}
    cells = [(size, name, seed) for size in gains for name in ("plain", "smooth") for seed in range(3)]
    trials = [
        trial(
            number,
            {"data.batch_size": size, "variant": name},
            seed=seed,
            validation=0.5 + 0.2 * seed - 0.001 * size + gains[size][seed] * (name == "smooth"),
        )
        for number, (size, name, seed) in enumerate(cells)
    ]
    more = {
        "claim": "it helps more",
        "figure": "validation",
        "of": {"data.batch_size": 64, "variant": "smooth"},
        "minus": [{"data.batch_size": 64, "variant": "plain"}],
        "than": {"data.batch_size": 8},
        "above": 0.0,
    }
    (found,) = answers_of(results(trials, verdicts=[more], repeats=3))
    (compared,) = found.compared
    half = 2.92 * 0.01 / 3  # Student's t; the deviation of 0.02, 0.03, 0.03 is 0.01 / sqrt(3)
    assert (found.answer, compared.value) == ("holds", pytest.approx(0.08 / 3))
    assert compared.low == pytest.approx(0.08 / 3 - half, abs=1e-5)
    assert found.figure.endswith(", minus the same at data.batch_size=8")
    (alone,) = answers_of(results(trials[6:], verdicts=[more], repeats=3))
    assert alone.compared == [] and alone.doubts == ["the study has nothing to compare it with"]


@pytest.mark.parametrize(
    ("began", "over"),
    [
        (("2026-01-01T10", "2026-01-02T09", "2026-01-03T09"), "3 days, 2026-01-01 to 2026-01-03"),
        (("2026-01-01T10", "2026-01-01T14", "2026-01-01T21"), "3 starts, 2026-01-01 10:00 to 21:00"),
        (("2026-01-01T10", "2026-01-01T14", "2026-01-02T21"), "3 starts, 2026-01-01 10:00 to 2026-01-02 21:00"),
    ],
)
def test_times_are_compared_day_by_day_and_few_days_decide_nothing(began: tuple[str, ...], over: str) -> None:
    """Within each session al is faster. From session to session the machine changes by more than that."""
    steps_s = {"al": (0.9, 1.1, 0.95), "bp": (1.0, 1.0, 1.0)}
    cells = [(session, seed, name) for session in range(3) for seed in range(2) for name in steps_s]
    trials = [
        trial(
            n,
            {"variant": name},
            seed=seed,
            session=session,
            began=f"{began[session]}:00:00+00:00",
            step_time_s=steps_s[name][session] * (1 + 0.001 * seed),
        )
        for n, (session, seed, name) in enumerate(cells)
    ]
    claim = {"claim": "fast", "figure": "step_time_s", "of": {"variant": "al"}, "over": [{"variant": "bp"}], "below": 1}
    (found,) = answers_of(results(trials, verdicts=[claim], sessions=3, repeats=2, measures="times"))
    assert (found.units, found.answer, found.few_days) == (over, OPEN, "starts" in over)
    assert found.compared[0].low < 0.9 and found.compared[0].high > 1.1
    (alone,) = answers_of(results(trials[:4], verdicts=[claim], repeats=2, measures="times"))
    assert alone.compared == [] and alone.doubts == ["2 runs show no spread"]


@pytest.mark.parametrize("seeds", [2, 4])
def test_a_time_to_a_target_is_as_doubtful_as_its_seeds(seeds: int) -> None:
    """Each start repeats the seeds: starts agree within a hundredth, and the mini-batches of seeds differ twofold."""
    steps = {"al": (20, 80, 40, 40), "bp": (40, 40, 40, 40)}
    cells = [(session, seed, name) for session in range(3) for seed in range(seeds) for name in steps]
    trials = [
        trial(
            n,
            {"variant": name},
            seed=seed,
            session=session,
            began=f"2026-01-0{session + 1}T10:00:00+00:00",
            status="reached",
            reached=Reached(step=steps[name][seed], samples=1, training_s=steps[name][seed] * (1 + 0.003 * session)),
        )
        for n, (session, seed, name) in enumerate(cells)
    ]
    claim = {"claim": "fast", "figure": "seconds_to_target", "of": {"variant": "al"}, "over": [{"variant": "bp"}]}
    (found,) = answers_of(results(trials, verdicts=[claim], sessions=3, repeats=seeds))
    if seeds == 2:
        assert found.compared == [] and "2 seeds show no spread" in found.doubts
    else:
        (compared,) = found.compared
        half = 2.353 * np.std(np.log([0.5, 2.0, 1.0, 1.0]), ddof=1) / 2.0  # Student's t of three degrees of freedom
        assert (np.log(compared.low), np.log(compared.high)) == pytest.approx((-half, half), abs=1e-3)
        assert found.units == "3 days, 2026-01-01 to 2026-01-03; 4 seeds"


def test_sessions_of_few_days_or_of_an_hour_count_as_one() -> None:
    """Of seven sessions two began around midnight, and the start of one is not known."""
    starts = ["01T10:00", "01T18:00", "02T23:40", "03T00:20", "03T23:00", "05T10:00", None]
    trials = [
        trial(n, {}, session=n, began=start and f"2026-01-{start}:00+00:00", step_time_s=1.0)
        for n, start in enumerate(starts)
    ]
    assert results(trials, sessions=7).days == {0: 0, 1: 0, 2: 2, 3: 2, 4: 2, 5: 5, 6: 0}


def test_a_session_that_began_twice_is_a_doubt_about_times() -> None:
    """The variant `bp` was added to the study on another day."""
    days = {"al": "2026-11-27T10:00:00+00:00", "bp": "2026-11-28T10:00:00+00:00"}
    cells = [(session, name) for session in range(3) for name in days]
    trials = [
        trial(
            n,
            {"variant": name},
            session=session,
            step_time_s=(0.5 if name == "al" else 1.0) + session / 100,
            began=days[name] if session else days["bp"],
        )
        for n, (session, name) in enumerate(cells)
    ]
    claim = {"claim": "fast", "figure": "step_time_s", "of": {"variant": "al"}, "over": [{"variant": "bp"}], "below": 1}
    (found,) = answers_of(results(trials, verdicts=[claim], sessions=3, measures="times"))
    assert found.doubts == ["2 sessions of 3 began at several or unknown times"]


def test_a_first_session_without_turns_is_a_doubt_about_times() -> None:
    """The study had one session first. Its trials keep no start, and its repeats did not run in turns."""
    cells = [(session, name) for session in range(3) for name in ("al", "bp")]
    trials = [
        trial(
            n,
            {"variant": name},
            session=session,
            step_time_s=1.0 + n / 10,
            began=f"2026-01-0{session}T10:00:00+00:00" if session else None,
        )
        for n, (session, name) in enumerate(cells)
    ]
    claim = {"claim": "fast", "figure": "step_time_s", "of": {"variant": "al"}, "over": [{"variant": "bp"}], "below": 1}
    (found,) = answers_of(results(trials, verdicts=[claim], sessions=3, measures="times"))
    assert found.doubts == ["1 session of 3 began at several or unknown times"]
    earlier = [each.model_copy(update={"began": None}) for each in trials]
    (found,) = answers_of(results(earlier, verdicts=[claim], sessions=3, measures="times"))
    assert found.doubts == [], "none has a known start"


def test_claims_of_a_page_are_decided_together() -> None:
    """By Benjamini & Hochberg at 0.1: of five claims the smallest p-value has to be at most 0.02, of two 0.05."""
    names = {"claim": "c", "figure": "test", "bound": "above 0", "answer": "not decided by this study", "doubts": []}
    compared = {"point": "", "value": 1.0, "low": 0.0, "high": 2.0, "p_holds": 0.0, "p_fails": 1.0}
    p_values = (0.015, 0.3, 0.3, 0.3, 0.3)
    claims = [
        Answer(**{**names, "figure": f"test {at}"}, compared=[compared], p_holds=p, p_fails=1.0 - p)
        for at, p in enumerate(p_values)
    ]
    without = Answer(**names, compared=[])
    assert {each.answer for each in decided([*claims, without])} == {"not decided by this study"}
    assert [each.answer for each in decided([without, *claims[:2]])][1:] == ["holds", "not decided by this study"]
    estimates = [Answer(**{**names, "bound": ""}, compared=[compared])] * 5  # each lacks a point
    assert decided([*estimates, *claims[:2]])[5].answer == "holds"


def test_a_figure_without_chance_is_no_discovery() -> None:
    """Two certain claims would let the second smallest p-value of three, 0.06, be at most 0.08 in place of 0.067."""
    names = {"claim": "c", "figure": "test", "bound": "above 0", "answer": "not decided by this study", "doubts": []}
    compared = {"point": "", "value": 1.0, "low": 0.0, "high": 2.0, "p_holds": 0.0, "p_fails": 1.0}
    certain = [Answer(**names, compared=[{**compared, "low": 1.0, "high": 1.0}], p_holds=0.0, p_fails=1.0)] * 2
    claims = [Answer(**names, compared=[compared], p_holds=p, p_fails=1.0 - p) for p in (0.035, 0.3, 0.31)]
    assert [each.answer for each in decided([*certain, *claims])][:3] == ["holds", "holds", "not decided by this study"]


def test_a_claim_and_its_opposite_are_one_test() -> None:
    """Twice the p-value of 0.06 would be the two smallest of three, of which both may be 0.067; once it may be 0.05."""
    names = {"figure": "test", "answer": "not decided by this study", "doubts": []}
    compared = {"point": "", "value": 1.0, "low": -0.1, "high": 2.0, "p_holds": 0.0, "p_fails": 1.0}
    more, less, other = (
        Answer(claim=bound, **names, bound=bound, compared=[compared], p_holds=p, p_fails=opposite)
        for bound, p, opposite in (("above 0", 0.03, 0.97), ("below 0", 0.97, 0.03), ("above 0", 0.25, 0.75))
    )
    assert {each.answer for each in decided([more, less, other])} == {"not decided by this study"}
    assert [each.answer for each in decided([more, less])] == ["holds", "does not hold"]


def test_few_days_decide_nothing_about_times_and_weighs_in_no_other_claim() -> None:
    """The p-value of 0.08 is small enough beside others that are smaller, and not by itself beside one that is not."""
    names = {"claim": "c", "figure": "step time", "bound": "below 1", "answer": "not decided by this study"}
    compared = {"point": "", "value": 0.5, "low": 0.4, "high": 0.6, "p_holds": 0.0, "p_fails": 1.0}
    accuracies = [Answer(**names, compared=[compared], doubts=[], p_holds=p, p_fails=1.0 - p) for p in (0.04, 0.4)]
    times = Answer(**names, compared=[compared], doubts=[], p_holds=0.001, p_fails=0.999, few_days=True)
    first, second, *others = decided([*accuracies, *[times] * 6])
    assert (first.says, second.says) == ("not decided by this study",) * 2
    assert {each.says for each in others} == {"not decided in fewer than three days"} and p_text(times) == ""


@pytest.mark.parametrize(
    ("published", "says"),
    [
        (0.9, "estimated, contains the published 0.9 at 1 of 2 points"),
        (0.91, "estimated, excludes the published 0.91"),
        (None, "estimated"),
    ],
)
def test_an_estimate_contains_or_excludes_what_was_published(
    published: float | None, says: str, tmp_path: Path
) -> None:
    """One point has 0.9 ± 0.002, the other one 0.8 ± 0.002."""
    cells = [(name, level, seed) for name, level in (("a", 0.9), ("b", 0.8)) for seed in range(3)]
    trials = [
        trial(number, {"variant": name}, seed=seed, validation=level + 0.001 * (seed - 1))
        for number, (name, level, seed) in enumerate(cells)
    ]
    claim = {"claim": "accuracy", "figure": "validation", "source": "Ours 1", "published": published}
    write_report(study_folder(results(trials, verdicts=[claim], repeats=3), tmp_path / "out"))
    assert f"| accuracy | {says} |" in (tmp_path / "out/report.md").read_text()


@pytest.mark.parametrize(
    ("figure", "ratio"), [("step_time_s", 0.5), ("peak_memory_bytes", 0.5), ("samples_per_s", 0.25)]
)
def test_the_best_of_several_others_is_the_smallest_of_figures_that_cost(figure: str, ratio: float) -> None:
    trials = [
        trial(3 * n + seed, {"variant": name}, seed=seed, step_time_s=value, ran={**of, "peak_memory_bytes": [value]})
        for n, (name, value) in enumerate({"a": 1, "b": 2, "c": 4}.items())
        for of in ({"samples_per_s": float(value)},)
        for seed in range(3)
    ]
    beside = {"of": {"variant": "a"}, "over": [{"variant": "b"}, {"variant": "c"}]}
    (answer,) = answers_of(results(trials, verdicts=[{"claim": "a is best", "figure": figure, **beside}]))
    assert answer.compared[0].value == pytest.approx(ratio)


def test_the_report_has_the_verdicts(tmp_path: Path) -> None:
    of_sessions = timed(streamed=[0.010, 0.0101, 0.0102], naive=[0.02, 0.021, 0.022])
    trials = [each.model_copy(update={"seed": each.session, "session": 0}) for each in of_sessions]
    folder = study_folder(results(trials, verdicts=[{**FASTER, "over": [{"variant": "naive"}]}]), tmp_path / "out")
    write_report(folder)
    (answer,) = read_study(tmp_path / "out/study.json").verdicts
    assert (answer.answer, answer.few_days) == ("not decided by this study", True)
    assert "| streaming is faster | not decided in fewer than three days |" in (tmp_path / "out/report.md").read_text()


def environment(folder: Path, number: int, **of: str) -> None:
    (folder / f"{number:04d}").mkdir(parents=True, exist_ok=True)
    (folder / f"{number:04d}/environment.json").write_text(json.dumps({**of, "given": {}, "spec_sha256": []}))


def test_times_of_several_machines_or_versions_are_a_doubt_and_decide_nothing(tmp_path: Path) -> None:
    trials = [
        trial(n, {"variant": name}, seed=seed, step_time_s=(0.01 if name == "streamed" else 0.02) + 1e-4 * seed)
        for n, (name, seed) in enumerate((name, seed) for name in ("streamed", "naive") for seed in range(3))
    ]
    claims = [
        {**FASTER, "over": [{"variant": "naive"}]},
        {"claim": "accurate", "figure": "validation", "of": {"variant": "streamed"}, "above": 0.1},
    ]
    for each in trials:
        environment(tmp_path, each.number, host="a", device="Xeon", torch="2.1", alray="0.2", data_sha256="1")
    of = results(trials, tmp_path, verdicts=claims)
    alike, _ = answers_of(of)
    assert (alike.doubts, alike.few_days, warnings_of(of)) == ([], True, [])
    for each in trials[3:]:
        environment(tmp_path, each.number, host="b", device="EPYC", torch="2.15", alray="0.2", data_sha256="2")
    of = results(trials, tmp_path, verdicts=claims)
    found, accurate = answers_of(of)
    (doubt,) = found.doubts
    assert "different machines" in doubt and "device: Xeon or EPYC; host: a or b; torch: 2.1 or 2.15" in doubt
    assert (found.says, accurate.answer, accurate.doubts) == ("not decided in fewer than three days", "holds", [])
    assert [made for made in ("Xeon", "EPYC", "torch 2.1;", "torch 2.15") if made not in str(made_with(of))] == []
    assert warnings_of(of) == [OTHER_DATA]


def test_code_that_was_edited_between_trials_is_told(tmp_path: Path) -> None:
    trials = [trial(number, {}, seed=number) for number in range(2)]
    of = results(trials, tmp_path)
    for each in trials:
        of.trial_dir(each.number).mkdir(parents=True)
        write_record(of.trial_dir(each.number), CodeRecord(root="/x", files={"mine.py": "1", "same.py": "2"}))
    assert warnings_of(of) == []
    write_record(of.trial_dir(1), CodeRecord(root="/x", files={"mine.py": "3", "same.py": "2"}))
    (said,) = warnings_of(of)
    assert said.startswith("The code changed while the study ran: ") and said.endswith(" (mine.py).")


def test_other_points_are_compared_with_one_of_them() -> None:
    """Without `of` a claim is about all points: the one that others are compared with is not compared with itself."""
    trials = timed(streamed=[0.010, 0.0101, 0.0102], zb=[0.011, 0.0111, 0.0112], naive=[0.02, 0.021, 0.022])
    claim = {**FASTER, "of": {}, "over": [{"variant": "naive"}]}
    (found,) = answers_of(results(trials, verdicts=[claim], sessions=3))
    assert found.answer == "holds"
    points = [f"variant={name}, data.batch_size={size}" for name in ("streamed", "zb") for size in (32, 64)]
    assert [each.point for each in found.compared] == points


def test_a_claim_is_about_the_points_that_have_not_run_yet_too() -> None:
    """A study that was interrupted: no trial of the batch size 64 has ended, and none of the second rival."""
    cells = [(name, seed) for name in ("al", "bp") for seed in range(3)]
    trials = [
        trial(n, {"variant": name, "data.batch_size": 32}, seed=seed, validation=0.8 + seed / 100 + (name == "al") / 10)
        for n, (name, seed) in enumerate(cells)
    ]
    beside = {"claim": "better", "figure": "validation", "of": {"variant": "al"}, "above": 0.0}
    claims = [{**beside, "minus": [{"variant": "bp"}]}, {**beside, "minus": [{"variant": "bp"}, {"variant": "dgl"}]}]
    of = results(trials, repeats=3, verdicts=claims[:1])
    assert [each.answer for each in answers_of(of)] == ["holds"]
    for axes, skipped, answers in (
        ({"variant": {"al": {}, "bp": {}}, "data.batch_size": [32, 64]}, [], [OPEN]),
        ({"variant": {"al": {}, "bp": {}}, "data.batch_size": [32, 64]}, [64], ["holds"]),
        ({"variant": {"al": {}, "bp": {}, "dgl": {}}, "data.batch_size": [32]}, [], ["holds", OPEN]),
    ):
        study = Study.model_validate({**of.study.model_dump(), "axes": axes, "verdicts": claims[: len(answers)]})
        left_out = [{"variant": name, "data.batch_size": size} for size in skipped for name in ("al", "bp")]
        found = answers_of(Results(study, trials, of.trial_dir, left_out))
        assert [each.answer for each in found] == answers
        assert all(each.answer == "holds" or "no trial has ended" in each.doubts[0] for each in found)
