"""Seconds of training and the bubble of pipelines that evaluate, by the clocks of their stages; bounds that hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from alray.core.run_folder.records import Record, StageRecord
from alray.core.run_folder.utilisation import Utilisation
from alray.planning.prediction.plan import Plan
from alray.report.attempts import Attempt, StepTime, Timed
from alray.report.folder import read_run
from alray.report.run_page import RunReport
from alray.report.single_step import single_step
from alray.report.summary import doubts_of, figures_of
from alray.report.training_time import TrainingTime
from alray.runtime.stage import clock as module
from alray.runtime.stage.clock import Clock

EVALUATION_S = 0.7
STEPS = 60


class Hands:
    """The time that a clock reads."""

    now = 0.0


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    made = Hands()
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: made.now, time=lambda: made.now))
    return made


def streamed(stages_s: Sequence[float], every: int) -> list[list[tuple[float, float, bool]]]:
    """When each stage begins and ends each mini-batch, and whether a cut follows it, without any overhead.

    A stage cuts as soon as it is done with its mini-batch and the stage below has cut. It goes on when the evaluation
    has ended on all of them.
    """
    found: list[list[tuple[float, float, bool]]] = [[] for _ in stages_s]
    free = [0.0] * len(stages_s)
    for step in range(1, STEPS + 1):
        at = 0.0
        for stage, seconds in enumerate(stages_s):
            begins = max(free[stage], at)
            at = free[stage] = begins + seconds
            found[stage].append((begins, at, step % every == 0))
        if step % every == 0:
            free = [max(free) + EVALUATION_S] * len(stages_s)
    return found


def recorded(given: ModuleType, hands: Hands, stages_s: Sequence[float], every: int) -> list[Record]:
    """The records of such a run, as the clocks of its stages make them."""
    times = streamed(stages_s, every)
    ends = [max(stage[step][1] for stage in times) for step in range(STEPS)]
    records: list[Record] = [given.event("started", 0, 0.0)]
    cut_s = [0.0] * STEPS  # when the stage below has cut
    for number, own in enumerate(times):
        hands.now = 0.0
        clock = Clock(started_wall_s=0.0, start_step=0, alone=len(stages_s) == 1)
        for step, (begins, end, cuts) in enumerate(own, start=1):
            with clock.measure("receive_wait", "receive_wait", step):
                hands.now = begins
            with clock.measure("F", f"{number}F{step - 1}", step):
                hands.now = end
            clock.step_done()
            if step == 10 or clock.window_due(step):
                records.append(_window(given, clock, number, step, last=number == len(times) - 1))
            if cuts:
                with clock.measure("receive_wait", "receive_wait", step + 1):
                    hands.now = cut_s[step - 1] = max(end, cut_s[step - 1])
                with clock.pause("evaluation"):
                    hands.now = ends[step - 1] + EVALUATION_S
        if clock.steps_in_window:
            records.append(_window(given, clock, number, STEPS, last=number == len(times) - 1))
    records += [
        given.evaluated(step, ends[step - 1] + EVALUATION_S, 0.5, 0.5) for step in range(every, STEPS + 1, every)
    ]
    return sorted(records, key=lambda record: record.time_s)


def _window(given: ModuleType, clock: Clock, stage: int, step: int, *, last: bool) -> StageRecord:
    place = {"epoch": step / given.PER_EPOCH, "samples": step * given.BATCH, "bytes_sent": {}}
    record = clock.close_window(stage=stage, replica=0, step=step, peak_memory_bytes=None, **place)
    return record if last else record.model_copy(update={"step_times_s": []})


PIPELINES = [(0.06, 0.18), (0.18, 0.06), (0.06, 0.06, 0.06, 0.06), (0.06, 0.18, 0.06, 0.06), (0.1, 0.02, 0.02, 0.02)]


@pytest.mark.few
@pytest.mark.parametrize("every", [2, 5, 20])
@pytest.mark.parametrize("stages_s", PIPELINES, ids=str)
def test_a_pipeline_takes_its_slowest_stage_a_mini_batch_however_often_it_evaluates(
    given: ModuleType, hands: Hands, stages_s: tuple[float, ...], every: int
) -> None:
    records = recorded(given, hands, stages_s, every)
    plan = given.example_plan((1,) * len(stages_s))
    figures = figures_of(records, plan)
    assert TrainingTime(records).until(STEPS) == pytest.approx(STEPS * max(stages_s))
    assert TrainingTime(records).until(every) == pytest.approx(every * max(stages_s))
    assert figures.step_time_s == pytest.approx(max(stages_s))
    assert figures.bubble == pytest.approx(1 - sum(stages_s) / len(stages_s) / max(stages_s))
    assert figures.samples_per_s == pytest.approx(given.BATCH / max(stages_s))
    assert figures.doubts == []
    *rows, _ = single_step(records, plan).rows
    assert [row.measured.step_s for row in rows] == pytest.approx([max(stages_s)] * len(stages_s))


def test_a_stage_alone_counts_every_mini_batch_but_the_first(given: ModuleType, hands: Hands) -> None:
    records = recorded(given, hands, (0.1,), 1)
    counted = Attempt(None, tuple(records)).whole.step_times
    assert [step.number for step in counted] == list(range(2, STEPS + 1))
    assert TrainingTime(records).until(STEPS) == pytest.approx(STEPS * 0.1)


def test_a_mini_batch_between_two_evaluations_takes_its_way_through_the_empty_pipeline(
    given: ModuleType, hands: Hands
) -> None:
    records = recorded(given, hands, (0.06, 0.18), 1)
    figures = figures_of(records, given.example_plan())
    assert figures.step_time_s == pytest.approx(0.24) and figures.bubble == pytest.approx(0.5)
    assert TrainingTime(records).until(STEPS) == pytest.approx(STEPS * 0.24)


def test_a_resume_on_other_stages_counts_each_mini_batch_by_its_own_attempt(given: ModuleType, hands: Hands) -> None:
    first = [record for record in recorded(given, hands, (0.06, 0.18), 5) if record.step <= 20]
    resumed = given.event("resumed", 20, 90.0)
    second = []
    for record in recorded(given, hands, (0.24,), 5)[1:]:
        after_cut = [20 + number for number in getattr(record, "after_cut", None) or ()]
        moved = {"step": record.step + 20, "after_cut": after_cut} if isinstance(record, StageRecord) else {}
        second.append(record.model_copy(update={"time_s": 90.0 + record.time_s, "step": record.step + 20, **moved}))
    training = TrainingTime([*first, resumed, *second])
    assert training.until(20) == pytest.approx(20 * 0.18)
    assert training.until(50) == pytest.approx(20 * 0.18 + 30 * 0.24)
    assert training.until(10_000) == training.until(20 + STEPS)


def test_replicas_that_wait_for_an_evaluation_do_not_train_meanwhile(given: ModuleType, hands: Hands) -> None:
    records = [given.event("started", 0, 0.0)]
    for replica, waits_s in enumerate((0.0, EVALUATION_S)):
        clock, hands.now = Clock(started_wall_s=0.0, start_step=0, alone=False), 0.0
        for step in range(1, 31):
            with clock.measure("F", f"0F{step - 1}", step):
                hands.now += 0.1
            with clock.measure("all_reduce", "all_reduce", step):  # of which replica 0 begins after its evaluation
                hands.now += waits_s if step % 5 == 1 else 0.0
            clock.step_done()
            if step in (10, 30):
                records.append(_window(given, clock, 0, step, last=True).model_copy(update={"replica": replica}))
            if step % 5 == 0:
                with clock.pause("evaluation"):
                    hands.now += EVALUATION_S - waits_s
    plan = replace(given.example_plan((1,)), replicas=2)
    figures = figures_of(records, plan)
    assert figures.step_time_s == pytest.approx(0.1) and figures.bubble == pytest.approx(0.0)
    assert TrainingTime(records).until(30) == pytest.approx(3.0)


def cold_after_cuts(given: ModuleType, hands: Hands) -> tuple[Plan, list[Record]]:
    """Two replicas of one stage, whose first mini-batch after an evaluation computes for twice as long."""
    records: list[Record] = [given.event("started", 0, 0.0)]
    for replica in (0, 1):
        clock, hands.now = Clock(started_wall_s=0.0, start_step=0, alone=False), 0.0
        for step in range(1, 31):
            with clock.measure("B", f"0B{step - 1}", step):
                hands.now += 0.2 if step % 10 == 1 else 0.1
            clock.step_done()
            if clock.window_due(step) or step == 30:
                records.append(_window(given, clock, 0, step, last=True).model_copy(update={"replica": replica}))
            if step % 10 == 0:
                with clock.pause("evaluation"):
                    hands.now += EVALUATION_S
    return replace(given.example_plan((1,)), replicas=2), records


def test_what_a_stage_computes_is_compared_with_the_times_of_the_same_mini_batches(
    given: ModuleType, hands: Hands
) -> None:
    plan, records = cold_after_cuts(given, hands)
    figures = figures_of(records, plan)
    assert figures.step_time_s == pytest.approx(0.1)
    assert figures.bubble == pytest.approx(0.0) and figures.doubts == []
    assert single_step(records, plan).step.measured.backward_s == pytest.approx(0.1)
    now = Utilisation()
    staged = [record for record in records if isinstance(record, StageRecord) and not record.warm_up]
    assert [now.take(record) for record in staged] == pytest.approx([1.0] * len(staged))
    slow = [
        record.model_copy(update={"backward_s": 0.5 * record.backward_s, "compute_s": 0.5 * record.compute_s})
        if isinstance(record, StageRecord)
        else record
        for record in records
    ]
    assert figures_of(slow, plan).bubble > 0.5, "less than half, for what they took after cuts is as before"


def test_utilisation_while_a_run_continues_is_that_of_all_stages(given: ModuleType, hands: Hands) -> None:
    utilisation_now = Utilisation()
    records = [record for record in recorded(given, hands, (0.06, 0.18), 2) if isinstance(record, StageRecord)]
    shares = {record.stage: share for record in records if (share := utilisation_now.take(record)) is not None}
    assert shares == pytest.approx({0: 1 / 3, 1: 1.0})
    slower = records[-1].model_copy(update={"step_times_s": [], "compute_s": 4 * records[-1].compute_s})
    assert utilisation_now.take(slower) == 1.0, "no stage computes for more than all of the time"


def test_what_no_time_can_be_is_said(given: ModuleType, hands: Hands) -> None:
    wrong = [
        record.model_copy(update={"compute_s": 3 * record.compute_s})
        if isinstance(record, StageRecord) and record.stage == 1
        else record
        for record in recorded(given, hands, (0.06, 0.18), 5)
    ]
    plan = given.example_plan()
    (doubt,) = figures_of(wrong, plan).doubts
    assert "stage 1" in doubt


def test_a_few_mini_batches_raise_no_doubt_where_their_times_vary(given: ModuleType, hands: Hands) -> None:
    """A stage computed those that count at another time, when others took its processor, say."""

    def doubts(*times_s: float) -> list[str]:
        whole = next(record for record in recorded(given, hands, (0.18,), STEPS) if isinstance(record, StageRecord))
        own = whole.model_copy(update={"steps": len(times_s), "compute_s": 0.665 * len(times_s)})
        return doubts_of(Timed((own,), tuple(StepTime(11, seconds, 0, False) for seconds in times_s)), 1)

    assert doubts(0.629, 0.649) == []
    assert doubts(0.60, 0.64, 0.67) == []
    assert len(doubts(*(0.60, 0.64, 0.67) * 100)) == 1


def test_other_programs_are_a_doubt_about_what_they_disturbed(given: ModuleType, hands: Hands) -> None:
    """The prediction while the components were measured, the measured times while the run trained."""
    records, plan = recorded(given, hands, (0.06, 0.18), 5), given.example_plan()

    def doubts(measuring: float, training: float | None) -> list[str]:
        end = given.event("finished", STEPS, 100.0).model_copy(update={"taken_processors": training})
        costs = replace(plan.costs, taken_processors=measuring)
        return figures_of([*records, end], replace(plan, costs=costs)).doubts

    assert doubts(0.2, None) == doubts(0.0, 0.2) == []
    (predicted,), (measured,) = doubts(1.7, None), doubts(0.0, 1.7)
    assert "took 1.7 processors" in predicted and "predicted times" in predicted
    assert "took 1.7 processors" in measured and "cannot be compared" in measured


def test_a_page_shows_what_cannot_be_true(given: ModuleType, tmp_path: Path) -> None:
    plan = given.example_plan()
    sound = given.example_records(plan)
    wrong = [
        record.model_copy(update={"compute_s": 0.09, "after_cut": []}) if isinstance(record, StageRecord) else record
        for record in sound
    ]
    pages = []
    for name, records in (("sound", sound), ("wrong", wrong)):
        given.write_run(tmp_path / name, plan, records)
        pages.append(RunReport(read_run(tmp_path / name)).page())
    assert ["less than the" in page and "do not rely on the times" in page for page in pages] == [False, True]
