"""The family of alray's errors. Each one says what is wrong, where, and how to correct it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from textwrap import indent
from typing import Any, Self

FAULTS_OF_USER_CODE = Exception
"""The errors that code of a user or of an installed package may raise: any, because it may define classes for them."""


def printable(text: str) -> str:
    """The text as it can be written anywhere; a byte of a file name that is not UTF-8 becomes `\\udce9`."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


_IF_KNOWN = ("traceback", "column", "end_column", "text")
"""Fields of a problem that its JSON has only where they are known."""
_LONG_LINE = 1000
"""Characters of a line up to which the JSON has it."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong. `--json` prints these fields; all of them are printable.

    Attributes:
        message: what is wrong.
        hint: what to do about it.
        file, line, key: where it is; `key` is a key of the spec or a command-line option.
        traceback: of a user's code that raised an error, printed below the message.
        text: the line, or the override of the command line, as it was written.
        column, end_column: what is wrong in it, from 1, and the first column after that.
    """

    message: str
    hint: str | None = None
    file: str | None = None
    line: int | None = None
    key: str | None = None
    traceback: str | None = None
    column: int | None = None
    end_column: int | None = None
    text: str | None = None

    def __post_init__(self) -> None:
        for name in ("message", "hint", "file", "key", "text"):
            text = getattr(self, name)
            if text is not None:
                object.__setattr__(self, name, printable(text))

    def __str__(self) -> str:
        location = self.file or ""
        if self.line is not None:
            location = f"{location}:{self.line}" if location else f"line {self.line}"
        parts = [part for part in (location, self.key) if part]
        return ": ".join([*parts, self.sentence])

    @property
    def sentence(self) -> str:
        """What is wrong, and what to do about it."""
        return f"{self.message}; {self.hint}" if self.hint else self.message

    def explained(self) -> str:
        """The problem, with the traceback of a user's code below it."""
        return str(self) if self.traceback is None else f"{self}\n{indent(self.traceback.rstrip(), '    ')}"

    def as_json(self) -> dict[str, Any]:
        values = asdict(self)
        if self.text is not None and len(self.text) > _LONG_LINE:
            values["text"] = None
        return {name: value for name, value in values.items() if value is not None or name not in _IF_KNOWN}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Problem:
        """The problem that `as_json` wrote. Another version of alray may have written fewer fields, or more."""
        return cls(**{each.name: values[each.name] for each in fields(cls) if each.name in values})


class AlrayError(Exception):
    """The base of all errors of alray. `exit_code` is the exit code of the command line.

    Exit codes: 0 done, 1 the run failed, 2 the request was wrong, 130 interrupted. A folder that is damaged makes the
    request wrong, in every command: nothing failed, and what was asked cannot be done with this folder.
    """

    exit_code = 1

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        file: str | None = None,
        line: int | None = None,
        key: str | None = None,
    ) -> None:
        self.problems: tuple[Problem, ...] = (Problem(message, hint, file, line, key),)
        super().__init__(str(self.problems[0]))

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors travel between processes (stage to driver) by pickle and must arrive complete.
        return type(self).of, (self.problems,)

    @classmethod
    def of(cls, problems: tuple[Problem, ...]) -> Self:
        """Make one error that carries several problems, so that all are reported at once."""
        error = cls.__new__(cls)
        error.problems = problems
        Exception.__init__(error, "\n".join(str(problem) for problem in problems))
        return error

    def restate(self, problems: Iterable[Problem]) -> None:
        """Take these problems in place of the present ones."""
        self.problems = tuple(problems)
        self.args = ("\n".join(str(problem) for problem in self.problems),)

    def _render_traceback_(self) -> list[str]:
        """The lines that IPython shows instead of a traceback: each problem, then the traceback of a user's code."""
        problems = [f"{type(self).__name__}: {problem.explained()}" for problem in self.problems]
        return [*problems, *getattr(self, "__notes__", ())]

    def with_hint(self, hint: str) -> Self:
        """The same error, with this hint where a problem has none."""
        return type(self).of(tuple(replace(problem, hint=problem.hint or hint) for problem in self.problems))


class RequestError(AlrayError):
    """The request is wrong. Nothing was started."""

    exit_code = 2


class SpecError(RequestError):
    """A spec file or an override is wrong."""


class PlanError(RequestError):
    """The spec is well formed, but it cannot be run on these stages, devices or this memory."""


class DataError(RequestError):
    """The data is missing, damaged or different from what the spec says."""


class DataMissing(DataError):
    """The data are not where the spec says."""


class CheckpointError(RequestError):
    """A run folder or checkpoint is missing, incomplete or damaged."""


class RunError(AlrayError):
    """A run started and could not continue."""


class UserCodeError(RunError):
    """A user's code raised an error."""


class StageError(RunError):
    """A stage failed: its process ended, stopped answering, or raised an error."""


class ProcessLost(StageError):
    """A process that a stage had started ended. The cause may be the machine: the same bits need not meet it again."""


class NodesLost(StageError):
    """No node is left that can hold a stage, or none for as many as a run can go on with."""


class SystemFault(RunError):
    """The operating system refused something or had too little of it. The machine did this, not the spec."""


class DiskFault(SystemFault):
    """A disk was full, or could not be written. Whatever is written next meets the same."""


class ChannelError(RunError):
    """A message between stages or replicas could not be sent or received."""


class MessageError(RunError):
    """A message between stages that no edge carries. The same bits would make the same message again."""


class ConnectionLost(RunError):
    """The dashboard of a cluster answered before, and no longer does."""


class ReplicasDiffer(RunError):
    """The replicas do not hold the same parameters."""


class NonFiniteLoss(RunError):
    """A loss became infinite or not a number."""
