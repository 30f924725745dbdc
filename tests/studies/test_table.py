"""The rows of a study, from made-up trials."""

from __future__ import annotations

import csv
import io
import math

import pytest

from alray.studies.records import Reached
from alray.studies.table import collapsed, rows_of, table_of, trials_table

from .conftest import trial

ONE, TWO = {"pipeline.stages": 1}, {"pipeline.stages": 2}


def test_the_seeds_of_a_point_share_a_row() -> None:
    three = [trial(number, ONE, seed=number, validation=value) for number, value in enumerate((0.5, 0.8, 0.65))]
    rows = rows_of([trial(3, TWO, validation=0.9), *reversed(three)], target=False)
    assert [(row.point, row.trials, row.seeds) for row in rows] == [(ONE, 3, 3), (TWO, 1, 1)]
    first = rows[0].figures["validation"]
    assert first is not None
    assert (first.mean, first.deviation) == (pytest.approx(0.65), pytest.approx(0.15))
    second = rows[1].figures["validation"]
    assert second is not None and second.deviation is None


def test_what_a_seed_learns_in_each_session_is_one_value() -> None:
    of_seeds = [(seed, session) for session in range(3) for seed in range(3)]
    (row,) = rows_of(
        [
            trial(n, ONE, seed=seed, session=session, validation=0.5 + seed / 10, step_time_s=0.01 + n / 1000)
            for n, (seed, session) in enumerate(of_seeds)
        ],
        target=False,
    )
    learned, took = row.figures["validation"], row.figures["step_time_s"]
    assert learned is not None and took is not None
    assert (row.seeds, learned.runs, learned.mean, learned.deviation) == (3, 3, pytest.approx(0.6), pytest.approx(0.1))
    assert took.runs == 9


def test_trials_without_an_end_are_counted_and_give_no_figures() -> None:
    records = [
        trial(0, ONE, validation=0.8),
        trial(1, ONE, status="diverged", reason="the losses grew", validation=0.1),
        trial(2, ONE, status="failed", reason="no", summary=None),
        trial(3, TWO, status="failed", reason="no", summary=None),
    ]
    first, second = rows_of(records, target=False)
    assert first.statuses == {"finished": 1, "diverged": 1, "failed": 1}
    assert first.figures["validation"] is not None and first.figures["validation"].mean == 0.8
    assert (second.seeds, second.settings, set(second.figures.values())) == (0, {}, {None})


def test_a_row_shows_the_settings_that_reach_the_target_first() -> None:
    values = [{"optimizer.lr": rate} for rate in (0.1, 0.2, 0.3, 0.4)]
    steps = [(50, None), (30, 40), (60, 20), (None, None)]  # of two seeds
    records = [
        trial(2 * index + seed, ONE, index=index, values=values[index], seed=seed, steps=steps[index][seed])
        for index in range(4)
        for seed in range(2)
    ]
    (row,) = rows_of(records, target=True)
    assert (row.settings, row.seeds, row.reached) == ({"optimizer.lr": 0.2}, 2, 2)
    assert row.figures["steps_to_target"] is not None and row.figures["steps_to_target"].mean == 35
    assert row.figures["samples_to_target"] is not None and row.figures["samples_to_target"].mean == 350


def test_a_target_that_no_trial_reaches_is_shown_as_such() -> None:
    (row,) = rows_of([trial(0, ONE), trial(1, ONE)], target=True)
    assert (row.reached, row.figures["steps_to_target"]) == (0, None)
    table = table_of([row], target=True)
    assert dict(zip(table.head, table.rows[0], strict=True))["reached"] == "0 of 2"


def test_without_a_target_the_best_validation_accuracy_chooses() -> None:
    records = [trial(number, ONE, index=number, values={"a": number}, validation=0.1 * number) for number in (3, 1, 2)]
    (row,) = rows_of(records, target=False)
    assert row.settings == {"a": 3}


@pytest.mark.parametrize("metric", ["accuracy", "mean_squared_error"])
def test_settings_whose_metric_is_not_a_number_are_not_the_best(metric: str) -> None:
    ran = {"metric": metric}
    records = [
        trial(n, ONE, index=n, values={"a": n}, validation=score, ran=ran) for n, score in enumerate((math.nan, 0.5))
    ]
    (row,) = rows_of(records, target=False)
    assert row.settings == {"a": 1}


def test_values_near_one_stay_apart() -> None:
    decays = (0.9, 0.999, 0.9995, 0.9999, 0.99995)
    records = [trial(n, {"optimizer.ema_decay": decay}, values={"a": decay}) for n, decay in enumerate(decays)]
    table = table_of(rows_of(records, target=False), target=False)
    texts = [f"{decay}" for decay in decays]
    assert [row[table.head.index("a")] for row in table.rows] == texts
    assert all(f"${text}$ & ${text}$" in table.latex for text in texts)


def test_bytes_between_replicas_and_parameters_have_columns_where_they_differ() -> None:
    sent = [trial(n, {"a": n}, ran={"replicas": 2, "all_reduce_bytes": 1_000 * (n + 1)}) for n in range(2)]
    table = table_of(rows_of(sent, target=False), target=False)
    assert [row[table.head.index("bytes between replicas")] for row in table.rows] == ["100", "200"]
    assert "parameters" not in table.head
    sizes = [trial(n, {"a": n}, ran={"parameters": n + 5}) for n in range(2)]
    head = table_of(rows_of(sizes, target=False), target=False).head
    assert "parameters" in head and "bytes between replicas" not in head


def test_memory_and_bytes_of_stages_have_columns_where_they_are_chosen() -> None:
    ran = {"peak_memory_bytes": [7, 9], "predicted_memory_bytes": [5, 4], "bytes_sent": {"0->1": 100, "1->2": 50}}
    rows = rows_of([trial(0, TWO, ran=ran), trial(1, ONE, ran={"peak_memory_bytes": [7, None]})], target=False)
    chosen = ("bytes_sent", "peak_memory_bytes", "predicted_memory_bytes")
    assert [[found and found.mean for found in map(row.figures.get, chosen)] for row in rows] == [
        [15.0, 9.0, 5.0],
        [0.0, None, None],
    ]
    table = table_of(rows, target=False, columns=chosen)
    assert "bytes between stages" in table.head and "step time" not in table.head
    assert "bytes between stages" not in table_of(rows, target=False).head


def test_seeds_that_learned_next_to_nothing_are_counted() -> None:
    (row,) = rows_of([trial(n, ONE, seed=n, validation=v) for n, v in enumerate((math.nan, 0.92, 0.1))], target=False)
    assert collapsed(row) == 1
    (row,) = rows_of([trial(n, ONE, seed=n, validation=v) for n, v in enumerate((0.92, 0.6))], target=False)
    assert collapsed(row) == 0


@pytest.mark.parametrize(
    ("chance", "metric", "values", "lost"),
    [
        (0.1, "accuracy", (0.1, 0.12, 0.09), 3),
        (0.1, "accuracy", (0.5, 0.4, 0.45), 0),
        (0.7, "accuracy", (0.7, 0.72, 0.95), 2),
        (0.01, "accuracy", (0.05, 0.06, 0.05), 0),
        (0.0, "r2", (0.01, -0.2, 0.6), 2),
        (3.0, "nats_per_token", (2.95, 2.0, 3.1), 2),
        (None, "r2", (0.01, -0.2, 0.6), 0),
    ],
)
def test_seeds_at_chance_learned_next_to_nothing(
    chance: float | None, metric: str, values: tuple[float, ...], lost: int
) -> None:
    """Also where no seed of the point is better."""
    ran = {"chance": chance, "metric": metric}
    trials = [trial(n, ONE, seed=n, validation=value, ran=ran) for n, value in enumerate(values)]
    (row,) = rows_of(trials, target=False)
    assert collapsed(row) == lost


def test_the_csv_holds_every_figure_as_a_number() -> None:
    rows = rows_of([trial(0, {"variant": "al, fast"}, steps=20, step_time_s=None)], target=True)
    (line,) = csv.DictReader(io.StringIO(table_of(rows, target=True).csv))
    assert (line["variant"], line["steps_to_target"], line["seconds_to_target"]) == ("al, fast", "20.0", "0.2")
    assert (line["step_time_s"], line["validation"], line["validation_deviation"]) == ("", "0.5", "")


def test_a_target_counts_the_seeds_that_diverged() -> None:
    diverged = trial(3, ONE, seed=3, status="diverged", reason="the losses grew")
    failed = trial(4, ONE, seed=4, status="failed", reason="no", summary=None)
    reached = [trial(seed, ONE, seed=seed, steps=20 + 10 * seed) for seed in range(3)]
    (row,) = rows_of([*reached, diverged, failed], target=True)
    assert (row.reached, row.seeds, row.tried) == (3, 3, 5)
    table = table_of([row], target=True)
    assert dict(zip(table.head, table.rows[0], strict=True))["reached"] == "3 of 5"
    assert dict(zip(table.head, table.rows[0], strict=True))["steps to target"] == "30 ± 10 (3 of 5)"


def test_settings_that_diverge_on_some_seeds_come_after_those_that_do_not() -> None:
    """However accurate their other seeds are: the survivors of a bad setting say little about it."""
    ends = {0: [("finished", 0.99), ("diverged", 0.1), ("diverged", 0.1)], 1: [("finished", 0.9)] * 3}
    records = [
        trial(3 * index + seed, ONE, index=index, values={"a": index}, seed=seed, status=status, validation=accuracy)
        for index, each in ends.items()
        for seed, (status, accuracy) in enumerate(each)
    ]
    (row,) = rows_of(records, target=False)
    assert (row.settings, row.seeds, row.tried) == ({"a": 1}, 3, 3)
    (row,) = rows_of(records[:3], target=False)
    found = row.figures["validation"]
    assert found is not None and (found.mean, found.runs, found.missing) == (0.99, 1, 2)


def test_of_equal_settings_the_more_accurate_ones_are_shown_and_then_the_first() -> None:
    trials = [trial(number, ONE, index=number, values={"a": number}, steps=20) for number in range(3)]
    assert rows_of(trials, target=True)[0].settings == {"a": 0}
    better = trial(3, ONE, index=3, values={"a": 3}, steps=20, validation=0.6)
    assert rows_of([*trials, better], target=True)[0].settings == {"a": 3}


def test_settings_that_a_point_does_not_search_are_left_out() -> None:
    table = table_of(
        rows_of([trial(0, ONE, values={"a": 0.5}), trial(1, TWO, values={"b": 2})], target=False), target=False
    )
    a, b = table.head.index("a"), table.head.index("b")
    assert [(row[a], row[b]) for row in table.rows] == [("0.5", "–"), ("–", "2")]


def test_a_target_reached_at_the_first_evaluation_has_no_time() -> None:
    at_once = trial(0, ONE, status="reached", reached=Reached(step=1, samples=10, training_s=None))
    (row,) = rows_of([at_once], target=True)
    assert row.reached == 1
    assert row.figures["steps_to_target"] is not None and row.figures["steps_to_target"].mean == 1
    assert row.figures["seconds_to_target"] is None


def test_every_trial_is_listed() -> None:
    bad = trial(1, ONE, status="diverged", reason="the losses grew", values={"optimizer.lr": 3.14159}, summary=None)
    table = trials_table([trial(0, {}, steps=20), bad])
    assert table.rows[0] == ("0", "the base", "", "0", "reached", "10", "20", "0.5000", "0.2500", "–")
    assert table.rows[1][1:5] == ("pipeline.stages=1", "learning rate 3.14", "0", "diverged")
    assert table.rows[1][-1] == "the losses grew"


def test_the_csv_of_trials_has_numbers_in_full_and_nothing_where_there_is_none() -> None:
    reached = trial(0, ONE, steps=1234, values={"optimizer.lr": 0.123456789}, validation=2 / 3)
    failed = trial(1, ONE, status="failed", reason="no", values={"optimizer.lr": 1e-05}, summary=None)
    first, second = csv.DictReader(io.StringIO(trials_table([reached, failed]).csv))
    assert (first["pipeline.stages"], first["optimizer.lr"], first["steps_to_target"]) == ("1", "0.123456789", "1234")
    assert float(first["validation"]) == 2 / 3
    assert (second["optimizer.lr"], second["steps_to_target"], second["validation"]) == ("1e-05", "", "")
