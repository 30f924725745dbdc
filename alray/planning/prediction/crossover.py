"""The crossover: which way to train is fastest over numbers of devices, micro-batches and links.

A way is a method in a schedule, on so many stages and replicas. Each is predicted as a plan predicts it, with a device
for every stage of every replica.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby, product
from operator import itemgetter

from alray.core.errors import RequestError, UserCodeError
from alray.planning.prediction.costs import Costs
from alray.planning.prediction.fit import NEAR, Fit, fit_of, with_best_cut
from alray.planning.prediction.make import edge_plans
from alray.planning.prediction.seconds import copied_bytes
from alray.planning.prediction.setting import StepSetting
from alray.planning.schedules.table import SCHEDULES, schedules_for, schedules_on

REFERENCE = "backpropagation"
"""The method that times are compared with, and steps where it is one of those that are compared."""
CLOSE = 1.05
"""Ways whose times differ by less are close: of published pipelines that differ by more, the simulation puts 98 % of
the pairs into the right order."""


@dataclass(frozen=True)
class Way:
    """One way to train."""

    method: str
    schedule: str
    stages: int
    replicas: int
    micro_batches: int
    virtual_stages: int
    recomputes: bool = False  # whether stages keep inputs only, and compute forwards again

    @property
    def devices(self) -> int:
        return self.stages * self.replicas

    @property
    def local_losses(self) -> bool:
        return SCHEDULES[self.schedule].local_losses


@dataclass(frozen=True)
class Contender:
    """A method, as a crossover takes it.

    Attributes:
        alone: its costs on one device.
        setting: of a way over a link, by its name; raises RequestError where it cannot train in this way.
        averaged_share: the bytes that replicas send for each byte of a gradient and mini-batch.
    """

    method: str
    local_losses: bool
    alone: Costs
    setting: Callable[[Way, str], StepSetting]
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


StepsOf = Mapping[tuple[str, str | None], Steps]
"""By method and schedule (None: all of the method)."""


@dataclass(frozen=True)
class Row:
    """A way over one link.

    Attributes:
        fit: how it fits its devices; with forwards computed again, if it fits only so.
        sent_bytes: by all devices, for one mini-batch.
    """

    way: Way
    link: str
    fit: Fit
    sent_bytes: float

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
        steps: to the target, where they are known.
        rows: none before `map_crossover`.
        refused: why a schedule of a method runs nowhere, by both names.
    """

    name: str
    basis: Mapping[str, str]
    axes: Axes
    contenders: tuple[Contender, ...]
    steps: StepsOf
    batch_size: int
    rows: tuple[Row, ...] = ()
    refused: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @cached_property
    def factors(self) -> tuple[Factors, ...]:
        """Of each method and mini-batch, and of its schedules with late gradients."""
        return tuple(self._factors())

    def steps_of(self, way: Way) -> Steps | None:
        """The mini-batches of a way to the target; None where those of `reference_of` are not known.

        What is not known for a schedule is assumed to be as for its method, and for a method as for the reference.
        """
        return self._steps_of(way.method, way.schedule)

    def seconds(self, row: Row) -> float:
        """What ways are compared by: the time to the target, or of one mini-batch where no steps are known."""
        return row.step_s * self._mini_batches(row)

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
        steps = self.steps_of(row.way)
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
            if row.fit.fits and row.way.devices <= devices and (micro_batches is None or _has(row.way, micro_batches))
        ]

    @cached_property
    def _by_link(self) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {link: [] for link in self.axes.links}
        for row in sorted(self.rows, key=self._rank):
            found[row.link].append(row)
        return found

    def _rank(self, row: Row) -> tuple[float, int, int, int]:
        # Equal times may differ in their last digits; then fewer devices, stages and micro-batches come first.
        way = row.way
        return float(f"{self.seconds(row):.10g}"), way.devices, way.stages, way.micro_batches

    def _steps_of(self, method: str, schedule: str | None) -> Steps | None:
        reference = self.steps.get((self._reference, None))
        if reference is None:
            return None
        if (own := self.steps.get((method, schedule))) is not None:
            return own
        late = schedule is not None and SCHEDULES[schedule].gradient_delay > 0
        if (own := self.steps.get((method, None))) is not None:
            return replace(own, source=f"assumed: as many as without late gradients ({own.source})") if late else own
        return Steps(reference.number, f"assumed: as many as {self._reference} ({reference.source})")

    def _factors(self) -> Iterator[Factors]:
        alone_s = next((each.alone_s for each in self.contenders if each.method == REFERENCE), None)
        reference = self._steps_of(self._reference, None)
        for each in self.contenders:
            schedules = schedules_for(local_losses=each.local_losses)
            for schedule in (None, *(own.name for own in schedules if own.gradient_delay)):
                steps = self._steps_of(each.method, schedule)
                rho, rho_source = 1.0, f"assumed: as many as {self._reference}"
                if steps is not None and reference is not None:
                    rho, rho_source = steps.number / reference.number, steps.source
                yield Factors(
                    method=each.method,
                    schedule=schedule,
                    step_s=each.alone_s,
                    alpha=None if alone_s is None else each.alone_s / alone_s,
                    source=each.alone.source,
                    rho=rho,
                    rho_source=rho_source,
                )


def reference_of(methods: Sequence[str]) -> str:
    """Of methods that are compared, the one whose steps those of the others are compared with: backpropagation, or the
    first one where that is not compared."""
    return REFERENCE if REFERENCE in methods else methods[0]


def _has(way: Way, micro_batches: int) -> bool:
    return way.micro_batches == micro_batches or not SCHEDULES[way.schedule].cuts_mini_batches


def map_crossover(asked: Crossover, doing: Callable[[str], None]) -> Crossover:
    """Predict every way over every link.

    Args:
        asked: without rows.
        doing: is called with what is predicted now.

    Raises RequestError or UserCodeError where no way can run.
    """
    found: dict[Row, Contender] = {}
    faults: dict[tuple[str, str], RequestError | UserCodeError] = {}
    for contender in asked.contenders:
        doing(f"predicting {contender.method}")
        for way in _ways(contender, asked.axes):
            try:
                rows = [_row(contender, way, link) for link in asked.axes.links]
            except (RequestError, UserCodeError) as error:  # a block may not take so few samples
                faults.setdefault((way.method, way.schedule), error)
            else:
                found |= dict.fromkeys(rows, contender)
    if not found and faults:
        raise next(iter(faults.values()))
    run = {(row.way.method, row.way.schedule) for row in found}
    refused = {each: fault.problems[0].sentence for each, fault in faults.items() if each not in run}
    near = replace(asked, rows=tuple(found), refused=refused)
    doing("searching the best cuts of the fastest")
    best = _near_the_fastest(near)
    return replace(near, rows=tuple(_with_best_cut(row, found[row]) if row in best else row for row in found))


def _near_the_fastest(found: Crossover) -> set[Row]:
    """The ways that come near to the fastest of their family at some place, and with some number of micro-batches."""
    axes, near = found.axes, set[Row]()
    for devices, link, micro_batches in product(axes.devices, axes.links, (None, *axes.micro_batches)):
        ranked = found.at(devices, link, micro_batches=micro_batches)
        for family in (True, False):
            own = [row for row in ranked if row.way.local_losses == family]
            near |= {row for row in own if found.seconds(row) <= NEAR * found.seconds(own[0])}
    return near


def _ways(contender: Contender, axes: Axes) -> Iterator[Way]:
    """Ways that differ in their replicas alone follow each other: they are simulated by one program."""
    sizes = {size for count in axes.devices for size in _divisors(count)}
    most = len(contender.alone.components)
    over = min((size for size in sizes if size > most), default=most)  # none has more, but one says why none runs
    layouts = {(stages, size // stages) for size in sizes for stages in _divisors(size) if stages <= over}
    for stages, alike in groupby(sorted(layouts), key=itemgetter(0)):
        numbers = [replicas for _, replicas in alike]
        for schedule in schedules_on(stages, local_losses=contender.local_losses):
            for micro_batches in axes.micro_batches if schedule.cuts_mini_batches else (1,):
                for replicas in numbers:
                    yield Way(
                        contender.method,
                        schedule.name,
                        stages,
                        replicas,
                        micro_batches,
                        schedule.default_virtual_stages if stages > 1 else 1,
                    )


def _divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]


def _row(contender: Contender, way: Way, link: str) -> Row:
    """A way: with forwards computed again where it does not fit without."""
    fit = fit_of(contender.setting(way, link), search=False)
    if not fit.fits and fit.setting.scheduled.is_pipeline and way.stages > 1:
        again = fit_of(replace(fit.setting, recomputes=True), search=False)
        fit = again if again.fits else fit
    way = replace(way, recomputes=fit.setting.recomputes)
    return Row(way, link, fit, _sent_bytes(contender, fit))


def _with_best_cut(row: Row, contender: Contender) -> Row:
    fit = with_best_cut(row.fit)
    return replace(row, fit=fit, sent_bytes=_sent_bytes(contender, fit))


def _sent_bytes(contender: Contender, fit: Fit) -> float:
    setting = fit.setting
    between = sum(edge.bytes_per_step for edge in edge_plans(setting, fit.partition)) + copied_bytes(setting)
    # In every all-reduce alray has, n ranks send 2 (n - 1) times the bytes of the gradients together.
    averages = 2 * (setting.replicas - 1) * sum(component.gradient_bytes for component in setting.costs.components)
    return setting.replicas * between + contender.averaged_share * averages
