"""Plans in the records of a run. Records lie below the floor that knows plans, and hold them as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pydantic import ValidationError

from alray.core.errors import CheckpointError
from alray.core.run_folder.records import PlanRecord, Record
from alray.core.storage.json_file import RESTORE, first_fault
from alray.core.storage.location import Location
from alray.planning.prediction.plan import Plan


def with_whole_plans(records: Iterable[Record], file: Location) -> Iterator[Record]:
    """Pass the records of a file on. Raises CheckpointError at a record of a plan that holds none."""
    for record in records:
        if isinstance(record, PlanRecord):
            try:
                Plan.from_json(record.plan)
            except ValidationError as error:
                message = f"a plan in these records is damaged: {first_fault(error)}"
                raise CheckpointError(message, file=str(file), hint=RESTORE) from error
        yield record
