"""Records and rows as pandas DataFrames."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame

    from alray.run_folder.records import Record


def frame_of(records: Iterable[Record]) -> DataFrame:
    """A row for each record, a column for each value in it. A plan is one value."""
    return frame_of_rows((record.model_dump(mode="json") for record in records), whole=("plan",))


def frame_of_rows(rows: Iterable[Mapping[str, Any]], whole: Container[str] = ()) -> DataFrame:
    """A row for each mapping. A section becomes columns such as `a.b`, and a list of depths columns named by them.

    whole: sections that stay one value. Where a row has no section and another row has it, its columns are empty.
    """
    from pandas import DataFrame

    rows = list(rows)
    sections = {key for row in rows for key, value in row.items() if isinstance(value, dict) and key not in whole}
    return DataFrame(
        [
            dict(_flat({key: value for key, value in row.items() if value is not None or key not in sections}, whole))
            for row in rows
        ]
    )


def _flat(section: Mapping[str, Any], whole: Container[str] = (), around: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in section.items():
        if isinstance(value, list) and value and all(isinstance(each, dict) and "depth" in each for each in value):
            value = {each["depth"]: {name: own for name, own in each.items() if name != "depth"} for each in value}
        if isinstance(value, dict) and key not in whole:
            yield from _flat(value, around=f"{around}{key}.")
        else:
            yield f"{around}{key}", value
