"""Callbacks: objects of the caller that are told of a run or a study while it goes on, and that can stop it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from alray.config.sections.section import did_you_mean, nearest
from alray.config.user_code import named_error
from alray.core.errors import FAULTS_OF_USER_CODE, RequestError, UserCodeError
from alray.core.run_folder.records import CheckpointRecord, EvaluationRecord, Record, StepRecord
from alray.core.storage.location import Location
from alray.runtime.observer import Observer

if TYPE_CHECKING:
    from alray.api.console.display import Display
    from alray.api.console.interrupts import Interrupts
    from alray.api.runs import Run
    from alray.planning.prediction.plan import Plan
    from alray.runtime.graph.graph import Graph
    from alray.runtime.stage.telemetry import StageStatus
    from alray.studies.records import TrialRecord

_METHODS = ("on_start", "on_step", "on_evaluation", "on_checkpoint", "on_end", "on_trial")


class Callback:
    """Is told of a run while it trains, or of a study. Override the methods that you need. An object of another class
    is a callback too if it has one of these methods.

    The methods are called in the process and the thread that called `alray.run`, one after another. The stages do not
    wait for them, unless they are in the same process.
    """

    stop_requested = False
    """Whether this callback asked to stop the run; a start or a resume begins with False."""

    def stop(self) -> None:
        """Ask that the run stops after the next mini-batch that its first stage begins, with a checkpoint. Any thread
        may call it."""
        self.stop_requested = True

    def on_start(self, run: Run) -> None:
        """The run has its folder and its plan, and nothing of it has run yet."""

    def on_step(self, record: StepRecord) -> None:
        """A mini-batch has its losses. Every mini-batch is told, also where `records.jsonl` keeps only some."""

    def on_evaluation(self, record: EvaluationRecord) -> None:
        """The metric was measured."""

    def on_checkpoint(self, record: CheckpointRecord) -> None:
        """A checkpoint is complete: `record.path` in the run folder."""

    def on_end(self, run: Run) -> None:
        """The run has ended, also if it was stopped or has failed: `run.summary.status`."""

    def on_trial(self, record: TrialRecord) -> None:
        """A trial of a study has ended, in whatever way: `record.status`. `alray.study` calls this method alone: trials
        run in processes of their own."""


class Called:
    """Calls callbacks, and knows which of them wants an end.

    Attributes:
        error: what the first callback that failed has raised.
    """

    def __init__(self, callbacks: Sequence[object]) -> None:
        """Raises RequestError for an object that is no callback, and for a method `on_...` that alray does not have."""
        for index, callback in enumerate(callbacks):
            if isinstance(callback, type) or not any(callable(getattr(callback, name, None)) for name in _METHODS):
                raise RequestError(
                    f"`{_name(callback)}` has none of {', '.join(_METHODS)}",
                    key=f"callbacks[{index}]",
                    hint="give an object of a class that derives from alray.Callback",
                )
            for name in dir(callback) if isinstance(callback, Callback) else ():
                if name.startswith("on_") and name not in _METHODS and callable(getattr(callback, name)):
                    raise RequestError(
                        f"`{name}` of `{_name(callback)}` is never called",
                        key=f"callbacks[{index}]",
                        hint=did_you_mean(nearest(name, _METHODS), f"the methods are {', '.join(_METHODS)}"),
                    )
        self._callbacks: list[Any] = list(callbacks)
        self._failed = ""  # the name of the first callback that failed
        self.error: UserCodeError | None = None

    @property
    def who_stops(self) -> str:
        """The name of the callback that failed, or asks to stop; "": none."""
        asking = (_name(each) for each in self._callbacks if getattr(each, "stop_requested", False))
        return self._failed or next(asking, "")

    def begin(self) -> None:
        """What a callback asked for before does not count."""
        for callback in self._callbacks:
            if getattr(callback, "stop_requested", False):
                callback.stop_requested = False

    def hearing(self, method: str) -> list[Any]:
        """The callbacks that have this method."""
        inherited = getattr(Callback, method)
        found = ((each, getattr(each, method, None)) for each in self._callbacks)
        return [each for each, call in found if call is not None and getattr(call, "__func__", None) is not inherited]

    def call(
        self, method: str, argument: object, note: Callable[[str], None], clear: Callable[[], None] = lambda: None
    ) -> None:
        """Call this method of every callback. One that fails is not called again.

        Args:
            note: takes a line about a further callback that fails.
            clear: called before each, which may print.
        """
        for callback in self.hearing(method):
            clear()
            try:
                getattr(callback, method)(argument)
            except FAULTS_OF_USER_CODE as fault:
                self._callbacks = [each for each in self._callbacks if each is not callback]
                error = named_error(fault, f"callback `{_name(callback)}`", f"`{method}`", key="callbacks")
                if self.error is None:
                    self.error, self._failed = error, _name(callback)
                else:
                    note(str(error))


class Calls(Called, Observer):
    """Calls the callbacks of a run.

    It stands between the run and its display: as the observer of the run it passes on what it hears, and as its
    requests to stop it adds those of the callbacks to those of the user.
    """

    def __init__(self, callbacks: Sequence[object], run_in: Callable[[Location], Run]) -> None:
        """
        Args:
            run_in: gives the run of a run folder.

        Raises:
            RequestError: for an object that is no callback.
        """
        super().__init__(callbacks)
        self.run_in = run_in
        self._started = False
        self._graph: Graph | None = None  # the stages of the last attempt
        self._asked_first = False  # whether a callback asked to stop before the user did
        self._told_until = 0  # the mini-batch whose losses were told last
        self._evaluations: set[tuple[object, ...]] = set()  # those that were told

    @contextmanager
    def beside(self, watched: AbstractContextManager[tuple[Display, Interrupts]]) -> Iterator[tuple[Calls, Calls]]:
        """This object as the observer and the requests to stop of a run, in place of a display and the user's."""
        with watched as (self._display, self._interrupts):
            yield self, self

    @property
    def count(self) -> int:
        """See `StopRequests`. A callback that asks after the user adds nothing, for both mean the same stop. Only where
        the driver has heard a callback before, and has said so, the first Ctrl-C stops at once."""
        by_user = self._interrupts.count
        self._asked_first = self._asked_first or (by_user == 0 and bool(self.who_stops))
        return by_user + self._asked_first

    @property
    def reason(self) -> str:
        """See `StopRequests`."""
        return f"by callback `{self.who_stops}`" if self.who_stops and not self.by_user else self._interrupts.reason

    @property
    def by_user(self) -> bool:
        """Whether the user asked to stop, and not only a callback."""
        return self._interrupts.count > 0

    def statuses(self, statuses: Sequence[StageStatus]) -> None:
        self._display.statuses(statuses)

    def planned(self, plan: Plan) -> None:
        self._display.planned(plan)

    def doing(self, what: str) -> None:
        self._display.doing(what)

    def note(self, message: str) -> None:
        self._display.note(message)

    def starting(self, run_dir: Location) -> None:
        """Raises UserCodeError if a callback fails: nothing has run yet."""
        self._display.starting(run_dir)
        self._started = True
        self.begin()
        self._call("on_start", self.run_in(run_dir))
        if self.error is not None:
            raise self.error

    def started(self, graph: Graph) -> None:
        self._display.started(graph)
        self._graph = graph

    def record(self, record: Record) -> None:
        """Call the callbacks with a record of theirs.

        Each is told once: what is done again after a failure has the same values, and is not told again.
        """
        self._display.record(record)
        if isinstance(record, StepRecord) and record.step > self._told_until:
            self._told_until = record.step
            self._call("on_step", record)
        elif isinstance(record, EvaluationRecord):
            measured = (record.step, record.train, record.validation, record.test)  # the last mini-batch has two
            if measured not in self._evaluations:
                self._evaluations.add(measured)
                self._call("on_evaluation", record)
        elif isinstance(record, CheckpointRecord):  # a failure goes back to the last one, so none is written again
            self._call("on_checkpoint", record)

    def ended(self, run: Run) -> None:
        """Tell the callbacks that the run has ended, if they were told that it started."""
        if self._started:
            self._call("on_end", run)

    def _stops_at_once(self) -> bool:
        return self._interrupts.count + self._asked_first > 1

    def _call(self, method: str, argument: object) -> None:
        if not self.hearing(method):
            return
        graph = self._graph
        try:
            with (
                self._interrupts.of_callback(asked_before=self._asked_first),
                nullcontext() if graph is None else graph.paused(unless=self._stops_at_once),
            ):
                self.call(method, argument, self.note, self._display.clear)
        except KeyboardInterrupt:
            if graph is None or not self._stops_at_once():  # with a graph, the driver stops at once by itself
                raise


def _name(callback: object) -> str:
    return type(callback).__qualname__
