"""The way to a target and divergence, on made-up records."""

from __future__ import annotations

import pytest

from alray.core.run_folder.records import EventRecord
from alray.studies.trial import divergence, first_reached, times

from .conftest import evaluation, staged, started, step

STEPS = [step(number, 5.0 + 0.5 * number) for number in range(1, 9)]
"""Five seconds of start-up, then a mini-batch every half a second."""


def test_the_first_evaluation_that_passes_counts() -> None:
    kept = [*STEPS[:4], evaluation(4, 8.0, 0.7), evaluation(6, 10.0, 0.9), evaluation(8, 12.0, 0.95)]
    reached = first_reached(kept, 0.9)
    assert reached is not None
    assert (reached.step, reached.samples) == (6, 60)


def test_an_accuracy_equal_to_the_target_reaches_it() -> None:
    reached = first_reached([*STEPS, evaluation(4, 8.0, 0.9), evaluation(6, 10.0, 0.9)], 0.9)
    assert reached is not None and reached.step == 4


def test_a_target_that_is_passed_and_lost_again_was_reached() -> None:
    reached = first_reached([evaluation(4, 8.0, 0.95), evaluation(6, 10.0, 0.2), *STEPS], 0.9)
    assert reached is not None and reached.step == 4


def test_what_is_never_reached_is_none() -> None:
    assert first_reached([*STEPS, evaluation(4, 8.0, 0.89), evaluation(8, 12.0, None)], 0.9) is None
    assert first_reached(STEPS, 0.0) is None


def test_two_evaluations_of_one_step_are_one() -> None:
    """A run that stops at its target evaluates once more, with the training set."""
    kept = [*STEPS, evaluation(6, 9.0, 0.9), evaluation(6, 12.0, 0.9)]
    assert first_reached(kept, 0.9) == first_reached(kept[:-1], 0.9)


def test_neither_start_up_nor_evaluations_are_training() -> None:
    """Five seconds until the first mini-batch. The fourth comes after an evaluation, and the pipeline fills first."""
    times_s = [5.0, 0.5, 0.5, 0.9, 0.5, 0.5]
    own = staged(6, 1, 6, 0.1, step_times_s=times_s, after_cut=[1])
    reached = first_reached([started(), evaluation(3, 7.5, 0.5), own, evaluation(6, 10.0, 0.9)], 0.9)
    assert reached is not None
    assert reached.training_s == pytest.approx((4 * 0.5 + 0.9) * 6 / 5), "a stage alone has no pipeline to fill"
    own = staged(6, 1, 6, 0.1, step_times_s=times_s, after_cut=[1, 4])
    of_two = [started(), staged(6, 0, 6, 0.1), evaluation(3, 7.5, 0.5), own, evaluation(6, 10.0, 0.9)]
    reached = first_reached(of_two, 0.9)
    assert reached is not None
    assert reached.training_s == pytest.approx(6 * 0.5)


def test_a_trial_took_the_time_of_its_training_and_of_the_parts_of_a_mini_batch() -> None:
    """Stage 0 computes forward in 0.2 s, stage 1 in 0.1 s; the warm-up is left out."""
    stages = [staged(2, 0, 2, 9.0, warm_up=True), staged(6, 0, 4, 0.8, after_cut=[5]), staged(8, 0, 2, 0.4)]
    last = staged(8, 1, 6, 0.6, step_times_s=[0.5, 0.7, 9.0, 0.5, 0.7, 0.6], after_cut=[5])
    took = times([started(), *STEPS, *stages, last, evaluation(4, 7.0, 0.7), evaluation(8, 11.0, 0.9)], epochs=0.8)
    # The fifth came after an evaluation. It counts as the mean of the others, and so do the first two.
    assert (took.training_s, took.epoch_s) == pytest.approx((0.6 * 8, 0.6 * 10))
    assert (took.forward_s, took.backward_s, took.update_s) == pytest.approx((0.3, 0.6, 0.15))
    unknown = times([step(1, 1.0)], epochs=0.1)
    assert set(unknown.model_dump().values()) == {None}


def test_the_first_mini_batch_has_no_time_of_its_own() -> None:
    reached = first_reached([step(1, 5.5), evaluation(1, 6.5, 0.9)], 0.9)
    assert reached is not None
    assert (reached.step, reached.training_s) == (1, None)


def test_the_time_that_a_failure_took_is_no_training() -> None:
    """Three mini-batches of half a second, then a failure; 20 seconds later the fourth is done. They take longer."""
    again = staged(6, 0, 3, 0.1, step_times_s=[20.0, 0.7, 0.9], after_cut=[4])
    resumed = EventRecord(
        time_s=10.0, step=3, epoch=0.3, samples=30, event="resumed", message="again", date="1970-01-01T00:00:00+00:00"
    )
    before = staged(3, 0, 3, 0.1, step_times_s=[5.0, 0.5, 0.5], after_cut=[1])
    reached = first_reached([started(), before, resumed, again, evaluation(6, 29.0, 0.9)], 0.9)
    assert reached is not None
    assert reached.training_s == pytest.approx(3 * 0.5 + 3 * 0.8)


@pytest.mark.parametrize(
    ("losses", "diverged"),
    [
        ([2.0] * 20, False),
        ([2.0, 300.0, *[1.0] * 18], False),  # it came back
        ([2.0, *[15.0] * 19], False),
        ([2.0, *[25.0] * 19], True),
        ([2.0, *[1e28] * 19], True),
        ([2.0, float("inf")], True),
        ([-1.0, *[-5.0] * 19], False),
        ([-1.0, *[-0.5] * 19], False),
        ([-1.0, *[25.0] * 19], True),
        ([0.0, 0.0, *[0.5] * 18], False),
        ([0.0, 0.5, *[25.0] * 18], True),
        ([0.0] * 20, False),
        ([], False),
    ],
)
def test_a_run_whose_losses_grew_has_diverged(losses: list[float], diverged: bool) -> None:
    records = [step(number, number, loss) for number, loss in enumerate(losses, start=1)]
    assert (divergence(records) is not None) == diverged


@pytest.mark.parametrize(
    ("own", "late", "diverged"),
    [
        ((0.1, 0.05), (1.5, 1.5), False),
        ((0.1, 0.05), (1.5, 30.0), True),
        ((0.1, 1e20), (1e20, 1e20), True),  # it had diverged before the other loss began
    ],
)
def test_a_loss_that_begins_later_is_measured_from_its_own_beginning(
    own: tuple[float, float], late: tuple[float, float], diverged: bool
) -> None:
    first, *rest = [step(number, number) for number in range(1, 101)]
    records = [first.model_copy(update={"losses": {0: {"own": own[0]}}})]
    for record in rest:
        losses = {"own": own[1]} if record.step < 50 else {"own": own[1], "hinted": late[record.step > 50]}
        records.append(record.model_copy(update={"losses": {0: losses}}))
    assert (divergence(records) is not None) == diverged


def test_the_end_is_a_share_of_the_mini_batches_and_not_of_their_records() -> None:
    """The losses of a long run are means over more and more mini-batches."""
    late = [step(number, number, 30.0).model_copy(update={"mini_batches": 100}) for number in range(300, 1001, 100)]
    assert divergence([*(step(number, number, 2.0) for number in range(1, 201)), *late]) is not None
