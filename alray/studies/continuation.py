"""How a trial continues that its scheduler paused, from its checkpoint or from that of another trial.

At each evaluation, what a trial needs to continue is saved next to the run folders until the study ends: the trial
itself may have deleted the checkpoint when another one continues from it.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from pydantic import BaseModel

from alray.config.known_code import CODE
from alray.config.known_code import RECORD as CODE_RECORD
from alray.config.loading.overrides import override_text
from alray.core.run_folder.records import EvaluationRecord, effective, read
from alray.core.run_folder.store import checkpoint_folder
from alray.studies.records import Segment
from alray.studies.trial import TrialOrder

_FILES = ("spec.yaml", "environment.json", "plan.json", "records.jsonl", CODE_RECORD)
"""Files of a run folder that a resume reads, or that a later command does."""


class Mark(BaseModel):
    """A saved state of a trial after an evaluation, from which it or another one can continue.

    Attributes:
        folder: the folder with its checkpoint.
        history: the settings that the trial has had by then.
    """

    trial: int
    step: int  # mini-batches
    folder: str
    history: list[Segment]


@dataclass(frozen=True)
class Continuation:
    """How a trial begins, for None as `mark`, or continues.

    Attributes:
        marks_folder: the folder for what marks refer to.
        history: the settings that the trial has had, with those of now.
    """

    order: TrialOrder
    mark: Mark | None
    marks_folder: Path
    history: list[Segment]

    @classmethod
    def of(cls, order: TrialOrder, mark: Mark | None, marks_folder: Path) -> Continuation:
        now = Segment(step=0, trial=order.trial.number, values=dict(order.trial.values))
        if mark is None:
            return cls(order, None, marks_folder, [now])
        before = mark.history[-1]
        if (before.trial, before.values) == (now.trial, now.values):
            return cls(order, mark, marks_folder, mark.history)
        return cls(order, mark, marks_folder, [*mark.history, now.model_copy(update={"step": mark.step})])

    @property
    def step(self) -> int:
        """Mini-batches that are done."""
        return self.mark.step if self.mark is not None else 0

    @property
    def is_changed(self) -> bool:
        """Whether it continues otherwise than the trial of the mark would have."""
        return self.mark is not None and len(self.history) > len(self.mark.history)

    @property
    def changes(self) -> list[str]:
        """The settings that are other than before, as overrides."""
        if not self.is_changed:
            return []
        *_, before, now = self.history
        return [override_text(key, value) for key, value in now.values.items() if before.values.get(key) != value]

    @property
    def overrides(self) -> list[str]:
        """The overrides of a trial that begins, with a checkpoint at each evaluation."""
        given, every = list(self.order.trial.overrides), self.order.saves_every
        if every is None:
            return given
        saving = override_text("run.checkpoint", {"every": every, "keep": 1})
        return [*(text for text in given if not text.startswith("run.checkpoint=")), saving]

    @property
    def _run_dir(self) -> Path:
        return self.order.folder.trial_dir(self.order.trial.number)

    def marked(self, step: int) -> Mark:
        """Keep what it takes to continue after `step` mini-batches, whose checkpoint there is."""
        folder = self.marks_folder / f"{self.order.trial.number:04d}-{step}-{uuid4().hex[:8]}"
        _copy(self._run_dir, folder, step)
        return Mark(trial=self.order.trial.number, step=step, folder=str(folder), history=self.history)

    def take_over(self) -> None:
        """Make the run folder one that can be resumed from the mark. That of the trial itself is one."""
        if self.mark is None or not self.is_changed:
            return
        self.order.folder.clear(self.order.trial.number)
        _copy(Path(self.mark.folder), self._run_dir, self.mark.step)

    def last_evaluation(self) -> EvaluationRecord | None:
        """The last evaluation of the run."""
        with suppress(FileNotFoundError):  # a spec that was refused has no records
            found = [
                each for each in effective(read(self._run_dir / "records.jsonl")) if isinstance(each, EvaluationRecord)
            ]
            return found[-1] if found else None
        return None


def _copy(source: Path, target: Path, step: int) -> None:
    """Copy what a resume needs of a run folder, with the checkpoint after `step` mini-batches."""
    target.mkdir(parents=True)
    for name in _FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
    if (source / CODE).is_dir():
        shutil.copytree(source / CODE, target / CODE)
    checkpoint = checkpoint_folder(source, step)
    assert isinstance(checkpoint, Path)
    shutil.copytree(checkpoint, target / checkpoint.relative_to(source), copy_function=_link)


def _link(source: str, target: str) -> None:
    """Give a file, which never changes, a further name; copy it where the file system has no further names."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
