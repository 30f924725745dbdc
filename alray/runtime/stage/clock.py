"""The clock of a stage: where its time goes, added up over windows of mini-batches, with traces of some of them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from torch.profiler import record_function

from alray.core.run_folder.records import WARM_UP_STEPS, Span, StageRecord
from alray.runtime.stage.gpu_times import GpuTimes, MeasuredAction

_WINDOW_S, _WINDOW_SHARE = 1.0, 0.01
"""A record covers at least so many seconds, and this share of the time since the start: long runs have few records."""

_TRACED_FIRST = 32  # after a start, counted from its first mini-batch
_TRACED_AGAIN = 8  # mini-batches traced at every doubling after that

TRAINING_ACTIONS = frozenset("FLBU")
"""Kinds of measurements in which a stage computes and never lets another stage of the same process run."""

_ON_DEVICE = TRAINING_ACTIONS | frozenset("ED")
"""Kinds of measurements that a GPU does, where there is one."""

_Computed = Literal["data_s", "forward_s", "backward_s", "update_s"]
_COMPUTED: dict[str, _Computed] = {
    "data": "data_s",
    "F": "forward_s",
    "L": "backward_s",
    "B": "backward_s",
    "U": "update_s",
}
"""Of a record, what a stage computes, by kind of measurement. All other kinds are waiting."""
_WAITED = ("send_wait_s", "receive_wait_s")


@dataclass
class _Window:
    """What the mini-batches of one record have added up so far, in seconds."""

    steps: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys((*_COMPUTED.values(), *_WAITED), 0.0))
    after_cut: dict[_Computed, float] = field(default_factory=dict)  # of `seconds`, in mini-batches after cuts
    evaluation: float = 0.0
    step_times: list[float] = field(default_factory=list)
    spans: list[tuple[str, float, float]] = field(default_factory=list)  # text, began, ended

    @property
    def by_samples_s(self) -> float:
        return self.seconds["data_s"] + self.seconds["forward_s"] + self.seconds["backward_s"]


class _Measurement:
    """One action under way. A class costs a third of what a generator would, and a mini-batch has many of them."""

    __slots__ = ("_began", "_clock", "_kind", "_step", "_text")

    def __init__(self, clock: Clock, kind: str, text: str, step: int) -> None:
        self._clock = clock
        self._kind = kind
        self._text = text
        self._step = step

    def __enter__(self) -> None:
        self._began = self._clock._begin(self._kind)

    def __exit__(self, raised: object, *_: object) -> None:
        if raised is None:  # otherwise the run ends, and `activity` still says what the stage was doing
            self._clock._end(self._kind, self._text, self._step, self._began)


class _NamedMeasurement(_Measurement):
    """The same, as a range of that name for torch's profiler."""

    __slots__ = ("_range",)

    def __enter__(self) -> None:
        super().__enter__()
        self._range = record_function(self._text)
        self._range.__enter__()

    def __exit__(self, *raised: Any) -> None:
        self._range.__exit__(*raised)
        super().__exit__(*raised)


@dataclass
class Clock:
    """Adds up what a stage measures. Times are from `time.perf_counter`, which all processes of a host share.

    Attributes:
        started_wall_s: when the run started, as `time.time()`; recorded times count from there.
        start_step: mini-batches completed before.
        alone: whether there is no other stage and no other replica, so that a cut leaves no pipeline empty.
        profiled: mini-batches that a profiler slows down, so that no figure counts them.
        gpu: the times of the GPU that computes, None for a CPU.
    """

    started_wall_s: float
    start_step: int
    alone: bool = True
    profiled: Sequence[range] = ()
    gpu: GpuTimes | None = None

    def __post_init__(self) -> None:
        self._zero = time.perf_counter() - (time.time() - self.started_wall_s)
        self._began = time.perf_counter()
        self._completed = self.start_step
        self._after_cut = {
            self.start_step + 1
        }  # mini-batches that find the pipeline empty, those of this window and later
        self._waits = dict.fromkeys(_WAITED, 0.0)  # since the last mini-batch
        self._window = _Window()
        self._window_began = self._last_step = time.perf_counter()
        self._pause_in_step = 0.0
        self._in_pause = False
        self._by_samples_before_s = 0.0  # until this window
        self._paused: set[str] = set()  # for what
        self.progress = 0
        self.activity = "starting"
        self.names_ranges = False  # for a profiler
        self.first_time = True  # until the first mini-batch is done, and in the first pause of a kind

    def now_s(self) -> float:
        """Seconds since the run was started."""
        return time.perf_counter() - self._zero

    def measure(self, kind: str, text: str, step: int) -> AbstractContextManager[None]:
        """Measure one action of mini-batch `step`.

        Args:
            kind: an action's (F, L, B, U, E, D), or `data`, `send_wait`, `receive_wait`, `barrier`, `all_reduce`.
            text: its name in traces.
        """
        # Another stage of this process may run during a wait: its ranges do not belong in this one.
        named = self.names_ranges and kind in TRAINING_ACTIONS
        return (_NamedMeasurement if named else _Measurement)(self, kind, text, step)

    def _begin(self, kind: str) -> float:
        self.activity = kind if len(kind) > 1 else "compute"
        began = time.perf_counter()
        if self.gpu is not None:
            self.gpu.begin(computes=kind in _ON_DEVICE)
        return began

    def _end(self, kind: str, text: str, step: int, began: float) -> None:
        ended = time.perf_counter()
        self.progress += 1
        self.activity = "between"
        if self.gpu is None:
            self._count(kind, text, step, self._in_pause, began, ended)
        else:
            self.gpu.end(MeasuredAction(kind, text, step, self._in_pause), began, ended)

    def _count(self, kind: str, text: str, step: int, in_pause: bool, began: float, ended: float) -> None:
        self._add(kind, ended - began, step, in_pause)
        if self.traced(step) and (ended - began > 2e-5 or kind in TRAINING_ACTIONS):
            self._window.spans.append((text, began, ended))

    def _count_passed(self, *, wait: bool) -> None:
        """Count what the GPU has done.

        Args:
            wait: until it has done everything.
        """
        if self.gpu is not None:
            for what, began, ended in self.gpu.passed(wait=wait):
                self._count(what.kind, what.text, what.step, what.in_pause, began, ended)

    def _add(self, kind: str, seconds: float, step: int, in_pause: bool) -> None:
        if in_pause:
            return
        computed = _COMPUTED.get(kind)
        if computed is None:
            self._waits["send_wait_s" if kind == "send_wait" else "receive_wait_s"] += seconds
            return
        self._window.seconds[computed] += seconds
        if step in self._after_cut:
            self._window.after_cut[computed] = self._window.after_cut.get(computed, 0.0) + seconds

    def _settle_waits(self, step: int) -> None:
        """Count what was waited for mini-batch `step`: as waiting, or around a cut as a part of the cut. A stage waits
        there for others that still train or fill the pipeline again."""
        for kind, seconds in self._waits.items():
            if step in self._after_cut and not self.alone:
                self._window.evaluation += seconds
            else:
                self._window.seconds[kind] += seconds
        self._waits = dict.fromkeys(_WAITED, 0.0)

    def traced(self, step: int) -> bool:
        """Whether the spans of this mini-batch are kept: the first mini-batches, then a few at every doubling."""
        number = step - self.start_step
        if number <= _TRACED_FIRST:
            return True
        return number - (1 << (number.bit_length() - 1)) < _TRACED_AGAIN

    @contextmanager
    def pause(self, activity: str) -> Iterator[None]:
        """Leave out time that belongs to no mini-batch: evaluations and checkpoints."""
        began = time.perf_counter()
        self._in_pause = True
        self.activity = activity
        before, self.first_time = self.first_time, activity not in self._paused
        yield
        self._in_pause = False
        self._paused.add(activity)
        self.first_time = before
        seconds = time.perf_counter() - began
        self._pause_in_step += seconds
        self._window.evaluation += seconds
        if not self.alone:
            self._after_cut.add(self._completed + 1)

    def wait_for_gpu(self) -> None:
        """Wait until the GPU has done all that it was given, and count it."""
        self._count_passed(wait=True)

    @property
    def by_samples_s(self) -> float:
        """Seconds spent so far on work that grows with the samples of a mini-batch: data, F, L and B."""
        self._count_passed(wait=False)
        return self._by_samples_before_s + self._window.by_samples_s

    @property
    def steps_in_window(self) -> int:
        """Mini-batches since the last record."""
        return self._window.steps

    def step_done(self) -> None:
        """One mini-batch is complete on this stage."""
        ended = time.perf_counter()
        self._window.steps += 1
        self._window.step_times.append(ended - self._last_step - self._pause_in_step)
        self._last_step = ended
        self._pause_in_step = 0.0
        self._completed += 1
        self._settle_waits(self._completed)
        self.first_time = False

    def window_due(self, step: int) -> bool:
        """Whether to make a record now.

        About once a second, less often in a long run, and exactly where mini-batches begin or cease to count. Another
        record comes before each checkpoint.
        """
        if not self._window.steps:
            return False
        if self._left_out(step) != self._left_out(step + 1):
            return True
        now = time.perf_counter()
        return now - self._window_began > max(_WINDOW_S, _WINDOW_SHARE * (now - self._began))

    def _left_out(self, step: int) -> bool:
        """Whether no figure counts this mini-batch: those after a start, profiled ones, and those right after these."""
        return step <= self.start_step + WARM_UP_STEPS or any(
            steps.start <= step < steps.stop + WARM_UP_STEPS for steps in self.profiled
        )

    def close_window(self, *, step: int, **facts: Any) -> StageRecord:
        """The record of the mini-batches since the last one.

        Args:
            facts: the fields of the record that no clock measures.
        """
        self._count_passed(wait=True)
        self._settle_waits(self._completed + 1)
        ended = time.perf_counter()
        self._by_samples_before_s = self.by_samples_s
        window, self._window = self._window, _Window()
        covered = max(0.0, ended - self._window_began - window.evaluation)
        self._window_began = ended
        seconds: dict[str, Any] = window.seconds
        compute = sum(seconds[name] for name in get_args(_Computed))
        waited = sum(seconds[name] for name in _WAITED)
        after_cut = {number for number in self._after_cut if number <= self._completed}
        self._after_cut -= after_cut
        return StageRecord(
            time_s=ended - self._zero,
            step=step,
            steps=window.steps,
            warm_up=self._left_out(step) or not window.steps,
            compute_s=compute,
            idle_s=max(0.0, covered - compute - waited),
            evaluation_s=window.evaluation,
            step_times_s=window.step_times,
            after_cut=sorted(after_cut),
            after_cut_s=window.after_cut,
            spans=[
                Span.model_construct(action=text, start_s=began - self._zero, end_s=ended - self._zero)
                for text, began, ended in window.spans
            ],
            **seconds,
            **facts,
        )
