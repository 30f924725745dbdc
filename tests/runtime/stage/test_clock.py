"""Where a stage's time went, by a clock that the test turns."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from alray.runtime.stage import clock as module
from alray.runtime.stage import gpu_times
from alray.runtime.stage.clock import WARM_UP_STEPS, Clock
from alray.runtime.stage.gpu_times import GpuTimes


class Hands:
    """The time that the clock reads; `pass_by` turns it on."""

    def __init__(self) -> None:
        self.now = 100.0

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    made = Hands()
    # A separate wall clock: the run was started at wall time 50, 2 s before the stage's clock is made.
    fake = SimpleNamespace(perf_counter=lambda: made.now, time=lambda: made.now - 100.0 + 52.0)
    monkeypatch.setattr(module, "time", fake)
    return made


def closed(clock: Clock, step: int):
    return clock.close_window(
        stage=1, replica=0, step=step, epoch=0.5, samples=8, bytes_sent={"1->2": 7}, peak_memory_bytes=None
    )


def one_step(clock: Clock, hands: Hands, step: int, *, receive: float = 0.0, idle: float = 0.0) -> None:
    for kind, seconds in (("receive_wait", receive), ("F", 0.1), ("send_wait", 0.02), ("B", 0.2), ("U", 0.05)):
        with clock.measure(kind, f"1{kind}{step - 1}" if len(kind) == 1 else kind, step):
            hands.pass_by(seconds)
    hands.pass_by(idle)
    clock.step_done()


def test_a_windows_parts_add_up_to_the_time_it_covers(hands):
    clock = Clock(started_wall_s=50.0, start_step=0)
    one_step(clock, hands, 1, receive=0.03, idle=0.04)
    one_step(clock, hands, 2, receive=0.01)
    record = closed(clock, 2)
    assert record.steps == 2 and record.stage == 1 and record.bytes_sent == {"1->2": 7}
    assert record.forward_s == pytest.approx(0.2) and record.backward_s == pytest.approx(0.4)
    assert record.update_s == pytest.approx(0.1) and record.compute_s == pytest.approx(0.7)
    assert record.send_wait_s == pytest.approx(0.04) and record.receive_wait_s == pytest.approx(0.04)
    assert record.idle_s == pytest.approx(0.04)
    assert record.step_times_s == pytest.approx([0.44, 0.38])
    assert record.time_s == pytest.approx(2.0 + 0.82)


def test_a_barrier_counts_as_waiting_for_others(hands):
    clock = Clock(started_wall_s=50.0, start_step=0)
    with clock.measure("barrier", "receive_wait", 1):
        assert clock.activity == "barrier"
        hands.pass_by(0.5)
    clock.step_done()
    record = closed(clock, 1)
    assert record.receive_wait_s == pytest.approx(0.5) and record.idle_s == pytest.approx(0.0)


def test_a_pause_is_left_out_of_steps_and_of_the_window(hands):
    clock = Clock(started_wall_s=50.0, start_step=0)
    one_step(clock, hands, 1)
    with clock.pause("evaluation"):
        assert clock.activity == "evaluation"
        with clock.measure("E", "1E0", 1):
            hands.pass_by(3.0)
        with clock.measure("receive_wait", "receive_wait", 1):
            hands.pass_by(2.0)
        hands.pass_by(1.0)
    one_step(clock, hands, 2)
    record = closed(clock, 2)
    assert record.evaluation_s == pytest.approx(6.0)
    assert record.step_times_s == pytest.approx([0.37, 0.37])
    assert record.receive_wait_s == 0.0 and record.idle_s == pytest.approx(0.0)
    assert record.compute_s == pytest.approx(0.7)


def test_a_new_window_begins_with_nothing(hands):
    clock = Clock(started_wall_s=50.0, start_step=0)
    one_step(clock, hands, 1)
    closed(clock, 1)
    assert clock.steps_in_window == 0 and not clock.window_due(1)
    one_step(clock, hands, 2, idle=0.1)
    record = closed(clock, 2)
    assert record.steps == 1 and record.compute_s == pytest.approx(0.35) and record.idle_s == pytest.approx(0.1)


def test_a_record_is_due_every_second_and_at_the_end_of_warm_up(hands):
    clock = Clock(started_wall_s=50.0, start_step=20)
    one_step(clock, hands, 21)
    assert not clock.window_due(21)
    assert clock.window_due(20 + WARM_UP_STEPS)
    hands.pass_by(1.0)
    assert clock.window_due(22)
    assert closed(clock, 20 + WARM_UP_STEPS).warm_up
    assert closed(clock, 21 + WARM_UP_STEPS).warm_up, "it covers no mini-batch"
    one_step(clock, hands, 21 + WARM_UP_STEPS)
    assert not closed(clock, 21 + WARM_UP_STEPS).warm_up


def test_a_long_run_has_few_records(hands):
    clock = Clock(started_wall_s=50.0, start_step=0)
    num_records = 0
    for step in range(1, 5_001):
        hands.pass_by(2.0)
        clock.step_done()
        if clock.window_due(step):
            num_records += bool(closed(clock, step))
    assert num_records < 500  # a record for each second would be 5,000


def test_profiled_mini_batches_and_those_behind_them_are_counted_in_no_figure(hands):
    clock = Clock(started_wall_s=50.0, start_step=0, profiled=(range(20, 22),))
    behind = 21 + WARM_UP_STEPS
    due, left_out = [], []
    for step in range(1, behind + 5):
        one_step(clock, hands, step)
        if clock.window_due(step):
            due.append(step)
            left_out.append(closed(clock, step).warm_up)
        hands.now = round(hands.now, 6)
    assert [step for step in due if step in (10, 19, behind)] == [10, 19, behind]
    assert dict(zip(due, left_out, strict=True))[19] is False and dict(zip(due, left_out, strict=True))[behind] is True


def test_what_raises_is_not_counted_and_stays_to_be_seen(hands):
    clock = Clock(started_wall_s=50.0, start_step=0)
    with pytest.raises(ZeroDivisionError), clock.measure("F", "1F0", 1):
        hands.pass_by(0.5)
        raise ZeroDivisionError
    assert (clock.activity, clock.progress) == ("compute", 0)
    clock.step_done()
    assert closed(clock, 1).forward_s == 0.0


def test_the_first_mini_batches_are_traced_and_a_few_at_every_doubling(hands):
    clock = Clock(started_wall_s=50.0, start_step=100)
    traced = [step - 100 for step in range(101, 401) if clock.traced(step)]
    assert traced == [*range(1, 40), *range(64, 72), *range(128, 136), *range(256, 264)]


def test_spans_hold_the_actions_of_traced_mini_batches(hands):
    clock = Clock(started_wall_s=50.0, start_step=0)
    one_step(clock, hands, 1, receive=1e-6)
    one_step(clock, hands, 50)
    spans = closed(clock, 50).spans
    # A wait too short to be seen is left out.
    assert [span.action for span in spans] == ["1F0", "send_wait", "1B0", "1U0"]
    assert [span.end_s - span.start_s for span in spans] == pytest.approx([0.1, 0.02, 0.2, 0.05])
    assert spans[0].start_s == pytest.approx(2.0 + 1e-6)


def test_progress_grows_with_every_action(hands):
    clock = Clock(started_wall_s=50.0, start_step=0)
    assert clock.progress == 0 and clock.activity == "starting"
    one_step(clock, hands, 1)
    assert clock.progress == 5 and clock.activity == "between", "nothing computes once an action has ended"
    assert clock.now_s() == pytest.approx(2.37)


class Gpu:
    """A GPU that works off what it is given, in order, while the host goes on."""

    def __init__(self, hands: Hands) -> None:
        self.hands, self.done_at = hands, 0.0

    def compute(self, seconds: float) -> None:
        """The host gives it work, which takes the host a millisecond."""
        self.hands.pass_by(0.001)
        self.done_at = max(self.done_at, self.hands.now) + seconds

    def event(self) -> Passed:
        return Passed(self.hands, max(self.done_at, self.hands.now))


class Passed:
    """An event in the GPU's stream, which it passes at some time."""

    def __init__(self, hands: Hands, at: float) -> None:
        self.hands, self.at = hands, at

    def query(self) -> bool:
        return self.hands.now >= self.at

    def synchronize(self) -> None:
        self.hands.now = max(self.hands.now, self.at)

    def elapsed_time(self, end_event: Passed) -> float:
        return 1000.0 * (end_event.at - self.at)


def test_a_gpu_is_timed_by_its_own_events(hands, monkeypatch):
    """F is not the time in which it was given to the GPU; waiting for the GPU to compute is not waiting for others."""
    monkeypatch.setattr(gpu_times, "time", module.time)
    gpu = Gpu(hands)
    clock = Clock(started_wall_s=50.0, start_step=0, gpu=GpuTimes(gpu.event))
    for step in (1, 2):
        with clock.measure("receive_wait", "receive_wait", step):
            hands.pass_by(0.03)
        with clock.measure("F", f"1F{step - 1}", step):
            gpu.compute(0.1)
        with clock.measure("send_wait", "send_wait", step):  # until F is done, and 0.02 s longer
            gpu.event().synchronize()
            hands.pass_by(0.02)
        with clock.measure("B", f"1B{step - 1}", step):
            gpu.compute(0.2)
            gpu.event().synchronize()  # the losses are read
        with clock.measure("U", f"1U{step - 1}", step):
            gpu.compute(0.05)
        clock.step_done()
    record = closed(clock, 2)
    assert record.forward_s == pytest.approx(0.2, abs=0.005)
    assert record.backward_s == pytest.approx(0.4, abs=0.005)
    assert record.update_s == pytest.approx(0.1, abs=0.005) and record.send_wait_s == pytest.approx(0.04)
    assert record.receive_wait_s == pytest.approx(0.03)  # the second one is over before U is
    assert [span.action for span in record.spans if span.action[0] == "1"] == ["1F0", "1B0", "1U0", "1F1", "1B1", "1U1"]
    begins = [span.start_s for span in record.spans]
    assert begins == sorted(begins)


def test_the_first_mini_batch_and_the_first_pause_of_a_kind_may_take_longer(hands):
    clock = Clock(started_wall_s=50.0, start_step=7)
    assert clock.first_time
    clock.step_done()
    seen = []
    for activity in ("evaluation", "checkpoint", "evaluation"):
        with clock.pause(activity):
            seen.append(clock.first_time)
        assert not clock.first_time
    assert seen == [True, True, False]
