"""The figures of made-up studies: which ones there are, and that their values are those of the records."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any
from xml.etree import ElementTree

import pytest

from alray.core.run_folder.records import DepthScores, StageRecord, Writer
from alray.report.figure import Exhibit, Figure, light_colours
from alray.studies.figures import exhibits_of, warnings_of
from alray.studies.results import Results
from alray.studies.trial import first_reached

from .conftest import evaluation, results, staged, started, step, trial

SEARCH = {
    "trials": 2,
    "space": {
        "optimizer.lr": {"loguniform": [1e-3, 1.0]},
        "optimizer.momentum": {"one_minus_loguniform": [0.5, 0.999]},
    },
}
ERROR = {"metric": "validation_error", "below": 0.05}
SIZES = (8, 16, 32, 64)
STEPS = {("sgd", 8): 800, ("sgd", 16): 400, ("sgd", 32): 300, ("nesterov", 8): 400, ("nesterov", 16): 200}
"""To the target, with the better of two settings. The others never reach it."""


def batch_sizes() -> Results:
    """Two variants, four batch sizes, two settings each: of the second one always diverges."""
    trials = []
    for variant in ("sgd", "nesterov"):
        for size in SIZES:
            point = {"variant": variant, "data.batch_size": size}
            for index in range(2):
                momentum = 0.5 if variant == "sgd" else 0.9
                drawn = {"optimizer.lr": 0.01 * size * (index + 1) / 8, "optimizer.momentum": momentum}
                overrides = ['optimizer={"kind": "sgd"}', *(f"{key}={value}" for key, value in drawn.items())]
                how: dict[str, Any] = {"status": "diverged", "reason": "the losses grew"}
                if index == 0:
                    how = {"steps": STEPS.get((variant, size)), "ran": {"steps": 5000}}
                number = len(trials)
                trials.append(trial(number, point, index=index, values=drawn, overrides=overrides, **how))
    return results(trials, search=SEARCH, target=ERROR)


BATCH_SIZES = exhibits_of(batch_sizes())


def exhibit(found: list[Exhibit], title: str) -> Exhibit:
    return next(each for each in found if each.title == title)


def figure(found: list[Exhibit], name: str) -> Figure:
    return next(each for one in found for each in one.figures if each.name == name)


def kind(rows: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["kind"] == name]


def test_a_study_of_batch_sizes_has_its_figures() -> None:
    found = BATCH_SIZES
    assert [(each.title, [one.name for one in each.figures]) for each in found] == [
        ("Steps to the target", ["steps_to_target"]),
        ("Best settings", ["best_lr", "best_momentum", "best_effective_rate"]),
    ]
    assert all(each.note and "  " not in each.note for each in found)


def test_steps_to_the_target_are_those_of_the_records() -> None:
    rows = figure(BATCH_SIZES, "steps_to_target").rows
    measured = {(row["series"], row["batch_size"]): row for row in kind(rows, "measured")}
    assert {key: row["steps"] for key, row in measured.items() if row["mark"] != "not reached"} == STEPS
    never = {key: row["steps"] for key, row in measured.items() if row["mark"] == "not reached"}
    assert never == {("sgd", 64): 5000, ("nesterov", 32): 5000, ("nesterov", 64): 5000}
    assert measured["sgd", 32]["mark"] == "reached"
    perfect = {(row["series"], row["batch_size"]): row["steps"] for row in kind(rows, "ideal")}
    assert perfect["sgd", 64] == 100 and perfect["nesterov", 16] == 200


def test_a_target_may_be_an_error_of_a_regression() -> None:
    target = {"metric": "validation_mean_squared_error", "below": 0.4}
    metric = "mean_squared_error"
    records = [step(10, 1.0), evaluation(10, 2.0, 0.9, metric=metric), step(20, 3.0)]
    records += [evaluation(20, 4.0, 0.4, metric=metric), step(30, 5.0), evaluation(30, 6.0, 0.3, metric=metric)]
    reached = first_reached(records, 0.4)
    assert reached is not None and reached.step == 20
    assert first_reached(records, 0.2) is None
    trials = [
        trial(place, {"data.batch_size": size}, steps=100 // size, ran={"metric": metric})
        for place, size in enumerate((1, 2, 4))
    ]
    of = results(trials, target=target)
    assert of.study.target is not None
    assert of.study.target.stop_at({}) == {"metric": "validation_mean_squared_error", "below": 0.4}
    found = exhibit(exhibits_of(of), "Steps to the target")
    rows = kind(next(each for each in found.figures if each.name == "steps_to_target").rows, "measured")
    assert {row["batch_size"]: row["steps"] for row in rows} == {1: 100, 2: 50, 4: 25}
    assert "accuracy" not in str(
        [found.note, *found.findings, *(each.title + each.description for each in found.figures)]
    )


def of_three_seeds(*values: float) -> tuple[float, float]:
    """The ends of the 90 % interval of the mean of three values that differ by factors."""
    logs = [math.log(value) for value in values]
    half = 2.919986 * stdev(logs) / 3**0.5  # the quantile of Student's t with two degrees of freedom
    return math.exp(fmean(logs) - half), math.exp(fmean(logs) + half)


def test_seeds_that_missed_the_target_are_marked_and_bars_are_those_of_what_is_drawn() -> None:
    trials = [
        trial(
            3 * n + seed,
            {"data.batch_size": 8 * 2**n},
            seed=seed,
            steps=None if (n, seed) == (1, 2) else (400 >> n) + 20 * seed,
            values={"optimizer.lr": 0.1},
        )
        for n in range(2)
        for seed in range(3)
    ]
    found = exhibits_of(results(trials, target=ERROR))
    (finding,) = exhibit(found, "Steps to the target").findings
    assert finding.endswith("16 reached it on 2 of 3 seeds.")
    first, second = kind(figure(found, "steps_to_target").rows, "measured")
    assert (second["mark"], second["reached"]) == ("not reached by every seed", "2 of 3")
    low, high = of_three_seeds(400, 420, 440)
    assert [first[key] for key in ("low", "steps", "high")] == pytest.approx([low, 420, high], rel=1e-3)
    assert second["doubts"] == "2 of 3 seeds reached the target" and "low" not in second


def test_the_critical_batch_size_is_told() -> None:
    found = exhibit(BATCH_SIZES, "Steps to the target")
    sgd, nesterov = found.findings
    told = "the critical batch size is not known, for one seed shows no spread"
    assert sgd == f"sgd: {told}; 64 never reached the target."
    assert nesterov == f"nesterov: {told}; 32 and 64 never reached the target."
    table = found.tables["batch_sizes"]
    assert table.rows[0] == ("sgd", "–", "–", "–", "64", "–")
    first, *_ = csv.DictReader(io.StringIO(table.csv))
    assert (first["variant"], first["critical"], first["never_reached"], first["reached_by_some"]) == (
        "sgd",
        "",
        "64",
        "",
    )


def test_the_best_settings_are_those_of_the_records() -> None:
    rates = figure(BATCH_SIZES, "best_lr").rows
    assert [row["value"] for row in rates if row["series"] == "sgd"] == pytest.approx([0.01, 0.02, 0.04])
    kept = figure(BATCH_SIZES, "best_momentum").rows
    assert [row["value"] for row in kept] == pytest.approx([0.5] * 3 + [0.1] * 2)
    assert {row["mark"] for row in kept if row["series"] == "sgd"} == {"not bracketed"}
    effective = figure(BATCH_SIZES, "best_effective_rate").rows
    assert [row["value"] for row in effective] == pytest.approx([0.02, 0.04, 0.08, 0.1, 0.2])


def test_a_variant_may_search_what_others_do_not_and_the_base_may_set_the_rest(tmp_path: Path) -> None:
    """The momentum of plain SGD stands in the spec of its trials only."""
    (tmp_path / "0000").mkdir()
    (tmp_path / "0000" / "spec.yaml").write_text("optimizer: {kind: sgd, lr: 0.1}\n", encoding="utf-8")
    own = {"optimizer.momentum": {"one_minus_loguniform": [0.5, 0.999]}}
    search = {"trials": 1, "space": {"optimizer.lr": {"loguniform": [1e-3, 1.0]}}, "variants": {"nesterov": own}}
    trials = []
    for number, (variant, size) in enumerate((variant, size) for variant in ("sgd", "nesterov") for size in (8, 16)):
        drawn = {"optimizer.lr": 0.1} | ({"optimizer.momentum": 0.9988} if variant == "nesterov" else {})
        overrides = [f"{key}={value}" for key, value in drawn.items()]
        point = {"variant": variant, "data.batch_size": size}
        trials.append(trial(number, point, values=drawn, overrides=overrides, steps=100))
    of = results(trials, tmp_path, search=search, target=ERROR)
    found = exhibits_of(of)
    momentum = figure(found, "best_momentum").rows
    assert [(row["series"], row["mark"]) for row in momentum] == [("nesterov", "not bracketed")] * 2
    effective = {(row["series"], row["batch_size"]): row["value"] for row in figure(found, "best_effective_rate").rows}
    assert effective.pop(("sgd", 8)) == 0.1  # the other batch size has no run folder, so its momentum is not known
    assert effective == {("nesterov", size): pytest.approx(0.1 / 0.0012) for size in (8, 16)}
    told = [sentence for sentence in warnings_of(of) if "optimizer.momentum" in sentence]
    assert len(told) == 2


def strong(**more: Any) -> Results:
    """Two methods on one and two stages, three seeds."""
    equal = {("al", 2): 0.06, ("bp", 1): 0.1, ("bp", 2): 0.11}
    times = {("al", 1): (0.1, 0.11, 0.12), **{point: (seconds,) * 3 for point, seconds in equal.items()}}
    trials = [
        trial(
            3 * place + seed,
            {"pipeline.stages": stages, "variant": variant},
            seed=seed,
            step_time_s=time,
            ran={
                "method": "backpropagation" if variant == "bp" else "associated",
                "partition": [12 // stages] * stages,
                "predicted_step_time_s": 0.1 / stages,
                **more,
            },
        )
        for place, ((variant, stages), pair) in enumerate(times.items())
        for seed, time in enumerate(pair)
    ]
    return results(trials)


def test_scaling_shows_the_records_the_ideal_and_the_plan() -> None:
    found = exhibit(exhibits_of(strong()), "Strong scaling")
    assert [each.name for each in found.figures] == ["step_time", "speed_up", "efficiency"]
    times, speed_up, efficiency = (each.rows for each in found.figures)
    assert [(row["series"], row["devices"], row["step_time_s"]) for row in kind(times, "measured")] == [
        ("al", 1, pytest.approx(0.11)),
        ("al", 2, pytest.approx(0.06)),
        ("bp", 1, pytest.approx(0.1)),
        ("bp", 2, pytest.approx(0.11)),
    ]
    assert [row["step_time_s"] for row in kind(times, "ideal")] == pytest.approx([0.11, 0.055, 0.1, 0.05])
    logs = [math.log(seconds) for seconds in (0.1, 0.11, 0.12)]
    low = math.exp(fmean(logs) - 2.919986 * stdev(logs) / 3**0.5)  # the quantile of Student's t of two degrees
    assert kind(times, "measured")[0]["low"] == pytest.approx(low, rel=1e-3)
    assert [kind(times, "measured")[1][end] for end in ("low", "high")] == pytest.approx([0.06, 0.06]), "no width"
    assert [set(row) & {"low", "high"} for row in kind(speed_up, "measured")][::2] == [set(), set()], "1 by definition"
    assert [row["speed_up"] for row in kind(speed_up, "measured")] == pytest.approx([1, 11 / 6, 1, 10 / 11])
    assert [row["speed_up"] for row in kind(speed_up, "predicted")] == pytest.approx([1, 2, 1, 2])
    assert [(row["devices"], row["speed_up"]) for row in kind(speed_up, "ideal")] == [(1, 1.0), (2, 2.0)]
    assert [row["efficiency"] for row in kind(efficiency, "measured")] == pytest.approx([1, 11 / 12, 1, 5 / 11])
    assert found.findings[0] == "al: from 1 to 2 stages the speed-up is 1.83 ± 0.17, the efficiency 0.92 ± 0.08."
    calm = strong()
    busy = replace(calm, records=[each.model_copy(update={"taken_processors": 0.9}) for each in calm.records])
    assert exhibit(exhibits_of(busy), "Strong scaling").findings == (), "its times cannot be compared"


def test_the_ideal_begins_at_the_fewest_devices_of_all_series() -> None:
    points = [("al", 2), ("al", 4), ("bp", 1), ("bp", 2), ("bp", 4)]  # al did not fit on one stage
    trials = [
        trial(
            n,
            {"variant": name, "pipeline.stages": stages},
            step_time_s=1 / stages,
            ran={"partition": [4 // stages] * stages},
        )
        for n, (name, stages) in enumerate(points)
    ]
    rows = figure(exhibits_of(results(trials)), "speed_up").rows
    assert [(row["devices"], row["speed_up"]) for row in kind(rows, "ideal")] == [(1, 1.0), (4, 4.0)]
    assert {row["series"] for row in kind(rows, "measured")} == {"al, relative to 2 stages", "bp"}


def test_weak_scaling_keeps_the_step_time_in_the_ideal() -> None:
    trials = [
        trial(number, {"pipeline.stages": stages}, step_time_s=time, ran={"partition": [2] * stages})
        for number, (stages, time) in enumerate(((1, 0.1), (2, 0.125)))
    ]
    found = exhibit(exhibits_of(results(trials)), "Weak scaling")
    assert [row["step_time_s"] for row in kind(found.figures[0].rows, "ideal")] == [0.1, 0.1]
    assert [row["efficiency"] for row in kind(found.figures[2].rows, "measured")] == pytest.approx([1.0, 0.8])


@pytest.mark.parametrize("search", [None, SEARCH])
def test_only_a_search_can_be_too_small(search: dict[str, Any] | None) -> None:
    drawn = {"optimizer.lr": 0.1} if search else {}
    sizes = [trial(n, {"data.batch_size": 8 * 2**n}, steps=10 + n, values=drawn) for n in range(3)]
    found = exhibit(exhibits_of(results(sizes, target=ERROR, search=search)), "Steps to the target")
    assert any("the search is too small" in each for each in found.findings) == (search is not None)


def test_the_race_is_the_mean_over_the_seeds(tmp_path: Path) -> None:
    """At the evaluations that all seeds made: one of them ended before the others."""
    trials = [trial(number, {"variant": "al" if number < 3 else "bp"}, seed=number % 3) for number in range(6)]
    for number in range(6):
        (tmp_path / f"{number:04d}").mkdir()
        writer = Writer(tmp_path / f"{number:04d}" / "records.jsonl")
        more = number % 3 / 100
        for record in (
            *(started(), staged(3, 0, 3, 0.1, step_times_s=[5.0, 1.0, 1.0], after_cut=[1])),
            *(evaluation(2, 7.0, 0.4 + more), evaluation(3, 9.0, 0.6 + more)),
            *((staged(4, 0, 1, 0.1, step_times_s=[1.0]), evaluation(4, 11.0, 0.7)) if number % 3 else ()),
        ):
            writer.write(record)
        writer.close()
    found = exhibit(exhibits_of(results(trials, tmp_path)), "Accuracy during training")
    assert [each.name for each in found.figures] == ["accuracy_by_seconds", "accuracy_by_samples"]
    columns = ("series", "seeds", "samples", "accuracy", "low", "high", "seconds")
    off = 2.919986 * 0.01 / 3**0.5  # the quantile of Student's t with two degrees of freedom
    assert [tuple(row[column] for column in columns) for row in found.figures[0].rows] == [
        (name, 3, samples, *(pytest.approx(each, abs=1e-4) for each in (mean, mean - off, mean + off, samples / 10)))
        for name in ("al", "bp")
        for samples, mean in ((20, 0.41), (30, 0.61))
    ]
    assert "Accuracy during training" not in {each.title for each in exhibits_of(results(trials))}  # no run folders


def run_of(folder: Path, number: int, accuracies: list[float]) -> None:
    """The records of a trial that was evaluated after each mini-batch."""
    (folder / f"{number:04d}").mkdir()
    writer = Writer(folder / f"{number:04d}" / "records.jsonl")
    for count, accuracy in enumerate(accuracies, start=1):
        writer.write(step(count, 2.0 * count))
        writer.write(evaluation(count, 2.0 * count + 1, accuracy))
    writer.close()


def test_a_band_has_no_width_where_seeds_agree_and_two_seeds_have_none(tmp_path: Path) -> None:
    """Drawn: the band of three seeds does not break off in the middle."""
    trials = [trial(n, {"variant": "al" if n < 3 else "bp"}, seed=n % 3) for n in range(5)]
    for number in range(5):
        run_of(tmp_path, number, [0.2 + number / 100, 0.5, 0.6 - number / 100])
    found = figure(exhibits_of(results(trials, tmp_path)), "accuracy_by_samples")
    first, agreed, last, *of_two = found.rows
    assert first["low"] < first["high"] and last["low"] < last["high"]
    assert (agreed["low"], agreed["high"]) == (0.5, 0.5)
    assert [{"low", "high"} & set(row) for row in of_two] == [set()] * 3
    (band,) = re.findall(r'<path[^>]* d="(M[^"]*)"[^>]*opacity="0.16"', found.svg)
    assert band.count("M") == 1


def test_a_band_is_over_seeds_and_not_over_the_sessions_in_which_they_train_again(tmp_path: Path) -> None:
    trials = [trial(n, {"variant": "ab"[n // 6]}, seed=n % 2, session=n % 6 // 2) for n in range(12)]
    for one in trials:
        run_of(tmp_path, one.number, [0.2 + one.seed / 10, 0.5])
    (first, *_) = figure(exhibits_of(results(trials, tmp_path, sessions=3)), "accuracy_by_samples").rows
    assert (first["accuracy"], first["seeds"], "low" in first) == (pytest.approx(0.25), 2, False)


def test_points_of_two_seeds_have_no_bars_in_any_figure(tmp_path: Path) -> None:
    for_axis = [
        trial(2 * n + seed, {"pipeline.stages": n}, seed=seed, step_time_s=(0.1 + seed) / n, steps=None)
        for n in (1, 2)
        for seed in (0, 1)
    ]
    to_target = [
        trial(2 * n + seed, {"data.batch_size": 8 * n}, seed=seed, steps=100 + seed) for n in (1, 2) for seed in (0, 1)
    ]
    of_label_dim = [trial(4 * n + seed, {"method.label_dim": n}, seed=seed) for n in (1, 2) for seed in (0, 1)]
    for of in (results(for_axis), results(to_target, target=ERROR), results(of_label_dim)):
        exhibits = exhibits_of(of)
        assert exhibits
        assert not [row for one in exhibits for each in one.figures for row in each.rows if {"low", "high"} & set(row)]


def test_points_that_end_in_the_same_weights_have_one_curve(tmp_path: Path) -> None:
    """Against samples and by depth."""
    depths = [DepthScores(depth=depth, validation=0.4 + 0.1 * depth) for depth in (1, 2)]
    hashes = {1: "a", 2: "a", 4: "b"}
    trials = [
        trial(n, {"run.deterministic": n}, ran={"weights_sha256": sha256, "scores_per_depth": depths})
        for n, sha256 in hashes.items()
    ]
    for number in hashes:
        run_of(tmp_path, number, [0.2, 0.5])
    of = exhibits_of(results(trials, tmp_path))
    one = "deterministic 1 (and 1 of equal weights)"
    for name in ("accuracy_by_samples", "accuracy_per_depth"):
        drawn = figure(of, name)
        assert [each.label for each in drawn.series] == [one, "deterministic 4"], name
        assert len(drawn.rows) == 4
    assert exhibit(of, "Accuracy per depth").findings == (
        f"The curve `{one}` is that of `deterministic 1` and `deterministic 2`, which end in the same weights.",
    )


def test_equal_weights_with_other_values_keep_their_curves(tmp_path: Path) -> None:
    """Such as those of runs that were evaluated at other mini-batches."""
    trials = [trial(n, {"variant": str(n)}) for n in (0, 1)]
    run_of(tmp_path, 0, [0.2, 0.5])
    run_of(tmp_path, 1, [0.2, 0.5, 0.5])
    assert len(figure(exhibits_of(results(trials, tmp_path)), "accuracy_by_samples").series) == 2


def test_batch_sizes_on_other_stages_have_one_way_to_the_target() -> None:
    trials = [
        trial(
            4 * stages + size,
            {"data.batch_size": 8 * size, "pipeline.stages": stages},
            steps=100 // size,
            ran={"weights_sha256": str(size)},
        )
        for stages in (1, 2)
        for size in (1, 2, 4)
    ]
    of = exhibits_of(results(trials, target=ERROR))
    assert [each.label for each in figure(of, "steps_to_target").series] == ["stages 1 (and 1 of equal weights)"]


def test_accuracy_per_depth_and_utilisation(tmp_path: Path) -> None:
    depths = [DepthScores(depth=depth, validation=0.4 + 0.1 * depth) for depth in (1, 2)]
    trials = [trial(0, {"variant": "al"}, ran={"scores_per_depth": depths})]
    (tmp_path / "0000").mkdir()
    writer = Writer(tmp_path / "0000" / "records.jsonl")
    no_peak = {"peak_memory_bytes": None}
    for stage, compute_s in enumerate((0.9, 0.6)):
        times = {"forward_s": 0.0, "backward_s": 0.0, "update_s": 0.0, "send_wait_s": 0.0, "idle_s": 0.0}
        times |= {"compute_s": compute_s, "receive_wait_s": 1.0 - compute_s, "evaluation_s": 0.0}
        place = {"time_s": 5.0, "step": 9, "epoch": 1.0, "samples": 90, "stage": stage, "replica": 0, "steps": 9}
        for warm_up in (False, True):
            ends = {"step_times_s": [1 / 9] * 9 * stage, "bytes_sent": {}, "warm_up": warm_up, "after_cut": []}
            writer.write(StageRecord(**place, **(times | ({"compute_s": 0.0} if warm_up else {})), **ends, **no_peak))
    writer.close()
    of = exhibits_of(results(trials, tmp_path))
    shown = [(row["series"], row["depth"], row["accuracy"]) for row in figure(of, "accuracy_per_depth").rows]
    assert shown == [("al", 1, pytest.approx(0.5)), ("al", 2, pytest.approx(0.6))]
    used = [(row["stage"], row["utilisation"]) for row in figure(of, "utilisation").rows]
    assert used == [(0, pytest.approx(0.9)), (1, pytest.approx(0.6))]


@pytest.mark.parametrize(
    ("values", "shown"),
    [([0.1, 0.2], [0.1, 0.2]), (["a", "b"], ["a", "b"]), ([None, 8], ["null", "8"]), ([0, 3], [0, 3])],
)
def test_any_other_study_has_its_main_figures_over_one_axis(values: list[Any], shown: list[Any]) -> None:
    trials = [trial(n, {"method.label_dim": value}, validation=0.5 + n / 10) for n, value in enumerate(values)]
    accuracy, times = exhibit(exhibits_of(results(trials)), "Over label dim").figures
    assert (accuracy.name, times.name) == ("validation_over_method.label_dim", "step_time_s_over_method.label_dim")
    assert [(row["value"], row["validation"]) for row in accuracy.rows] == list(zip(shown, (0.5, 0.6), strict=True))
    assert [row["step_time_s"] for row in times.rows] == [0.01, 0.01]
    assert ("'line'" in str(accuracy.drawing)) is (shown in ([0.1, 0.2], [0, 3]))


def test_a_study_without_axes_or_without_trials_has_no_figures() -> None:
    assert exhibits_of(results([trial(0, {})])) == []
    assert exhibits_of(results([])) == []
    failed = [trial(n, {"pipeline.stages": n + 1}, status="failed", reason="no", summary=None) for n in range(2)]
    assert exhibits_of(results(failed)) == []


def test_a_target_that_nothing_reached_is_shown() -> None:
    trials = [
        trial(number, {"data.batch_size": size}, values={"optimizer.lr": 0.1}, ran={"steps": 500})
        for number, size in enumerate((8, 16))
    ]
    space = {"trials": 1, "space": {"optimizer.lr": {"loguniform": [1e-3, 1.0]}}}
    of = exhibits_of(results(trials, search=space, target=ERROR))
    assert [row["mark"] for row in figure(of, "steps_to_target").rows] == ["not reached"] * 2
    why = "the critical batch size is not known, for one seed shows no spread"
    told = f"all points: {why}; 8 and 16 never reached the target."
    assert exhibit(of, "Steps to the target").findings == (told,)


def test_every_figure_is_a_drawing_a_table_and_a_text() -> None:
    depth = [DepthScores(depth=depth, validation=0.4 + 0.1 * depth) for depth in (1, 2)]
    other = results([trial(n, {"a": n + 1, "b": 2}, ran={"scores_per_depth": depth}) for n in range(2)])
    maps = results([trial(2 * a + b, {"a": a + 1, "b": b + 1}) for a in range(2) for b in range(2)])
    studies = (BATCH_SIZES, *map(exhibits_of, (strong(), other, maps)))
    figures = {each.name: each for study in studies for one in study for each in one.figures}
    assert len(figures) >= 10
    for one in figures.values():
        root = ElementTree.fromstring(one.svg)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        text = "".join(root.itertext())
        assert one.title in text and "undefined" not in text and "NaN" not in text, one.name
        assert root.get("aria-label") == one.description, one.name
        colours = "".join(each.get("stroke", "") + each.get("fill", "") for each in root.iter())
        assert "--" not in colours and ("#2f6fde" in colours or one.name.startswith("trials") or not one.series)
        assert len(list(csv.DictReader(io.StringIO(one.csv)))) == len(one.rows)
        assert json.dumps(one.spec, allow_nan=False)
    notes = [one.note for study in studies for one in study]
    assert all(notes) and not any(re.search(r"[a-z]- [a-z]", note) for note in notes)  # a line that ended in a hyphen


def texts_of(svg: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"))


def test_a_file_shows_long_labels_whole() -> None:
    """Two series whose labels differ only at their end."""
    names = [f"associated learning with a wide bridge and mini-batches, {rate}" for rate in (0.001, 0.002)]
    trials = [trial(2 * n + k, {"variant": name, "a": k}) for n, name in enumerate(names) for k in range(2)]
    shown = figure(exhibits_of(results(trials)), "step_time_s_over_a")
    found = {text.text for text in texts_of(shown.svg)}
    assert found >= set(names)
    width = float(ElementTree.fromstring(shown.svg).get("width", "0"))
    assert width > 0.4 * 11 * len(names[0])


def test_points_with_trouble_have_a_mark_and_say_why() -> None:
    accuracies = {"al": (0.9, 0.91, 0.12), "bp": (0.9, 0.91, 0.92), "sgd": (0.8, 0.82, 0.81)}
    trials = [
        trial(3 * n + seed, {"variant": name}, seed=seed, validation=accuracy)
        for n, (name, each) in enumerate(accuracies.items())
        for seed, accuracy in enumerate(each)
    ]
    shown = figure(exhibits_of(results(trials)), "validation_over_variant")
    al, bp, _ = shown.rows
    assert al["mark"] != bp["mark"] and al["doubts"] == "1 seed of 3 learned next to nothing" and bp["doubts"] == "none"
    assert 0 <= al["low"] < al["validation"] < al["high"] <= 1
    assert al["mark"] in shown.svg
    sound = figure(exhibits_of(results(trials[3:])), "validation_over_variant")
    assert bp["mark"] not in sound.svg, "where no point has trouble there is nothing to tell apart"


def test_bars_of_times_stay_above_zero_and_stand_beside_each_other() -> None:
    times = (0.001, 0.001, 0.1)  # their deviation is larger than their mean
    trials = [
        trial(
            6 * n + 3 * count + seed,
            {"variant": name, "pipeline.stages": count},
            seed=seed,
            step_time_s=time / count,
        )
        for n, name in enumerate("ab")
        for count in (1, 2)
        for seed, time in enumerate(times)
    ]
    shown = figure(exhibits_of(results(trials)), "step_time")
    assert all(0 < row["low"] < row["high"] for row in kind(shown.rows, "measured"))
    root = ElementTree.fromstring(shown.svg)
    bars = [each for each in root.iter() if each.get("aria-roledescription") == "rule mark"]
    places = {(each.get("transform") or "").partition(",")[0] for each in bars}
    assert len(bars) == len(places) == 4, "two series at two numbers of stages, all at different positions"
    assert "NaN" not in shown.svg


def test_sixteen_series_have_colours_of_their_own() -> None:
    trials = [trial(2 * n + k, {"variant": f"v{n}", "a": k}) for n in range(16) for k in range(2)]
    shown = figure(exhibits_of(results(trials)), "step_time_s_over_a")
    colours = light_colours()
    assert len({colours[each.colour] for each in shown.series}) == 16


def test_a_file_names_every_one_of_forty_series_and_is_as_high_as_their_list() -> None:
    names = [f"v{number}" for number in range(40)]
    trials = [trial(2 * n + k, {"variant": name, "a": k}) for n, name in enumerate(names) for k in range(2)]
    svg = figure(exhibits_of(results(trials)), "step_time_s_over_a").svg
    texts = texts_of(svg)
    assert {text.text for text in texts} >= set(names) and "entries" not in svg
    font = float(next(text for text in texts if text.text == names[0]).get("font-size", "0").removesuffix("px"))
    assert float(ElementTree.fromstring(svg).get("height", "0")) > len(names) * font
