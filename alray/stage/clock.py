"""A stage's own clock: where its time went, per window of mini-batches, and traces of some of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from alray.records import Span, StageRecord

WARM_UP_STEPS = 10
"""Mini-batches after a start that no figure counts: buffers are laid out, kernels chosen, the pipeline filled."""

_WINDOW_S = 1.0
_TRACED_FIRST = 32  # after a start, counted from its first mini-batch
_TRACED_AGAIN = 8  # mini-batches traced at every doubling after that

_COMPUTE = frozenset("FBU")


@dataclass
class _Window:
    steps: int = 0
    data: float = 0.0
    forward: float = 0.0
    backward: float = 0.0
    update: float = 0.0
    send_wait: float = 0.0
    receive_wait: float = 0.0
    evaluation: float = 0.0
    step_times: list[float] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)


class Clock:
    """Adds up what the loop measures. Times are `time.perf_counter`, which on one host all processes share."""

    def __init__(self, *, started_wall_s: float, start_step: int) -> None:
        """started_wall_s: when the run was started, as `time.time()`: zero of every recorded time."""
        self._zero = time.perf_counter() - (time.time() - started_wall_s)
        self._start_step = start_step
        self._window = _Window()
        self._window_began = self._last_step = time.perf_counter()
        self._pause_in_step = 0.0
        self._in_pause = False
        self._measured_s = 0.0
        self._between: str | None = None
        self.progress = 0
        self.activity = "starting"
        self.activity_since = self._window_began

    def now_s(self) -> float:
        """Seconds since the run was started."""
        return time.perf_counter() - self._zero

    @contextmanager
    def measure(self, kind: str, text: str, step: int) -> Iterator[None]:
        """Account for one action; kind is F, B, U, E, D, `data`, `send_wait`, `receive_wait` or `barrier`."""
        began = time.perf_counter()
        self.activity = kind if len(kind) > 1 else "compute"
        self.activity_since = began
        yield
        ended = time.perf_counter()
        self.progress += 1
        self._measured_s += ended - began
        self._add(kind, ended - began)
        self.activity, self.activity_since = self._between or "between", ended
        if self.traced(step) and (ended - began > 2e-5 or kind in _COMPUTE):
            self._window.spans.append(Span(action=text, start_s=began - self._zero, end_s=ended - self._zero))

    @contextmanager
    def between(self, kind: str) -> Iterator[None]:
        """Account as `kind` for all time inside that no `measure` in it takes: what a schedule that another library
        executes waits for between its computations."""
        began, measured_s = time.perf_counter(), self._measured_s
        self.activity, self.activity_since, self._between = kind, began, kind
        yield
        self._between = None
        self._add(kind, time.perf_counter() - began - (self._measured_s - measured_s))

    def _add(self, kind: str, seconds: float) -> None:
        window = self._window
        if self._in_pause:
            return
        if kind == "F":
            window.forward += seconds
        elif kind == "B":
            window.backward += seconds
        elif kind == "U":
            window.update += seconds
        elif kind == "data":
            window.data += seconds
        elif kind == "send_wait":
            window.send_wait += seconds
        else:
            window.receive_wait += seconds

    def traced(self, step: int) -> bool:
        """Whether the spans of this mini-batch are kept: the first ones, then a few at every doubling."""
        number = step - self._start_step
        if number <= _TRACED_FIRST:
            return True
        return number - (1 << (number.bit_length() - 1)) < _TRACED_AGAIN

    @contextmanager
    def pause(self, activity: str) -> Iterator[None]:
        """Time that belongs to no mini-batch: evaluation, checkpoints."""
        began = time.perf_counter()
        self._in_pause = True
        self.activity, self.activity_since = activity, began
        yield
        self._in_pause = False
        seconds = time.perf_counter() - began
        self._pause_in_step += seconds
        self._window.evaluation += seconds

    @property
    def steps_in_window(self) -> int:
        """Mini-batches since the last record."""
        return self._window.steps

    def step_done(self) -> None:
        """One mini-batch is complete on this stage."""
        ended = time.perf_counter()
        self._window.steps += 1
        self._window.step_times.append(ended - self._last_step - self._pause_in_step)
        self._last_step, self._pause_in_step = ended, 0.0

    def window_due(self, step: int) -> bool:
        """Whether a record should be made now: about one a second, and exactly at the end of warm-up."""
        if not self._window.steps:
            return False
        return step == self._start_step + WARM_UP_STEPS or (time.perf_counter() - self._window_began > _WINDOW_S)

    def close_window(
        self,
        *,
        stage: int,
        replica: int,
        step: int,
        epoch: float,
        samples: int,
        bytes_sent: dict[str, int],
        peak_memory_bytes: int | None,
    ) -> StageRecord:
        """The record of the mini-batches since the last one."""
        ended = time.perf_counter()
        window, self._window = self._window, _Window()
        covered = max(0.0, ended - self._window_began - window.evaluation)
        self._window_began = ended
        compute = window.data + window.forward + window.backward + window.update
        return StageRecord(
            time_s=ended - self._zero,
            step=step,
            epoch=epoch,
            samples=samples,
            stage=stage,
            replica=replica,
            steps=window.steps,
            warm_up=step <= self._start_step + WARM_UP_STEPS,
            data_s=window.data,
            forward_s=window.forward,
            backward_s=window.backward,
            update_s=window.update,
            compute_s=compute,
            send_wait_s=window.send_wait,
            receive_wait_s=window.receive_wait,
            idle_s=max(0.0, covered - compute - window.send_wait - window.receive_wait),
            evaluation_s=window.evaluation,
            step_times_s=window.step_times,
            bytes_sent=bytes_sent,
            peak_memory_bytes=peak_memory_bytes,
            spans=window.spans,
        )
