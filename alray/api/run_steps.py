"""The steps of `run`, `resume` and `reproduce`, which the command line and Python share.

The caller gives the display, and shows the result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, TypeAlias, Unpack

from alray.config.loading.load import SpecSource
from alray.config.sections.section import Section
from alray.core.run_folder.store import require_run_dir
from alray.core.storage.location import Location
from alray.runtime.options import Finished, Options, Requested

if TYPE_CHECKING:
    from alray.api.reproduction import Reproduction
    from alray.runtime.observer import Observer, StopRequests

Watched: TypeAlias = "AbstractContextManager[tuple[Observer, StopRequests]]"
"""The display of a run, and the counter of the requests to stop it, as long as the run runs."""


def run(watched: Watched, spec: SpecSource, overrides: list[str], **requested: Unpack[Requested]) -> Finished:
    """Run a spec from its beginning."""
    options = Options.requested(**requested)
    with _reading(watched, spec) as (observer, interrupts):
        from alray.orchestrate import run_spec

        return run_spec(spec, overrides, options, observer, interrupts)


def resume(
    watched: Watched, run_dir: Location, overrides: list[str], *, allow_change: bool, **requested: Unpack[Requested]
) -> Finished:
    """Continue a run from its last checkpoint."""
    options = Options.requested(**requested)
    with _reading(watched, require_run_dir(run_dir)) as (observer, interrupts):
        from alray.orchestrate import resume_run

        return resume_run(run_dir, overrides, options, observer, interrupts, allow_change=allow_change)


def reproduce(
    watched: Watched,
    run_dir: Location,
    overrides: list[str],
    *,
    in_process: bool | None,
    **requested: Unpack[Requested],
) -> tuple[Finished, Reproduction | None]:
    """Do a run again as it was recorded.

    The second value is None if the run did not come to its end.

    Args:
        in_process: without Ray; None: as recorded.
    """
    options = Options.requested(**requested)
    with _reading(watched, require_run_dir(run_dir)) as (observer, interrupts):
        from alray.api.reproduction import reproduce_run

        return reproduce_run(run_dir, overrides, options, observer, interrupts, inline=in_process)


@contextmanager
def _reading(watched: Watched, source: SpecSource) -> Iterator[tuple[Observer, StopRequests]]:
    """Say at once what is read. The imports inside, of torch and others, take longer than that."""
    with watched as (observer, interrupts):
        observer.doing(f"reading {'the spec' if isinstance(source, Mapping | Section) else source}")
        yield observer, interrupts
