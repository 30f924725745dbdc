"""Opening the planner of a spec: torch is loaded here, and the data are opened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from alray.config.known_code import require_no_run_folder
from alray.config.loading.load import LoadedSpec
from alray.config.sections.grammar import marked
from alray.config.sections.own_code import OwnClass
from alray.config.sections.paths import key_text
from alray.config.user_code import UserCode
from alray.core.errors import Problem, SpecError
from alray.runtime.options import Options

if TYPE_CHECKING:
    from alray.runtime.planner.planning import Planner


class Teller(Protocol):
    """Tells the user about a command while it works."""

    def doing(self, what: str) -> None:
        """Called with what the command does now."""

    def note(self, message: str) -> None:
        """Called with a line for the user."""


def open_planner(
    loaded: LoadedSpec,
    options: Options,
    teller: Teller,
    *,
    without_data: bool = False,
    most_stages: int = 0,
    before_data: Callable[[], None] = lambda: None,
) -> Planner:
    """The planner of a spec, with the user's classes imported and its data opened.

    Args:
        before_data: is called once torch is loaded, before the data are opened, which may take long.
        without_data, most_stages: as for `Planner.open`.
    """
    for line in loaded.notes:
        teller.note(line)
    teller.doing("loading torch")
    from alray.data import progress
    from alray.runtime.planner.planning import Planner

    before_data()
    teller.doing("opening the data")
    if options.code is None and not options.allow_code:
        require_no_run_folder(loaded)
    code = options.code or UserCode(
        options.objects.root or loaded.folder, allow_elsewhere=options.allow_code, objects=options.objects
    )
    problems: list[Problem] = []
    for path, reference, _ in marked(loaded.spec, OwnClass):
        try:
            code(reference)
        except SpecError as error:
            problems += [replace(problem, key=key_text(path)) for problem in error.problems]
    if problems:
        raise SpecError.of(tuple(problems))
    with progress.shown(teller.doing):
        planner = Planner.open(
            loaded.spec, code, options, note=teller.note, without_data=without_data, most_stages=most_stages
        )
    planner.workload.require_own_validation()
    return planner
