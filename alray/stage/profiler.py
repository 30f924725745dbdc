"""`--profile`: torch.profiler traces of chosen mini-batches, with ranges named by action and by component.

A range stands around a component's own method for as long as a chosen mini-batch lasts, put there on the one object
and taken away again: the other mini-batches run the code as it is, and pay nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from alray.nn.component import BackpropagationComponent, Component, LocalComponent
from alray.stage.clock import COMPUTE, Clock

_QUIET = "5"  # Kineto otherwise tells of its own progress, and that a machine without a GPU has none


class Profiler:
    """Traces the chosen mini-batches of one process into one Chrome trace, which Perfetto opens.

    torch records a process as a whole, so stages that take turns in one process share a profiler: it records from the
    first of them that begins a range of mini-batches to the last that ends it.
    """

    def __init__(self, ranges: Sequence[range], trace: Path, *, stages: int, device: torch.device) -> None:
        """ranges: apart from each other, counted from 1; trace: the file, to which what is recorded is added; stages:
        how many of them share this process."""
        self._ranges, self._trace, self._stages = ranges, trace, stages
        self._activities = [ProfilerActivity.CPU]
        if device.type == "cuda":
            self._activities.append(ProfilerActivity.CUDA)
        self._session: profile | None = None
        self._to_end: dict[range, int] = {}  # ranges that were begun, and how many stages have still to end them

    @contextmanager
    def mini_batch(self, step: int, components: Sequence[Component], clock: Clock) -> Iterator[None]:
        """One mini-batch of one stage, recorded if it was chosen. What recording itself takes is a pause."""
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
        """Stop recording, if this is under way, and add what was recorded to the trace."""
        session, self._session = self._session, None
        if session is None:
            return
        session.stop()
        self._trace.parent.mkdir(parents=True, exist_ok=True)
        exported = self._trace.with_name(self._trace.name + ".exported")
        session.export_chrome_trace(str(exported))
        recorded = json.loads(exported.read_text(encoding="utf-8"))
        del recorded["traceName"]  # the file that was exported
        before = json.loads(self._trace.read_text(encoding="utf-8")) if self._trace.exists() else None
        together = recorded if before is None else _added(before, recorded)
        exported.write_text(json.dumps(together, separators=(",", ":")), encoding="utf-8")
        exported.replace(self._trace)


def prepare_recording() -> None:
    """Load what records: it takes a second, once a process, and wants the thread that imported torch."""
    os.environ.setdefault("KINETO_LOG_LEVEL", _QUIET)
    with profile(activities=[ProfilerActivity.CPU]):
        pass


@contextmanager
def profiling(ranges: Sequence[range], trace: Path, *, stages: int, device: torch.device) -> Iterator[Profiler | None]:
    """A profiler for a run of this process, None where no mini-batch was chosen; the trace is whole behind it."""
    if not ranges:
        yield None
        return
    profiler = Profiler(ranges, trace, stages=stages, device=device)
    try:
        yield profiler
    finally:
        profiler.close()


def _added(before: dict[str, Any], recorded: dict[str, Any]) -> dict[str, Any]:
    """One trace of both: times are microseconds from a base of each trace's own."""
    shift = (recorded["baseTimeNanoseconds"] - before["baseTimeNanoseconds"]) / 1e3
    events = [{**event, "ts": event["ts"] + shift} if "ts" in event else event for event in recorded["traceEvents"]]
    return {**before, "traceEvents": [*before["traceEvents"], *events]}


@contextmanager
def named_ranges(components: Sequence[Component], clock: Clock) -> Iterator[None]:
    """Have every computation the clock measures be a range named as it is printed (`1F19`), and within it each
    component's part (`forward component 2`)."""
    backward = _BackwardRanges()
    with ExitStack() as stack:
        stack.enter_context(_replaced(clock, "measure", lambda measure: _measured(measure, backward)))
        for component in components:
            for owner, method, wrap in _parts(component, backward):
                stack.enter_context(_replaced(owner, method, wrap))
        yield


Method = Callable[..., Any]


@contextmanager
def _replaced(owner: object, name: str, wrap: Callable[[Method], Method]) -> Iterator[None]:
    """Have a method of this one object be wrapped for a while."""
    setattr(owner, name, wrap(getattr(owner, name)))
    try:
        yield
    finally:
        delattr(owner, name)


_LOCAL_PARTS = {
    "forward": "encoder_step",
    "losses": "label_step",
    "backward": "backward_step",
    "update": "update_step",
}


def _parts(component: Component, backward: _BackwardRanges) -> Iterator[tuple[object, str, Callable[[Method], Method]]]:
    """What a component does in a mini-batch: on which object, by which method, and how that is wrapped."""
    name = f"component {component.index}"
    if isinstance(component, LocalComponent):
        for part, method in _LOCAL_PARTS.items():
            yield component, method, _ranged(f"{part} {name}")
    elif isinstance(component, BackpropagationComponent):
        yield component.f, "run", _followed_back(name, backward, lambda outgoing: outgoing["s"])
        if component.head is not None:
            yield component.head, "forward", _followed_back(f"{name}, head", backward, lambda scores: scores)
        for optimizer in component.optimizers().values():
            yield optimizer, "step", _ranged(f"update {name}")


def _ranged(name: str) -> Callable[[Method], Method]:
    def wrap(method: Method) -> Method:
        def call(*arguments: Any, **named: Any) -> Any:
            with record_function(name):
                return method(*arguments, **named)

        return call

    return wrap


def _followed_back(
    name: str, backward: _BackwardRanges, output_of: Callable[[Any], torch.Tensor]
) -> Callable[[Method], Method]:
    """A forward range; its backward range begins once the gradient of its output is known."""

    def wrap(method: Method) -> Method:
        def call(*arguments: Any, **named: Any) -> Any:
            with record_function(f"forward {name}"):
                result = method(*arguments, **named)
            output = output_of(result)
            if output.requires_grad:
                output.register_hook(lambda gradient: backward.begin(f"backward {name}"))
            return result

        return call

    return wrap


def _measured(measure: Method, backward: _BackwardRanges) -> Method:
    @contextmanager
    def within(kind: str, text: str, step: int) -> Iterator[None]:
        with measure(kind, text, step):
            if kind not in COMPUTE:  # a wait may give way to another stage, whose ranges do not belong in it
                yield
                return
            with record_function(text):
                try:
                    yield
                finally:
                    backward.end()

    return within


class _BackwardRanges:
    """Backpropagation runs through all components in one call: each one's range ends where the next one's begins."""

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
