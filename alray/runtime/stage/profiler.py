"""`--profile`: torch.profiler traces of chosen mini-batches, with ranges named by action and by component.

Each component names the calls to record. While a chosen mini-batch lasts, these methods are wrapped on the object
itself; then the wrappers are removed, so that other mini-batches run the code as it is and cost nothing extra.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function, supported_activities

from alray.core.run_folder.records import replace_file
from alray.core.storage.location import Location
from alray.models.component import Component, ProfiledPart
from alray.runtime.stage.clock import TRAINING_ACTIONS, Clock

_QUIET = "5"  # Kineto otherwise reports its progress, and that a machine without a GPU has none


class Profiler:
    """Traces the chosen mini-batches of one process into one Chrome trace, which Perfetto opens.

    torch records a whole process, so stages that take turns in one process share a profiler. It records from the first
    stage that begins a range of mini-batches to the last one that ends it.
    """

    def __init__(self, ranges: Sequence[range], trace: Location, *, stages: int, device: torch.device) -> None:
        """
        Args:
            ranges: of mini-batches, from 1, not touching each other.
            trace: the file to add to.
            stages: number of stages in this process, those of all replicas.
        """
        self._ranges = ranges
        self._trace = trace
        self._stages = stages
        of_device = getattr(ProfilerActivity, device.type.upper(), ProfilerActivity.PrivateUse1)
        self._activities = {ProfilerActivity.CPU, of_device} & supported_activities()
        self._session: profile | None = None
        self._to_end: dict[range, int] = {}  # ranges that were opened, and how many stages have still to end them

    @contextmanager
    def mini_batch(self, step: int, components: Sequence[Component], clock: Clock) -> Iterator[None]:
        """Around one mini-batch of one stage: records it if it was chosen. Starting and writing count as pauses."""
        within = next((steps for steps in self._ranges if step in steps), None)
        if within is None:
            yield
            return
        self._to_end.setdefault(within, self._stages)
        if self._session is None:
            with clock.pause("profile"):
                self._begin()
        with named_ranges(components, clock):
            yield
        if step == within[-1]:
            self._to_end[within] -= 1
            if not any(self._to_end.values()):
                with clock.pause("profile"):
                    self.close()

    def _begin(self) -> None:
        self._session = profile(activities=self._activities, record_shapes=True)
        self._session.start()

    def close(self) -> None:
        """Stop recording, if it is on, and add the result to the trace."""
        session, self._session = self._session, None
        if session is None:
            return
        session.stop()
        with TemporaryDirectory() as scratch:  # torch writes no file whose name is not UTF-8
            exported = Path(scratch) / "trace.json"
            session.export_chrome_trace(str(exported))
            recorded = json.loads(exported.read_text(encoding="utf-8"))
        del recorded["traceName"]  # the file that was exported
        before = json.loads(self._trace.read_text(encoding="utf-8")) if self._trace.exists() else None
        together = recorded if before is None else _added(before, recorded)
        self._trace.parent.mkdir(exist_ok=True)
        replace_file(self._trace, json.dumps(together, separators=(",", ":")))


def prepare_recording() -> None:
    """Load torch's recorder: this takes a second, once a process, and must run in the thread that imported torch."""
    os.environ.setdefault("KINETO_LOG_LEVEL", _QUIET)
    with profile(activities=[ProfilerActivity.CPU]):
        pass


@contextmanager
def profiling(
    ranges: Sequence[range], trace: Location, *, stages: int, device: torch.device
) -> Iterator[Profiler | None]:
    """A profiler for a run of this process, None if no mini-batch was chosen. On leaving, the trace is complete."""
    if not ranges:
        yield None
        return
    profiler = Profiler(ranges, trace, stages=stages, device=device)
    try:
        yield profiler
    finally:
        profiler.close()


def _added(before: dict[str, Any], recorded: dict[str, Any]) -> dict[str, Any]:
    """Both traces as one. Times are microseconds from a base that each trace has for itself."""
    shift = (recorded["baseTimeNanoseconds"] - before["baseTimeNanoseconds"]) / 1e3
    events = [{**event, "ts": event["ts"] + shift} if "ts" in event else event for event in recorded["traceEvents"]]
    return {**before, "traceEvents": [*before["traceEvents"], *events]}


@contextmanager
def named_ranges(components: Sequence[Component], clock: Clock) -> Iterator[None]:
    """Inside, every computation the clock measures is a range named as it is printed (`1F19`). It contains a range for
    each call of a component (`forward component 2`)."""
    backward = _BackwardRanges()
    with ExitStack() as stack:
        stack.enter_context(_replaced(clock, "measure", lambda measure: _measured(measure, backward)))
        for component in components:
            for part in component.profiled_parts():
                stack.enter_context(_replaced(part.owner, part.method, _wrapper(part, backward)))
        yield


Function = Callable[..., Any]


@contextmanager
def _replaced(owner: object, name: str, wrap: Callable[[Function], Function]) -> Iterator[None]:
    """Wrap a method of this one object while inside."""
    setattr(owner, name, wrap(getattr(owner, name)))
    try:
        yield
    finally:
        delattr(owner, name)


def _wrapper(part: ProfiledPart, backward: _BackwardRanges) -> Callable[[Function], Function]:
    if part.output is None:
        return _ranged(f"{part.action} {part.of}")
    return _followed_back(part, part.output, backward)


def _ranged(name: str) -> Callable[[Function], Function]:
    def wrap(method: Function) -> Function:
        def call(*arguments: Any, **named: Any) -> Any:
            with record_function(name):
                return method(*arguments, **named)

        return call

    return wrap


def _followed_back(
    part: ProfiledPart, output_of: Callable[[Any], torch.Tensor], backward: _BackwardRanges
) -> Callable[[Function], Function]:
    """A forward range; its backward range begins when the gradient of its output is known."""

    def wrap(method: Function) -> Function:
        def call(*arguments: Any, **named: Any) -> Any:
            with record_function(f"{part.action} {part.of}"):
                result = method(*arguments, **named)
            output = output_of(result)
            if output.requires_grad:
                output.register_hook(lambda gradient: backward.begin(f"backward {part.of}"))
            return result

        return call

    return wrap


def _measured(measure: Function, backward: _BackwardRanges) -> Function:
    @contextmanager
    def within(kind: str, text: str, step: int) -> Iterator[None]:
        with measure(kind, text, step):
            if (
                kind not in TRAINING_ACTIONS
            ):  # another stage may run during a wait: its ranges do not belong in this one
                yield
                return
            with record_function(text):
                try:
                    yield
                finally:
                    backward.end()

    return within


class _BackwardRanges:
    """The ranges of a backward pass that goes through all components in one call: each ends where the next begins."""

    def __init__(self) -> None:
        self._open: record_function | None = None

    def begin(self, name: str) -> None:
        self.end()
        self._open = record_function(name)
        self._open.__enter__()

    def end(self) -> None:
        if self._open is not None:
            self._open.__exit__(None, None, None)
            self._open = None
