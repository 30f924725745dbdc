"""The options of a run, and its result."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from alray.config.loading.step_ranges import parse_steps
from alray.config.objects import NO_OBJECTS, Objects
from alray.config.user_code import UserCode
from alray.core.errors import AlrayError, RequestError
from alray.core.run_folder.data_identity import DataIdentity
from alray.core.run_folder.records import Summary
from alray.core.storage.location import Location, location_of


class Requested(TypedDict, total=False):
    """The options of a run as a person gives them, on a command line or in Python. They change nothing of what is
    computed. `Options` has the defaults, and says what each of them is."""

    inline: bool
    alone: bool
    output: str | Location | None  # `run_dir`
    address: str | None
    profile: str | None  # as in "20-24,40"
    allow_code: bool
    objects: Objects


@dataclass(frozen=True)
class Options:
    """How to run; nothing here changes what is computed."""

    inline: bool = False  # run every stage in this process, without Ray
    alone: bool = False  # this process does nothing else, before or meanwhile: it is that of a command
    address: str | None = None  # the Ray cluster to attach to; None: start one for this run
    run_dir: Location | None = None  # None: runs/<name>-<time>
    allow_code: bool = False  # load the user's classes from outside the spec's folder and from a stranger's folder too
    profile: tuple[range, ...] = ()  # mini-batches to trace with torch.profiler, counted from 1
    pages: bool = True  # end with the HTML page, timeline and TensorBoard files; `alray report` makes them later
    deep: bool = False  # first open the header of every picture file
    code: UserCode | None = None  # loads the user's classes; None: from the spec's folder, or as a resume finds them
    objects: Objects = NO_OBJECTS  # that a Python program gave
    data: DataIdentity | None = None  # what told the data of the run that is done again from others
    standardised_as: Location | None = None  # in this run, which goes on or is done again; None: by the training split
    model_sha256: str | None = None  # that of the model that a Python program gave to that run
    stop_after: int | None = None  # stop after so many mini-batches, as if the user had asked for it then
    command: tuple[str, ...] = field(default_factory=lambda: tuple(sys.argv))  # what the user typed
    study: Path | None = None  # a trial of this study: stages run in the placement group it has
    session: int = 0  # of the study, to which the trial belongs

    @classmethod
    def requested(cls, *, output: str | Location | None = None, profile: str | None = None, **others: Any) -> Options:
        """The options that a person gave. Raises RequestError if one of them cannot be read, or if two exclude each
        other."""
        run_dir = None if output is None else location_of(output)
        return cls(run_dir=run_dir, profile=() if profile is None else parse_steps(profile), **others)

    @property
    def kept_costs(self) -> Path | None:
        """The folder of the measured costs that the trials of a session share; None for a run that is no trial.

        Each session measures anew, so one disturbed measurement does not make the predictions of the whole study.
        """
        return None if self.study is None else self.study / "costs" / f"session_{self.session + 1}"

    def __post_init__(self) -> None:
        if self.inline and self.address is not None:
            raise RequestError(
                "a run with --inline uses no cluster", key="--address", hint="leave out --inline or --address"
            )


def require_launched_once() -> None:
    """Raise RequestError if torchrun, or a launcher that is made of it, started this process as one of several: each of
    them would do the whole run.

    RANK and WORLD_SIZE alone say nothing: Ray Train and clusters set them too.
    """
    size = os.environ.get("WORLD_SIZE", "")
    if "TORCHELASTIC_RUN_ID" in os.environ and size.isdecimal() and int(size) > 1:
        raise RequestError(
            f"torchrun started this program {size} times, and alray starts the processes of its stages itself",
            hint="start it once, without torchrun: pipeline.stages and replicas.count say how many processes it has, "
            "and --address names a cluster",
        )


@dataclass(frozen=True)
class Finished:
    """A run that ended. `error` is None unless it failed.

    Attributes:
        lost: as in `alray.runtime.runner.driver.Outcome`.
    """

    summary: Summary
    error: AlrayError | None
    lost: bool = False
