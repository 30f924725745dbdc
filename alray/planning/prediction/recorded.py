"""Plans in the records of a run. `core` must not import `Plan`, so a record holds its plan as JSON, unchecked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pydantic import ValidationError

from alray.core.errors import CheckpointError
from alray.core.run_folder.records import PlanRecord, Record, read
from alray.core.storage.json_file import RESTORE, first_fault
from alray.core.storage.location import Location
from alray.planning.prediction.plan import Plan


def recorded_plans(file: Location) -> dict[int, Plan]:
    """The plans of a run by the mini-batches done before them, the last one where it began there several times; none if
    the run has no record yet. Raises CheckpointError if one is damaged."""
    try:
        records = list(with_whole_plans(read(file), file))
    except FileNotFoundError:
        return {}
    return {record.step: Plan.from_json(record.plan) for record in records if isinstance(record, PlanRecord)}


def with_whole_plans(records: Iterable[Record], file: Location) -> Iterator[Record]:
    """Yield the records of a file, and check each plan in them. Raises CheckpointError if a plan is damaged."""
    for record in records:
        if isinstance(record, PlanRecord):
            try:
                Plan.from_json(record.plan)
            except ValidationError as error:
                message = f"a plan in these records is damaged: {first_fault(error)}"
                raise CheckpointError(message, file=str(file), hint=RESTORE) from error
        yield record
