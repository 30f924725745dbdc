"""The figures of a study, chosen from what it has. The docstring of each function is what the page says of them."""

from __future__ import annotations

from collections.abc import Iterator

from alray.config.known_code import named, read_record
from alray.report import figure
from alray.report.environments import has_other_data
from alray.report.figure import Exhibit, Show
from alray.studies.batch_size import not_bracketed
from alray.studies.busy import busy_warnings
from alray.studies.figures.over_axes import heat_maps, over_one_axis
from alray.studies.figures.over_components import over_components
from alray.studies.figures.scaling import device_scaling
from alray.studies.figures.to_target import best_settings, steps_to_target
from alray.studies.figures.training import depths, early_exits, losses, race, utilisation
from alray.studies.impossible import impossible_times
from alray.studies.results import Results
from alray.studies.table import data_of

OTHER_DATA = "The data changed while the study ran: trials that should have the same data have other ones."
EXHIBITS: tuple[Show[Results], ...] = (
    steps_to_target,
    best_settings,
    device_scaling,
    heat_maps,
    race,
    losses,
    over_components,
    over_one_axis,
    depths,
    early_exits,
    utilisation,
)
"""In the order of the page. Each returns None for a study that it does not suit."""


def exhibits_of(results: Results) -> list[Exhibit]:
    """The figures that suit a study."""
    return figure.exhibits_of(results, EXHIBITS)


def _code_warnings(results: Results) -> Iterator[str]:
    hashes: dict[str, set[str]] = {}
    for trial in results.records:
        record = read_record(results.trial_dir(trial.number))
        for file, sha in (record.files if record is not None else {}).items():
            hashes.setdefault(file, set()).add(sha)
    if changed := [file for file, found in hashes.items() if len(found) > 1]:
        yield (
            "The code changed while the study ran: trials that should have the same network may have other ones "
            f"({named(changed)})."
        )


def warnings_of(results: Results) -> list[str]:
    """The warnings about a study's figures: times that cannot be true, a machine that was busy, data or code
    that changed between trials, and best settings that no search has bracketed."""
    other = has_other_data((data_of(each), results.environment(each)) for each in results.records)
    return [
        *impossible_times(results),
        *busy_warnings(results.records),
        *([OTHER_DATA] if other else []),
        *_code_warnings(results),
        *(sentence for _, _, sentence in not_bracketed(results, results.rows)),
    ]
