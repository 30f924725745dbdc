"""The crossover: which way to train is fastest over numbers of devices, micro-batches and links.

A way is a method in a schedule, on so many stages and replicas. Each is predicted as a plan predicts it, with a device
for every stage of every replica.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product

from alray.core.errors import RequestError, UserCodeError
from alray.planning.prediction.costs import Costs
from alray.planning.prediction.fit import NEAR, Fit, fit_of, with_best_cut
from alray.planning.prediction.make import edge_plans
from alray.planning.prediction.setting import StepSetting
from alray.planning.schedules.table import SCHEDULES, schedules_for, schedules_on

REFERENCE = "backpropagation"
"""The method that times are compared with, and steps where it is one of those that are compared."""
CLOSE = 1.05
"""Ways whose times differ by less are close: of published pipelines that differ by more, the simulation puts 98 % of
the pairs into the right order."""
Layout = tuple[str, int, int, int]
"""A schedule, stages, replicas and micro-batches."""


@dataclass(frozen=True)
class Contender:
    """A method, as a crossover takes it.

    Attributes:
        alone: its costs on one device.
        setting: of a layout over a link, by its name; raises RequestError where the method cannot train so.
        averaged_share: the bytes that replicas send for each byte of a gradient and mini-batch.
    """

    method: str
    local_losses: bool
    alone: Costs
    setting: Callable[[Layout, str], StepSetting]
    averaged_share: float = 1.0

    @property
    def alone_s(self) -> float:
        """The seconds of a mini-batch on one device."""
        return self.alone.data_s + self.alone.train_s


@dataclass(frozen=True)
class Axes:
    """What a crossover goes over.

    Attributes:
        devices: numbers of devices that there are. A way uses one of them, or a divisor of one.
        micro_batches: for the schedules that cut mini-batches.
        links: the names of the links between devices.
    """

    devices: tuple[int, ...]
    micro_batches: tuple[int, ...]
    links: tuple[str, ...]


@dataclass(frozen=True)
class Steps:
    """Mini-batches that a way takes to the target.

    Attributes:
        source: where the number comes from; "assumed" begins what nobody has measured.
    """

    number: float
    source: str


@dataclass(frozen=True, eq=False)
class Row:
    """A way to train, over one link.

    Attributes:
        fit: its layout, and how it fits its devices; with forwards computed again, if it fits only so.
    """

    method: str
    link: str
    fit: Fit

    @property
    def devices(self) -> int:
        return self.fit.stages * self.fit.setting.replicas

    @property
    def local_losses(self) -> bool:
        return self.fit.setting.scheduled.local_losses

    @property
    def step_s(self) -> float:
        """The seconds of one mini-batch."""
        return self.fit.predicted_step_time_s


@dataclass(frozen=True)
class Factors:
    """The two numbers of a method that decide whether its streaming beats a pipeline of backpropagation.

    Attributes:
        schedule: the one with late gradients that rho is of; None: any other.
        step_s: on one device.
        alpha: its step on one device over that of backpropagation; None without backpropagation.
        source: of the costs that this was computed from.
        rho: its mini-batches to the target over those of `reference_of`; 1 where they are not known.
        rho_source: where they come from.
    """

    method: str
    schedule: str | None
    step_s: float
    alpha: float | None
    source: str
    rho: float
    rho_source: str


@dataclass(frozen=True)
class Crossover:
    """Every way over every link, and which is fastest where.

    Attributes:
        name, batch_size: of the spec.
        basis: sentences about where times, memory and links come from.
        steps: to the target, where they are known, by method and schedule (None: all of the method).
        rows: none before `map_crossover`.
        refused: why a schedule of a method runs nowhere, by both names.
    """

    name: str
    basis: Mapping[str, str]
    axes: Axes
    contenders: tuple[Contender, ...]
    steps: Mapping[tuple[str, str | None], Steps]
    batch_size: int
    rows: tuple[Row, ...] = ()
    refused: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @cached_property
    def factors(self) -> list[Factors]:
        """Of each method and mini-batch, and of its schedules with late gradients."""
        alone_s = next((each.alone_s for each in self.contenders if each.method == REFERENCE), None)
        reference = self.steps_of(self._reference, None)
        found = []
        for each in self.contenders:
            schedules = schedules_for(local_losses=each.local_losses)
            for schedule in (None, *(own.name for own in schedules if own.gradient_delay)):
                steps = self.steps_of(each.method, schedule)
                rho, rho_source = 1.0, f"assumed: as many as {self._reference}"
                if steps is not None and reference is not None:
                    rho, rho_source = steps.number / reference.number, steps.source
                found.append(
                    Factors(
                        method=each.method,
                        schedule=schedule,
                        step_s=each.alone_s,
                        alpha=None if alone_s is None else each.alone_s / alone_s,
                        source=each.alone.source,
                        rho=rho,
                        rho_source=rho_source,
                    )
                )
        return found

    def steps_of(self, method: str, schedule: str | None) -> Steps | None:
        """The mini-batches of a way to the target; None where those of `reference_of` are not known.

        What is not known for a schedule is assumed to be as for its method, and for a method as for the reference.
        """
        reference = self.steps.get((self._reference, None))
        if reference is None:
            return None
        if (own := self.steps.get((method, schedule))) is not None:
            return own
        late = schedule is not None and SCHEDULES[schedule].gradient_delay > 0
        if (own := self.steps.get((method, None))) is not None:
            return replace(own, source=f"assumed: as many as without late gradients ({own.source})") if late else own
        return Steps(reference.number, f"assumed: as many as {self._reference} ({reference.source})")

    def seconds(self, row: Row) -> float:
        """What ways are compared by: the time to the target, or of one mini-batch where no steps are known."""
        return row.step_s * self._mini_batches(row)

    def sent_bytes(self, row: Row) -> float:
        """What all devices send in a way, for one mini-batch."""
        setting = row.fit.setting
        costs = setting.costs
        share = next(each.averaged_share for each in self.contenders if each.method == row.method)
        copies = costs.copy_bytes * (setting.stages - 1) / costs.copy_every
        between = sum(edge.bytes_per_step for edge in edge_plans(setting, row.fit.partition)) + copies
        # In every all-reduce alray has, n ranks send 2 (n - 1) times the bytes of the gradients together.
        averages = 2 * (setting.replicas - 1) * sum(component.gradient_bytes for component in costs.components)
        return setting.replicas * between + share * averages

    def ratios(self, ones: Sequence[Row], others: Sequence[Row]) -> list[float]:
        """How many times as long as the fastest of these the fastest of the others takes (`seconds`): as predicted, and
        at both ends of what is known of the times of computations, where others may be the fastest."""
        own, theirs = ([min(times) for times in zip(*map(self._spread, rows), strict=True)] for rows in (ones, others))
        return [other / one for one, other in zip(own, theirs, strict=True)]

    def _spread(self, row: Row) -> list[float]:
        """Its seconds as predicted, and at both ends."""
        ends = row.fit.predicted_step_range_s or (row.step_s,) * 2
        return [each * self._mini_batches(row) for each in (row.step_s, *ends)]

    def _mini_batches(self, row: Row) -> float:
        steps = self.steps_of(row.method, row.fit.schedule)
        return 1.0 if steps is None else steps.number

    @cached_property
    def _reference(self) -> str:
        return reference_of([each.method for each in self.contenders])

    @cached_property
    def one_family(self) -> bool:
        """Whether all ways have local losses, or none has."""
        return len({each.local_losses for each in self.contenders}) == 1

    def at(self, devices: int, link: str, *, micro_batches: int | None = None) -> list[Row]:
        """The ways that so many devices can train in, the fastest first.

        Args:
            micro_batches: those of the pipelines; None: any.
        """
        return [
            row
            for row in self._by_link[link]
            if row.fit.fits
            and row.devices <= devices
            and (micro_batches in (None, row.fit.micro_batches) or not row.fit.setting.scheduled.cuts_mini_batches)
        ]

    @cached_property
    def _by_link(self) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {link: [] for link in self.axes.links}
        for row in sorted(self.rows, key=self._rank):
            found[row.link].append(row)
        return found

    def _rank(self, row: Row) -> tuple[float, int, int, int]:
        # Equal times may differ in their last digits; then fewer devices, stages and micro-batches come first.
        return float(f"{self.seconds(row):.10g}"), row.devices, row.fit.stages, row.fit.micro_batches


def reference_of(methods: Sequence[str]) -> str:
    """Of methods that are compared, the one whose steps those of the others are compared with: backpropagation, or the
    first one where that is not compared."""
    return REFERENCE if REFERENCE in methods else methods[0]


def map_crossover(asked: Crossover, doing: Callable[[str], None]) -> Crossover:
    """Predict every way over every link.

    Args:
        asked: without rows.
        doing: is called with what is predicted now.

    Raises RequestError or UserCodeError where no way can run.
    """
    rows: list[Row] = []
    faults: dict[tuple[str, str], RequestError | UserCodeError] = {}
    for contender in asked.contenders:
        doing(f"predicting {contender.method}")
        for layout in _layouts(contender, asked.axes):
            try:
                rows += [
                    Row(contender.method, link, _fit(contender.setting(layout, link))) for link in asked.axes.links
                ]
            except (RequestError, UserCodeError) as error:  # a block may not take so few samples
                faults.setdefault((contender.method, layout[0]), error)
    if not rows and faults:
        raise next(iter(faults.values()))
    run = {(row.method, row.fit.schedule) for row in rows}
    refused = {each: fault.problems[0].sentence for each, fault in faults.items() if each not in run}
    near = replace(asked, rows=tuple(rows), refused=refused)
    doing("searching the best cuts of the fastest")
    best = _near_the_fastest(near)
    return replace(near, rows=tuple(replace(row, fit=with_best_cut(row.fit)) if row in best else row for row in rows))


def _near_the_fastest(found: Crossover) -> set[Row]:
    """The ways that come near to the fastest of their family at some place, and with some number of micro-batches."""
    axes, near = found.axes, set[Row]()
    for devices, link, micro_batches in product(axes.devices, axes.links, (None, *axes.micro_batches)):
        ranked = found.at(devices, link, micro_batches=micro_batches)
        for family in (True, False):
            own = [row for row in ranked if row.local_losses == family]
            near |= {row for row in own if found.seconds(row) <= NEAR * found.seconds(own[0])}
    return near


def _layouts(contender: Contender, axes: Axes) -> Iterator[Layout]:
    """Those that differ in their replicas alone follow each other: they are simulated by one program."""
    sizes = [size for size in range(1, max(axes.devices) + 1) if any(count % size == 0 for count in axes.devices)]
    most = len(contender.alone.components)
    over = next((size for size in sizes if size > most), most)  # none has more, but one says why none runs
    for stages in (size for size in sizes if size <= over):
        numbers = [size // stages for size in sizes if size % stages == 0]
        for schedule in schedules_on(stages, local_losses=contender.local_losses):
            for micro_batches in axes.micro_batches if schedule.cuts_mini_batches else (1,):
                for replicas in numbers:
                    yield schedule.name, stages, replicas, micro_batches


def _fit(setting: StepSetting) -> Fit:
    """How a way fits: with forwards computed again where it does not without."""
    fit = fit_of(setting, search=False)
    if not fit.fits and setting.scheduled.is_pipeline and setting.stages > 1:
        again = fit_of(replace(setting, recomputes=True), search=False)
        return again if again.fits else fit
    return fit
