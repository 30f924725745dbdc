"""Records and rows as pandas DataFrames."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from alray.report.flat import flat, sections

if TYPE_CHECKING:
    from pandas import DataFrame

    from alray.core.run_folder.records import Record


def frame_of(records: Iterable[Record]) -> DataFrame:
    """A row for each record, a column for each value in it. A plan is one value."""
    return frame_of_rows((record.model_dump(mode="json") for record in records), whole=("plan",))


def frame_of_rows(rows: Iterable[Mapping[str, Any]], whole: Container[str] = ()) -> DataFrame:
    """A row for each mapping. A section becomes columns such as `a.b`, and a list of depths columns named by them.

    Where a row has no section and another row has it, its columns are empty.

    Args:
        whole: sections that stay one value.
    """
    from pandas import DataFrame

    rows = list(rows)
    with_parts = {key for row in rows for key, value in row.items() if isinstance(value, dict) and key not in whole}
    return DataFrame(
        [
            {
                name: own
                for key, value in row.items()
                if value is not None or key not in with_parts
                for name, own in ([(key, value)] if key in whole else flat(value, _parts, key))
            }
            for row in rows
        ]
    )


def _parts(value: Any) -> Mapping[Any, Any] | None:
    """The parts of a section; of a list of depths, those of each depth."""
    if isinstance(value, list) and value and all(isinstance(each, dict) and "depth" in each for each in value):
        return {each["depth"]: {name: own for name, own in each.items() if name != "depth"} for each in value}
    return sections(value)
