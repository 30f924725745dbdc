"""Which weights of a run are used: those of its last checkpoint, of its best one, or of another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from alray.core.counting import counted
from alray.core.errors import CheckpointError, RequestError
from alray.core.metric import ACCURACY
from alray.core.run_folder.metrics import METRICS
from alray.core.run_folder.store import manifests, standing_of
from alray.core.storage.location import Location


@dataclass(frozen=True)
class RequestedWeights:
    """The weights that a request names. Without any it is the last checkpoint."""

    best: bool = False
    step: int | None = None


LAST = RequestedWeights()


@dataclass(frozen=True)
class Weights:
    """The weights that were used: after `step` mini-batches, found as `which` says."""

    step: int
    which: Literal["last", "best", "step", "exported"]
    metric: str = ACCURACY.name  # by which `best` was chosen

    def as_json(self) -> dict[str, Any]:
        return {"step": self.step, "which": self.which}

    def __str__(self) -> str:
        found = {
            "last": "the last checkpoint",
            "best": f"the best validation {METRICS[self.metric].title}",
            "step": "the checkpoint that was asked for",
            "exported": "an exported route",
        }
        return f"weights after {counted(self.step, 'mini-batch')} ({found[self.which]})"


def find_weights(run_dir: Location, requested: RequestedWeights) -> tuple[dict[str, Any], Weights]:
    """The manifest of the checkpoint that holds the weights.

    Raises CheckpointError if the run has no complete checkpoint, and RequestError if it has none as asked.
    """
    complete = {manifest["step"]: manifest for manifest in manifests(run_dir)}
    if not complete:
        raise CheckpointError(
            "this run has no complete checkpoint", file=str(run_dir), hint="continue it: `alray resume`"
        )
    if requested.best and requested.step is not None:
        raise RequestError("`--best` and `--step` name two checkpoints", key="--step", hint="leave out one of them")
    if requested.best:
        return _best(complete)
    step = max(complete) if requested.step is None else requested.step
    if step not in complete:
        raise RequestError(
            f"there is no checkpoint after {step:,} mini-batches; {_listed(complete)}",
            key="--step",
            hint="choose one of these; `run.checkpoint.keep` says how many a run keeps",
        )
    return complete[step], Weights(step, "last" if requested.step is None else "step")


def _best(complete: dict[int, dict[str, Any]]) -> tuple[dict[str, Any], Weights]:
    standing = standing_of(complete[max(complete)])
    best, metric = standing.best, METRICS[standing.metric]
    if best is None:
        raise RequestError(
            f"this run has no validation {metric.title} by which a best checkpoint could be chosen; "
            f"{_listed(complete)}",
            key="--best",
            hint="choose one by --step, or set data.validation_fraction and run.evaluate_every in the next run",
        )
    if best.step not in complete:
        raise RequestError(
            f"the weights of the best validation {metric.title} ({best.validation:.4f}, after {best.step:,} "
            f"mini-batches) were not kept; {_listed(complete)}",
            key="--best",
            hint="choose one by --step; a run keeps its best weights unless `run.checkpoint` is null",
        )
    return complete[best.step], Weights(best.step, "best", metric.name)


def _listed(complete: dict[int, dict[str, Any]]) -> str:
    return f"there are checkpoints after {', '.join(f'{step:,}' for step in complete)}"
