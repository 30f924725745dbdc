"""`alray.map_ways`: which way to train is fastest where, predicted without a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from alray.api.calls import Overrides, checked, watched
from alray.api.frames import frame_of_rows
from alray.api.notebook import framed
from alray.api.objects import taken
from alray.api.plans import machines_of, with_machines
from alray.config.loading.load import SpecSource
from alray.config.objects import NO_OBJECTS, Objects
from alray.report.crossover import as_json
from alray.report.crossover_page import CrossoverReport
from alray.runtime.options import Options

if TYPE_CHECKING:
    from pandas import DataFrame

    from alray.runtime.planner.opening import Teller

MICRO_BATCHES = (4, 8, 16, 32)


@checked
def map_ways(
    spec: SpecSource,
    overrides: Overrides = None,
    *,
    model: Any = None,
    data: Any = None,
    methods: str | Sequence[str] = (),
    devices: str | Sequence[int] = (),
    micro_batches: Sequence[int] = MICRO_BATCHES,
    link: str | Sequence[str] = (),
    steps: Mapping[str, int] | None = None,
    on: str | None = None,
    within: str | None = None,
    probe: bool = False,
    allow_code: bool = False,
    progress: bool = True,
) -> WaysMap:
    """Predict every way to train a network, as `alray plan --map` does: methods in all their schedules, on all
    divisions of the devices into stages and replicas.

    Args:
        spec, overrides, model, data, allow_code, progress: as for `alray.run`.
        methods: to compare with that of the spec; (): backpropagation, or with that associated_learning.
        devices: their numbers; a way takes one of them, or a divisor of one. (): 1, 2, 4, 8 and 16, with machines as
            many of these as they have, and all of theirs.
        micro_batches: their numbers.
        link: between any two devices, or with machines the card of each node, such as "10 Gbit/s, 50 us"; without
            machines also "host"; or several of them.
        steps: mini-batches to the target: {"associated_learning": 1200, "backpropagation/2bw": 1500}.
        on, within, probe: as for `alray.plan`.
    """
    found = taken(spec, overrides, model=model, data=data)
    with watched(progress) as (display, _):
        return WaysMap(
            map_report(
                found.spec,
                found.overrides,
                methods=[methods] if isinstance(methods, str) else methods,
                devices=devices,
                micro_batches=micro_batches,
                links=[link] if isinstance(link, str) else link,
                steps=steps,
                on=on,
                within=within,
                probe=probe,
                allow_code=allow_code,
                objects=found.objects,
                teller=display,
            )
        )


class WaysMap:
    """Every way to train a network, and which is fastest where. In a notebook it shows its page."""

    def __init__(self, report: CrossoverReport) -> None:
        self._report = report

    @property
    def values(self) -> dict[str, Any]:
        """What `alray plan --map --json` prints: the `fastest` way at each place, all `ways`, and the `factors`."""
        return as_json(self._report.found)

    def table(self) -> DataFrame:
        """A row for each way over each link, the fastest first."""
        return frame_of_rows(self.values["ways"])

    @property
    def page(self) -> str:
        """The HTML page."""
        return self._report.page()

    def __repr__(self) -> str:
        return f"<alray map of {self._report.found.name}: {len(self._report.found.rows)} ways>"

    def _repr_html_(self) -> str:
        return framed(self.page)


def map_report(
    spec: SpecSource,
    overrides: Sequence[str],
    *,
    methods: Sequence[str] = (),
    devices: str | Sequence[int] = (),
    micro_batches: Sequence[int] = MICRO_BATCHES,
    links: Sequence[str] = (),
    steps: Mapping[str, int] | None = None,
    on: str | None,
    within: str | None,
    probe: bool,
    allow_code: bool,
    teller: Teller,
    objects: Objects = NO_OBJECTS,
) -> CrossoverReport:
    """The report of a map. Arguments are those of `map_ways`."""
    from alray.runtime.planner.crossover import HOST, crossover_spec

    # Machines of several nodes have some card when they are opened.
    cards = [link for link in links if link != HOST] if on is not None or machines_of(spec, overrides) else []
    found = crossover_spec(
        spec,
        with_machines(spec, overrides, on=on, link=next(iter(cards), None), within=within),
        methods=methods,
        devices=devices,
        micro_batches=micro_batches,
        links=links,
        steps=steps or {},
        probe=probe,
        options=Options(allow_code=allow_code, objects=objects),
        teller=teller,
    )
    return CrossoverReport(found)
