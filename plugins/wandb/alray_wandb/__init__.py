"""Weights & Biases: a run of a project. WANDB_PROJECT, WANDB_MODE and its other variables say where."""

from __future__ import annotations

from collections.abc import Sequence

from alray.core.run_folder.records import Status
from alray.report.trackers.tracker import TrackedPoint, TrackedRun, Tracker

_EXIT_CODES = {"finished": 0, "failed": 1, "interrupted": 255}
_STEP = "mini_batches"
_ANSWER_S = 20.0  # for the server's first answer, and for the rest of the upload, which W&B would await without end


class WandbTracker(Tracker):
    """Writes the spec as config, and a row of the history for each point.

    The axis of all charts is `mini_batches`: W&B's step may not go back, as it does when work is done again.
    """

    faults: tuple[type[Exception], ...] = (ImportError, OSError)

    def start(self, run: TrackedRun) -> str:
        import wandb

        self.faults = (wandb.Error, ValueError, *WandbTracker.faults)  # pydantic's errors, of settings, are ValueErrors
        wandb.setup(settings=wandb.Settings(silent=True))  # it would ask for a missing key on the terminal
        self._run = wandb.init(
            id=run.id,
            resume="allow",
            name=run.name,
            group=run.study,
            config={**run.parameters, "run_dir": run.run_dir},
            allow_val_change=True,  # a resume may change values of the spec
            settings=wandb.Settings(console="off", silent=True, init_timeout=_ANSWER_S, finish_timeout=_ANSWER_S),
        )
        self._run.define_metric("*", step_metric=_STEP)
        return str(self._run.id)

    def write(self, points: Sequence[TrackedPoint]) -> None:
        for point in points:
            if point.scalars:
                self._run.log({_STEP: point.step, **point.scalars})

    def end(self, status: Status) -> None:
        self._run.finish(exit_code=_EXIT_CODES[status])
