"""One family of errors: each says what is wrong, where, and the mend."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, in the shape `--json` prints it."""

    message: str
    mend: str | None = None
    file: str | None = None
    line: int | None = None
    key: str | None = None

    def __str__(self) -> str:
        place = self.file or ""
        if self.line is not None:
            place = f"{place}:{self.line}" if place else f"line {self.line}"
        parts = [part for part in (place, self.key) if part]
        text = ": ".join([*parts, self.message])
        return f"{text}; {self.mend}" if self.mend else text

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class AlrayError(Exception):
    """Root of the family. `exit_code` is what the command line returns for it.

    0 done, 1 the run failed, 2 the request was wrong, 130 interrupted.
    """

    exit_code = 1

    def __init__(
        self,
        message: str,
        *,
        mend: str | None = None,
        file: str | None = None,
        line: int | None = None,
        key: str | None = None,
    ) -> None:
        self.problems: tuple[Problem, ...] = (Problem(message, mend, file, line, key),)
        super().__init__(str(self.problems[0]))

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors cross process borders (stage to driver) and must arrive whole.
        return _rebuild, (type(self), self.problems)

    @classmethod
    def of(cls, problems: tuple[Problem, ...]) -> AlrayError:
        """One error that carries several problems, so that all are told at once."""
        error = cls.__new__(cls)
        error.problems = problems
        Exception.__init__(error, "\n".join(str(problem) for problem in problems))
        return error


def _rebuild(kind: type[AlrayError], problems: tuple[Problem, ...]) -> AlrayError:
    return kind.of(problems)


class RequestError(AlrayError):
    """The request itself is wrong; nothing was started."""

    exit_code = 2


class SpecError(RequestError):
    """A spec file, or an override, does not say something alray can do."""


class PlanError(RequestError):
    """A spec is well formed but cannot be laid on these stages, devices or memory."""


class DataError(RequestError):
    """Data is missing, damaged or not what the spec says."""


class CheckpointError(RequestError):
    """A run folder or checkpoint is missing, incomplete or damaged."""


class RunError(AlrayError):
    """A run began and could not go on."""


class StageError(RunError):
    """One stage failed: died, stopped answering, or raised."""


class ChannelError(RunError):
    """A message between neighbours could not be sent or received."""


class NonFiniteLoss(RunError):
    """A loss became infinite or not a number."""
