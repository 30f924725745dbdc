"""What runs and studies tell of ways to train, for a crossover: times of steps, and mini-batches to a target."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alray.config.loading.inputs import load_own_spec
from alray.config.sections.run import StopAt
from alray.config.sections.spec import Spec
from alray.core.counting import counted
from alray.core.errors import RequestError
from alray.core.storage.location import Location, location_of
from alray.planning.prediction.crossover import Known, MeasuredStep, Steps, Way
from alray.planning.schedules.table import SCHEDULES
from alray.report.folder import read_run
from alray.studies.folder import TRIALS, StudyFolder
from alray.studies.outcome import first_reached
from alray.studies.table import PointRow, rows_of

_NOT_THE_SAMPLES = ("assume", "batch_size", "last_batch", "workers")
"""Keys of `data` that may differ: a crossover goes over sizes of the mini-batch, and plans alone assume something."""


def known_ways(folders: Sequence[str | Location], network: Spec) -> Known:
    """What these run folders and study folders tell of this network.

    Raises CheckpointError if one is neither, and RequestError if one tells nothing, if it has only other networks, or
    other data, another task or another target than the spec or the ones before: mini-batches to two targets are no
    factor of a method.

    Args:
        network: the spec that a crossover is for.
    """
    trained: list[tuple[str, Spec]] = []
    with_steps: list[tuple[str, Spec]] = []  # those of which mini-batches to a target are taken
    measured: list[MeasuredStep] = []
    steps: dict[tuple[str, str | None, int | None], _Reached] = {}
    of_settings: dict[str, list[tuple[Spec, float | None]]] = {}  # runs that differ in their seed alone
    for folder, named in {location_of(each): each for each in folders}.items():
        if isinstance(folder, Path) and (folder / TRIALS).is_file():
            study = StudyFolder.open(folder)
            rows = [row for row in rows_of(study.records(), target=True) if row.reached]
            own = [(row, load_own_spec(study.trial_dir(row.best[0].number)).spec) for row in rows]
            of_network = [(row, spec) for row, spec in own if spec.model == network.model]
            if not own:
                raise _tells_nothing(
                    named, "no trial of this study reached a target", "give a study whose trials reached its target"
                )
            if not of_network:
                raise _of_another(named)
            for row, spec in of_network:
                trained.append((str(named), spec))
                with_steps.append((str(named), spec))
                _keep(steps, spec, _steps_of_point(row, study.begun.study))
        else:
            spec = load_own_spec(folder).spec
            if spec.model != network.model:
                raise _of_another(named)
            trained.append((str(named), spec))
            of_run, reached = _measured(folder, spec), _reached(folder, spec)
            missed = reached is None and _missed(folder, spec)
            if not of_run and reached is None and not missed:
                raise _tells_nothing(
                    named,
                    "this run has no step time and reached no target",
                    "give a run that ended, with more mini-batches, and whose stages did not take turns (--inline)",
                )
            measured += of_run
            if reached is not None:
                with_steps.append((str(named), spec))
            if reached is not None or missed:
                of_settings.setdefault(_but_the_seed(spec), []).append((spec, reached))
    for runs in of_settings.values():
        if known := [each for _, each in runs if each is not None]:
            spec = runs[0][0]
            _keep(steps, spec, _of_seeds(known, len(runs), spec.name))
    _require_one_target(trained)
    _require_target_of(network, with_steps)
    return Known(tuple(measured), {key: each.steps for key, each in steps.items()})


def _require_one_target(trained: Sequence[tuple[str, Spec]]) -> None:
    """Raise RequestError for the first of these folders and specs with another target than one before."""
    for what, of in (("other data", _data), ("another task", _task), ("another target", _target)):
        known = [(folder, found) for folder, spec in trained if (found := of(spec)) is not None]
        for folder, found in known[1:]:
            if found != known[0][1]:
                raise RequestError(
                    f"this trained with {what} than `{known[0][0]}`",
                    file=folder,
                    hint="give runs with the same data, task and bound (run.stop_at)",
                )


def _require_target_of(network: Spec, trained: Sequence[tuple[str, Spec]]) -> None:
    """Raise RequestError for the first of these folders whose spec has another target than this one. A run that tells
    its step time alone may have had any data."""
    for what, of in (("other data", _data_anywhere), ("another task", _task), ("another target", _target)):
        wanted = of(network)
        for folder, spec in trained:
            found = of(spec)
            if wanted is not None and found is not None and found != wanted:
                raise RequestError(
                    f"this trained with {what} than the spec has",
                    file=folder,
                    hint="give runs with the data, task and bound (run.stop_at) of the spec, or change them in it",
                )


def _data_anywhere(spec: Spec) -> dict[str, Any]:
    """`_data` without its files and folders, which may lie elsewhere on the machine of a run."""
    files = {key for key, value in spec.data.model_dump().items() if isinstance(value, Path)}
    return {key: value for key, value in _data(spec).items() if key not in files}


def _data(spec: Spec) -> dict[str, Any]:
    """What decides the samples."""
    given: dict[str, Any] = spec.model_dump(mode="json")["data"]
    return {key: value for key, value in given.items() if key not in _NOT_THE_SAMPLES}


def _task(spec: Spec) -> Any:
    return spec.model_dump(mode="json")["task"]


def _target(spec: Spec) -> tuple[float | None, float | None] | None:
    """The bounds on the validation metric; None without one. `run.stop_at` takes the metric of the task alone."""
    stop_at = spec.run.stop_at
    if stop_at is None or stop_at.split != "validation" or _bound(stop_at) is None:
        return None
    return stop_at.above, stop_at.below


def _bound(stop_at: StopAt) -> float | None:
    return stop_at.below if stop_at.above is None else stop_at.above


def _of_another(folder: str | Location) -> RequestError:
    return RequestError("this trained another network", file=str(folder), hint="give runs of the same model")


def _tells_nothing(folder: str | Location, why: str, hint: str) -> RequestError:
    return RequestError(f"{why}, so a crossover can take nothing of it", file=str(folder), hint=hint)


@dataclass(frozen=True)
class _Reached:
    """The mini-batches to the target of a point, or of runs with the same settings.

    Attributes:
        share: of its seeds that reached it.
    """

    share: float
    steps: Steps


def _keep(steps: dict[tuple[str, str | None, int | None], _Reached], spec: Spec, found: _Reached) -> None:
    """Keep the best for a method, and of a schedule where it trains other weights: as in the table of a study, what
    reached the target on the largest share of its seeds, and of that the fewest."""
    late = SCHEDULES[spec.schedule].gradient_delay > 0
    key = (spec.method.kind, SCHEDULES[spec.schedule].name if late else None, spec.data.batch_size)
    best = steps.get(key)
    if best is None or (-found.share, found.steps.number) < (-best.share, best.steps.number):
        steps[key] = found


def _steps_of_point(row: PointRow, study: str) -> _Reached:
    reached = [record.reached.step for record in row.best if record.reached is not None]
    return _of_seeds(reached, row.tried, f"study {study}")


def _of_seeds(reached: Sequence[float], tried: int, source: str) -> _Reached:
    seeds = counted(tried, "seed")
    of = seeds if len(reached) == tried else f"{len(reached)} of {seeds}"
    steps = Steps(sum(reached) / len(reached), f"measured: {source}" + (f", mean of {of}" if tried > 1 else ""))
    return _Reached(len(reached) / tried, steps)


def _but_the_seed(spec: Spec) -> str:
    return json.dumps({**spec.model_dump(mode="json"), "seed": None, "name": None}, sort_keys=True)


def _missed(folder: Location, spec: Spec) -> bool:
    """Whether a run that did not reach its target came to its end without it. One that ended before says nothing."""
    summary = read_run(folder).summary
    return _target(spec) is not None and summary is not None and summary.status == "finished"


def _reached(folder: Location, spec: Spec) -> float | None:
    """The mini-batches after which a run reached the bound that it was to stop at; None without one."""
    stop_at = spec.run.stop_at
    bound = None if stop_at is None or stop_at.split != "validation" else _bound(stop_at)
    if bound is None:
        return None
    reached = first_reached(read_run(folder).effective_records, bound)
    return None if reached is None else float(reached.step)


def _measured(folder: Location, spec: Spec) -> list[MeasuredStep]:
    run = read_run(folder)
    plan = run.plan
    if run.summary is None or run.summary.step_time_s is None or plan.in_turns:  # the map has a device for each stage
        return []
    way = Way(
        plan.method,
        plan.schedule_name,
        plan.stages,
        plan.replicas,
        plan.micro_batches,
        plan.virtual_stages,
        spec.data.batch_size,
        plan.recomputes,
    )
    return [MeasuredStep(way, run.summary.step_time_s, plan.predicted_step_time_s, run.summary.name)]
