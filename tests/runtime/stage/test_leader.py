"""When stage 0 cuts: evaluations, checkpoints, and the end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from alray.config.sections.duration import parse_duration
from alray.config.sections.lr_schedule import RATES
from alray.config.sections.run import Checkpoint, RunSection, StopAt
from alray.core.metric import ACCURACY
from alray.core.run_folder.records import Best, EvaluationRecord, Plateau, Standing
from alray.runtime.channel.message import CutFlag
from alray.runtime.stage import leader as module
from alray.runtime.stage.leader import Control, Leader, Samples, Timer

EVALUATE, CHECKPOINT, STOP = CutFlag.EVALUATE, CutFlag.CHECKPOINT, CutFlag.STOP


def run(
    evaluate: str | None = None,
    checkpoint: str | None = None,
    stop_at: StopAt | None = None,
    test: str = "always",
    train: str = "end",
) -> RunSection:
    return RunSection(
        epochs=1,
        test=test,
        train=train,
        evaluate_every=parse_duration(evaluate) if evaluate else None,
        checkpoint=Checkpoint(every=parse_duration(checkpoint)) if checkpoint else None,
        stop_at=stop_at,
    )


def lead(
    run: RunSection, *, total_steps: int, control: Control | None = None, standing: Standing | None = None, **rates: Any
) -> Leader:
    """A leader of a run whose epochs have seven mini-batches of ten samples."""
    spec = SimpleNamespace(
        run=run,
        lr_schedule=RATES.section(**rates) if rates else RATES.default_section(),
        task=SimpleNamespace(measures=ACCURACY),
    )
    assignment: Any = SimpleNamespace(
        spec=spec,
        data=SimpleNamespace(steps_per_epoch=7),
        total_steps=total_steps,
        start=SimpleNamespace(standing=standing or Standing()),
        stop_after=None,
        position=lambda step: {"samples": 10 * step},
    )
    return Leader(assignment, control or Control())


def timer_of(every: str | None, *, steps_per_epoch: int = 7, samples: Samples = lambda step: 10 * step) -> Timer:
    return Timer(parse_duration(every) if every else None, steps_per_epoch=steps_per_epoch, samples=samples)


def due(every: str, *, steps_per_epoch: int = 7, samples: Samples = lambda step: 10 * step, until: int) -> list[int]:
    timer = timer_of(every, steps_per_epoch=steps_per_epoch, samples=samples)
    return [step for step in range(1, until + 1) if timer.due(step)]


def evaluation(step: int = 1, **accuracies: float | None) -> EvaluationRecord:
    return EvaluationRecord(time_s=0, step=step, epoch=1, samples=1, per_depth=[], duration_s=0, **accuracies)


def second_cuts(leader: Leader, validations: list[float | None], flags: int = EVALUATE) -> dict[int, int]:
    """The second cuts after evaluations with these validation accuracies, four mini-batches apart."""
    cuts = {}
    for number, validation in enumerate(validations, start=1):
        leader.heard(evaluation(4 * number, validation=validation))
        if cut := leader.cut_after_evaluation(4 * number, flags):
            cuts[4 * number] = cut
    return cuts


@pytest.mark.parametrize(
    ("every", "expected"),
    [
        ("3 steps", [3, 6, 9, 12]),
        ("1 step", list(range(1, 15))),
        ("1 epoch", [7, 14]),
        ("0.5 epochs", [4, 7, 11, 14]),
        ("1.5 epochs", [11]),
        ("0.01 epochs", list(range(1, 15))),
        ("20 epochs", []),
        ("40 samples", [4, 8, 12]),
        ("35 samples", [4, 7, 11, 14]),
        ("3 samples", list(range(1, 15))),
    ],
)
def test_what_recurs_by_steps_epochs_or_samples(every, expected):
    assert due(every, until=14) == expected


def test_samples_are_counted_as_they_are_seen():
    """The last mini-batch of an epoch of three has five samples instead of ten."""
    seen = (0, 10, 20, 25, 35, 45, 50, 60, 70, 75)
    assert due("25 samples", samples=seen.__getitem__, until=9) == [3, 6, 9]


def test_fractions_of_an_epoch_are_exact():
    """0.07 * 100 is 7.000000000000001 in floating point."""
    assert due("0.07 epochs", steps_per_epoch=100, until=30) == [7, 14, 21, 28]


def test_being_due_is_a_function_of_the_step_so_a_resumed_run_cuts_alike():
    whole = due("0.3 epochs", until=40)
    timer = timer_of("0.3 epochs")
    assert [step for step in range(20, 41) if timer.due(step)] == [step for step in whole if step >= 20]


def test_what_recurs_by_seconds(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    timer = timer_of("30 s")
    found = []
    for step, now_s in enumerate((10.0, 29.9, 30.0, 31.0, 59.0, 60.0, 100.0, 129.0, 131.0)):
        now[0] = now_s
        if timer.due(step):
            found.append(now_s)
    assert found == [30.0, 60.0, 100.0, 131.0]


def test_never_is_never():
    timer = timer_of(None)
    assert not any(timer.due(step) for step in range(1, 100))


def test_cuts_of_a_run():
    leader = lead(run("4 steps", "6 steps"), total_steps=13)
    cuts = {step: flags for step in range(1, 14) if (flags := leader.cut_after(step))}
    assert cuts == {
        4: EVALUATE,
        6: CHECKPOINT,
        8: EVALUATE,
        12: EVALUATE | CHECKPOINT,
        13: EVALUATE | CHECKPOINT | STOP,
    }


def test_the_last_mini_batch_is_evaluated_and_kept_even_where_nothing_recurs():
    leader = lead(run(), total_steps=3)
    assert [leader.cut_after(step) for step in (1, 2, 3, 4)] == [0, 0, *[EVALUATE | CHECKPOINT | STOP] * 2]


def test_a_stop_that_was_asked_for_ends_with_a_checkpoint_after_the_mini_batch_at_hand():
    control = Control()
    leader = lead(run("4 steps"), total_steps=13, control=control)
    assert leader.cut_after(1) == 0
    control.stop_requested = True
    assert leader.cut_after(2) == CHECKPOINT | STOP
    assert leader.cut_after(4) == EVALUATE | CHECKPOINT | STOP


def test_the_training_set_is_measured_at_the_end_or_where_a_bound_needs_it():
    leader = lead(run("1 epoch"), total_steps=13)
    assert leader.splits(7) == ("validation", "test")
    assert leader.splits(13) == ("train", "validation", "test")
    bound = run("1 epoch", stop_at=StopAt(metric="train_accuracy", above=0.5))
    leader = lead(bound, total_steps=13)
    assert leader.splits(7) == ("train", "validation", "test")


def test_the_training_set_is_never_measured_if_it_is_asked_to_be_unless_a_bound_needs_it():
    leader = lead(run("1 epoch", train="never"), total_steps=13)
    assert leader.splits(13) == ("validation", "test")
    leader = lead(run("1 epoch", train="never", stop_at=StopAt(metric="train_accuracy", above=0.5)), total_steps=13)
    assert leader.splits(7) == ("train", "validation", "test")


def test_a_run_that_its_bound_ends_measures_what_belongs_to_the_end():
    leader = lead(run("4 steps", test="end", stop_at=StopAt(metric="validation_accuracy", above=0.5)), total_steps=13)
    assert leader.splits(4) == ("validation",)
    leader.heard(evaluation(4, validation=0.6))
    assert leader.splits(4) == ("train", "validation", "test")


def test_the_test_set_is_measured_at_the_end_alone_if_it_is_asked_to_be():
    leader = lead(run("1 epoch", test="end"), total_steps=13)
    assert leader.splits(7) == ("validation",)
    assert leader.splits(13) == ("train", "validation", "test")
    leader = lead(run("1 epoch", test="end", stop_at=StopAt(metric="test_accuracy", above=0.5)), total_steps=13)
    assert leader.splits(7) == ("validation", "test")
    leader.heard(evaluation(4, validation=0.6))
    leader.heard(evaluation(4, train=0.7, validation=0.6, test=0.5))
    assert leader.standing.best == Best(step=4, validation=0.6, test=0.5)
    leader.heard(evaluation(8, validation=0.5))
    leader.heard(evaluation(8, validation=0.5, test=0.4))
    assert leader.standing.best == Best(step=4, validation=0.6, test=0.5)


@pytest.mark.parametrize(
    ("stop_at", "accuracies", "reached"),
    [
        (None, {"validation": 1.0}, False),
        (StopAt(metric="validation_accuracy", above=0.9), {"validation": 0.9}, True),
        (StopAt(metric="validation_accuracy", above=0.9), {"validation": 0.89, "test": 1.0}, False),
        (StopAt(metric="test_accuracy", below=0.3), {"validation": 0.1, "test": 0.3}, True),
        (StopAt(metric="test_accuracy", below=0.3), {"test": 0.31}, False),
        (StopAt(metric="train_accuracy", above=0.5), {"validation": 1.0, "train": None}, False),
    ],
)
def test_the_bound_that_ends_a_run(stop_at, accuracies, reached):
    leader = lead(run("1 epoch", stop_at=stop_at), total_steps=13)
    leader.heard(evaluation(**accuracies))
    assert leader.over(1) is reached
    assert leader.cut_after_evaluation(1, EVALUATE) == (EVALUATE | CHECKPOINT | STOP if reached else 0)


def test_the_best_so_far_is_kept_by_a_second_cut():
    """Strictly better: the earliest of equals stays the best."""
    leader = lead(run("4 steps", "6 steps"), total_steps=99)
    assert second_cuts(leader, [0.5, 0.5, 0.4, 0.6, None, 0.6]) == {4: CHECKPOINT, 16: CHECKPOINT}
    assert leader.standing.best == Best(step=16, validation=0.6, test=None)
    leader = lead(run("4 steps", "6 steps"), total_steps=99)
    assert second_cuts(leader, [0.5, 0.6], EVALUATE | CHECKPOINT) == {}, "the first cut wrote a checkpoint"
    leader = lead(run("4 steps"), total_steps=99)
    assert second_cuts(leader, [0.5, 0.6]) == {}, "`run.checkpoint: null`"
    assert not leader.minds_evaluations


def test_a_second_cut_changes_the_rate_that_follows_the_metric() -> None:
    """At evaluations that are due alone, and where a checkpoint left it."""
    rates: dict[str, Any] = {"name": "plateau", "patience": 1}
    leader = lead(run("2 steps"), total_steps=9, **rates)
    flags = []
    for step, value in ((2, 0.5), (4, 0.5), (6, 0.4), (8, 0.3)):
        assert leader.cut_after(step) & EVALUATE
        leader.heard(evaluation(step, validation=value))
        flags.append(leader.cut_after_evaluation(step, EVALUATE | CHECKPOINT))
    assert flags == [0, 0, CutFlag.RATE, 0] and leader.standing.plateau.changes == 1
    leader.cut_after(9)
    leader.heard(evaluation(9, validation=0.3))
    assert leader.standing.plateau == Plateau(best=0.5, bad=1, changes=1)
    later = lead(run("2 steps"), total_steps=20, standing=leader.standing, **rates)
    later.cut_after(10)
    later.heard(evaluation(10, validation=0.3))
    assert later.cut_after_evaluation(10, EVALUATE) == CutFlag.RATE and later.standing.plateau.changes == 2


def test_patience_counts_evaluations_since_the_best():
    stop_at = StopAt(patience=2)
    leader = lead(run("4 steps", stop_at=stop_at), total_steps=99)
    end = EVALUATE | CHECKPOINT | STOP
    assert second_cuts(leader, [0.5, 0.4, 0.6, 0.6, 0.5]) == {20: end}
    assert leader.over(20) and not leader.over(21)


def test_patience_goes_on_where_a_checkpoint_left_it():
    stop_at = StopAt(patience=2)
    unbroken = lead(run("4 steps", stop_at=stop_at), total_steps=99)
    second_cuts(unbroken, [0.5, 0.6, 0.6])
    stored = Standing.model_validate_json(unbroken.standing.model_dump_json())
    resumed = lead(run("4 steps", stop_at=stop_at), total_steps=99, standing=stored)
    resumed.heard(evaluation(12, validation=0.6))
    assert not resumed.over(12), "an evaluation that is made again after the same mini-batch does not count twice"
    resumed.heard(evaluation(16, validation=0.3))
    assert resumed.over(16)
