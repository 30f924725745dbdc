"""`alray.compare`: several runs next to each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from alray.api.calls import checked
from alray.api.frames import frame_of_rows
from alray.api.notebook import framed
from alray.api.runs import Run, folder_of
from alray.core.counting import counted
from alray.core.storage.location import Location
from alray.report import compare as values
from alray.report.compare_page import ComparisonReport

if TYPE_CHECKING:
    from pandas import DataFrame


@checked
def compare(runs: Run | str | Location | Iterable[Run | str | Location]) -> Comparison:
    """Compare runs, as `alray compare` does: those that differ only in their seed form a group.

    Args:
        runs: runs, their folders, or their URLs; or a single one.

    Raises:
        alray.core.errors.RequestError: if one is not a run.
    """
    several = [runs] if isinstance(runs, Run | str | Location) or not isinstance(runs, Iterable) else runs
    folders = [folder_of(each, "runs") for each in several]
    return Comparison(values.compare_runs(folders))


class Comparison:
    """Groups of runs. In a notebook it shows its page."""

    def __init__(self, found: values.ComparedRuns) -> None:
        self._found = found

    @property
    def values(self) -> dict[str, Any]:
        """Groups, differences of their specs, and notes: what `alray compare --json` prints."""
        return self._found.as_json()

    def table(self) -> DataFrame:
        """A row for each group. A figure has the columns `test.mean`, `test.deviation` and `test.runs`."""
        return frame_of_rows(
            {key: value for key, value in group.items() if key not in ("runs", "single_step")}
            for group in self.values["groups"]
        )

    @property
    def page(self) -> str:
        """The HTML page of the comparison."""
        return ComparisonReport(self._found).page()

    def __repr__(self) -> str:
        return f"<alray comparison of {counted(len(self._found.groups), 'group')} of runs>"

    def _repr_html_(self) -> str:
        return framed(self.page)
