"""What the driver learns of stages that do not answer, die or finish."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from alray.core.errors import StageError
from alray.runtime.graph.graph import Answers, Outbox
from alray.runtime.stage.telemetry import Losses, StageStatus

ASSIGNMENTS: Any = [SimpleNamespace(stage=stage, replica=0, start=SimpleNamespace(step=7)) for stage in (0, 1)]


def finished(stage: int, **values: Any) -> StageStatus:
    return StageStatus(stage, 0, 9, 30, "finished", finished=True, **values)


def test_a_stage_that_cannot_be_reached_has_not_answered() -> None:
    """Where Ray can never say that it died, as after the end of the head, the driver's deadline has to end the run."""
    answers = Answers(ASSIGNMENTS)
    answers.take(1, StageStatus(1, 0, 8, 12, "compute"))
    polls = [[(status.answered, status.step) for status in answers.statuses()] for _ in range(2)]
    assert polls[0][1] == (True, 8) and polls[1] == [(False, 7), (False, 8)]


def test_each_report_is_handed_out_once() -> None:
    answers, report = Answers(ASSIGNMENTS), Losses(8, {0: {"cross_entropy": 1.0}}, 0.1, 0.0)
    answers.take(0, finished(0, reports=(report,)))
    assert [[status.reports for status in answers.statuses()] for _ in range(2)] == [[(report,), ()], [(), ()]]


def test_reports_of_an_answer_that_was_lost_come_again() -> None:
    answers, outbox = Answers(ASSIGNMENTS), Outbox()
    reports = [Losses(step, {0: {"cross_entropy": 1.0}}, 0.1, 0.0) for step in (8, 9, 10)]
    outbox.put(reports[0])
    answers.take(0, StageStatus(0, 0, 8, 12, "compute", reports=outbox.after(answers.received[0])))
    outbox.put(reports[1])
    outbox.after(answers.received[0])  # this answer does not arrive
    outbox.put(reports[2])
    answers.statuses()
    answers.take(0, finished(0, reports=outbox.after(answers.received[0])))
    assert answers.statuses()[0].reports == tuple(reports[1:])
    assert outbox.after(answers.received[0]) == ()


def test_a_stage_that_died_has_finished_where_it_was() -> None:
    answers, error = Answers(ASSIGNMENTS), StageError("stage 1 died")
    answers.take(0, finished(0))
    answers.take(1, StageStatus(1, 0, 8, 12, "compute"))
    assert not answers.all_succeeded and not answers.has_finished(1)
    answers.take_death(1, error, "killed")
    dead = answers.statuses()[1]
    assert (dead.finished, dead.dead, dead.step, dead.error, dead.detail) == (True, True, 8, error, "killed")
    assert not answers.all_succeeded


def test_stages_succeed_together() -> None:
    answers = Answers(ASSIGNMENTS)
    answers.take(0, finished(0))
    assert not answers.all_succeeded
    answers.take(1, finished(1))
    assert answers.all_succeeded
    assert not Answers().all_succeeded
