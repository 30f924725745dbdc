"""What runs and studies tell of ways to train, for a crossover: times of steps, and mini-batches to a target."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from alray.config.loading.inputs import load_own_spec
from alray.config.sections.spec import Spec
from alray.core.errors import RequestError
from alray.core.storage.location import Location, location_of
from alray.planning.prediction.crossover import Known, MeasuredStep, Steps, Way
from alray.planning.schedules.table import SCHEDULES
from alray.report.folder import read_run
from alray.studies.folder import TRIALS, StudyFolder
from alray.studies.outcome import first_reached
from alray.studies.table import PointRow, rows_of


def known_ways(folders: Sequence[str | Location], network: Spec) -> Known:
    """What these run folders and study folders tell of this network.

    Raises CheckpointError if one is neither, and RequestError if one has only other networks.
    """
    measured: list[MeasuredStep] = []
    steps: dict[tuple[str, str | None, int | None], Steps] = {}
    for named in folders:
        folder = location_of(named)
        if isinstance(folder, Path) and (folder / TRIALS).is_file():
            study = StudyFolder.open(folder)
            rows = [row for row in rows_of(study.records(), target=True) if row.reached]
            own = [(row, load_own_spec(study.trial_dir(row.best[0].number)).spec) for row in rows]
            of_network = [(row, spec) for row, spec in own if spec.model == network.model]
            if own and not of_network:
                raise _of_another(named)
            for row, spec in of_network:
                _keep(steps, spec, _steps_of_point(row, study.begun.study))
        else:
            spec = load_own_spec(folder).spec
            if spec.model != network.model:
                raise _of_another(named)
            measured += _measured(folder, spec)
            if (reached := _reached(folder, spec)) is not None:
                _keep(steps, spec, Steps(reached, f"measured: {spec.name}"))
    return Known(tuple(measured), steps)


def _of_another(folder: str | Location) -> RequestError:
    return RequestError("this trained another network", file=str(folder), hint="give runs of the same model")


def _keep(steps: dict[tuple[str, str | None, int | None], Steps], spec: Spec, found: Steps) -> None:
    """Keep the fewest for a method, and of a schedule where it trains other weights."""
    late = SCHEDULES[spec.schedule].gradient_delay > 0
    key = (spec.method.kind, SCHEDULES[spec.schedule].name if late else None, spec.data.batch_size)
    if key not in steps or found.number < steps[key].number:
        steps[key] = found


def _steps_of_point(row: PointRow, study: str) -> Steps:
    reached = [record.reached.step for record in row.best if record.reached is not None]
    seeds = f"{len(reached)} of {row.seeds} seeds" if len(reached) < row.seeds else f"{row.seeds} seeds"
    return Steps(sum(reached) / len(reached), f"measured: study {study}, mean of {seeds}")


def _reached(folder: Location, spec: Spec) -> float | None:
    """The mini-batches after which a run reached the bound that it was to stop at; None without one."""
    stop_at = spec.run.stop_at
    bound = None if stop_at is None or stop_at.split != "validation" else stop_at.above or stop_at.below
    if bound is None:
        return None
    reached = first_reached(read_run(folder).effective_records, bound)
    return None if reached is None else float(reached.step)


def _measured(folder: Location, spec: Spec) -> list[MeasuredStep]:
    run = read_run(folder)
    if run.summary is None or run.summary.step_time_s is None:
        return []
    plan = run.plan
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
