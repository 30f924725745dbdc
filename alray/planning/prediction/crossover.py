"""The crossover: which way to train is fastest over numbers of devices, micro-batches, links and memory.

A way is a method in a schedule, on so many stages and replicas. Each is predicted as a plan predicts it, with a device
for every stage of every replica. Cuts are searched in two passes: every way gets a cut that is near to the best one,
and those that come near to the fastest get the search of `partition: auto`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby, product
from operator import itemgetter

from alray.core.errors import PlanError, RequestError, UserCodeError
from alray.planning.prediction.best import best_cut, check_parts, fullest_stage, near_cut, nearest_to_fitting
from alray.planning.prediction.costs import Costs
from alray.planning.prediction.make import edge_plans, step_range
from alray.planning.prediction.memory import memory_of
from alray.planning.prediction.partition import Cut
from alray.planning.prediction.predict import predict_step
from alray.planning.prediction.seconds import copied_bytes
from alray.planning.prediction.setting import StepSetting
from alray.planning.schedules.table import SCHEDULES, default_schedule, schedules_for, schedules_on

REFERENCE = "backpropagation"
"""The method that times are compared with, and steps where it is one of those that are compared."""
CLOSE = 1.05
"""Ways whose times differ by less are close: of published pipelines that differ by more, the simulation puts 98 % of
the pairs into the right order."""
OWN = 0
"""In place of a number of bytes: what each device has of its own, where devices differ."""
NEAR = 1.1
"""Ways that are slower than the fastest one by less get the search for the best cut; the first pass is off by less,
but for a few."""


@dataclass(frozen=True)
class Way:
    """One way to train."""

    method: str
    schedule: str
    stages: int
    replicas: int
    micro_batches: int
    virtual_stages: int
    batch_size: int  # samples of a mini-batch, over all replicas
    recomputes: bool = False  # whether stages keep inputs only, and compute forwards again

    @property
    def devices(self) -> int:
        return self.stages * self.replicas

    @property
    def local_losses(self) -> bool:
        return SCHEDULES[self.schedule].local_losses


@dataclass(frozen=True)
class Contender:
    """A method on mini-batches of one size, as a crossover takes it.

    Attributes:
        alone: its costs on one device.
        setting: of a way over a link, by its name; raises RequestError where it cannot train in this way.
        averaged_share: the bytes that replicas send for each byte of a gradient and mini-batch.
    """

    method: str
    local_losses: bool
    batch_size: int
    alone: Costs
    setting: Callable[[Way, str], StepSetting]
    averaged_share: float = 1.0

    @property
    def alone_s(self) -> float:
        """The seconds of a mini-batch on one device."""
        return self.alone.data_s + sum(component.train_s for component in self.alone.components)


@dataclass(frozen=True)
class Axes:
    """What a crossover goes over.

    Attributes:
        devices: numbers of devices that there are. A way uses one of them, or a divisor of one.
        micro_batches: for the schedules that cut mini-batches.
        links: the names of the links between devices.
        memory: bytes that a stage may hold of each device; None: no limit. Where settings have limits, these count in
            place of the first, which is `OWN` where they differ.
    """

    devices: tuple[int, ...]
    micro_batches: tuple[int, ...]
    links: tuple[str, ...]
    memory: tuple[int | None, ...] = (None,)


@dataclass(frozen=True)
class Steps:
    """Mini-batches that a way takes to the target.

    Attributes:
        source: where the number comes from; "assumed" begins what nobody has measured.
    """

    number: float
    source: str


StepsOf = Mapping[tuple[str, str | None, int | None], Steps]
"""By method, schedule (None: all of the method) and size of the mini-batch (None: that of the spec)."""


@dataclass(frozen=True)
class Row:
    """A way over one link.

    Attributes:
        memory_limit: bytes that each device has, or `OWN`, if the cut was chosen for it; None: it needs no choice.
        step_s: of one mini-batch.
        memory_bytes: of the stage that needs the most.
        over: whether a stage needs more than its own device has.
        sent_bytes: by all devices, for one mini-batch.
        range_s: the step if all computations take the least, and the most, that they may; None: nothing is known.
    """

    way: Way
    link: str
    memory_limit: int | None
    partition: Cut
    step_s: float
    memory_bytes: int
    sent_bytes: float
    over: bool = False
    range_s: tuple[float, float] | None = None


@dataclass(frozen=True)
class Factors:
    """The two numbers of a method that decide whether its streaming beats a pipeline of backpropagation.

    Attributes:
        schedule: the one with late gradients that rho is of; None: any other.
        step_s: on one device.
        alpha: its step on one device over that of backpropagation; None without backpropagation.
        source: of the costs that this was computed from.
        rho: its mini-batches to the target over those of `reference_of`, of the same size; 1 where they are not known.
        rho_source: where they come from.
    """

    method: str
    schedule: str | None
    batch_size: int
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
        return self._steps_of(way.method, way.schedule, way.batch_size)

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
        return [each * self._mini_batches(row) for each in (row.step_s, *(row.range_s or (row.step_s,) * 2))]

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

    @cached_property
    def one_size(self) -> bool:
        """Whether all ways have mini-batches of one size."""
        return len({each.batch_size for each in self.contenders}) == 1

    def at(self, devices: int, link: str, memory: int | None = None, *, micro_batches: int | None = None) -> list[Row]:
        """The ways that so many devices can train in, the fastest first.

        Args:
            micro_batches: those of the pipelines; None: any.
        """
        return [
            row
            for row in self._by_link[link]
            if row.way.devices <= devices
            and (micro_batches is None or _has(row.way, micro_batches))
            and _fits(row, memory, own=memory == self.axes.memory[0])
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

    def _steps_of(self, method: str, schedule: str | None, batch_size: int) -> Steps | None:
        def found(method: str, schedule: str | None) -> Steps | None:
            own = self.steps.get((method, schedule, batch_size))
            usual = batch_size == self.batch_size
            return self.steps.get((method, schedule, None)) if own is None and usual else own

        reference = found(self._reference, None)
        if reference is None:
            return None
        if (own := found(method, schedule)) is not None:
            return own
        late = schedule is not None and SCHEDULES[schedule].gradient_delay > 0
        if (own := found(method, None)) is not None:
            return replace(own, source=f"assumed: as many as without late gradients ({own.source})") if late else own
        return Steps(reference.number, f"assumed: as many as {self._reference} ({reference.source})")

    def _factors(self) -> Iterator[Factors]:
        of_reference = {each.batch_size: each.alone_s for each in self.contenders if each.method == REFERENCE}
        for each in self.contenders:
            alone_s = of_reference.get(each.batch_size)
            schedules = schedules_for(local_losses=each.local_losses)
            for schedule in (None, *(own.name for own in schedules if own.gradient_delay)):
                reference = self._steps_of(self._reference, None, each.batch_size)
                steps = self._steps_of(each.method, schedule, each.batch_size)
                rho, rho_source = 1.0, f"assumed: as many as {self._reference}"
                if steps is not None and reference is not None:
                    rho, rho_source = steps.number / reference.number, steps.source
                yield Factors(
                    method=each.method,
                    schedule=schedule,
                    batch_size=each.batch_size,
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


def _fits(row: Row, memory: int | None, *, own: bool) -> bool:
    """Args:
    own: whether this memory stands for what each device has.
    """
    if memory is None or row.memory_limit is not None:
        return row.memory_limit == memory
    return not row.over if own else row.memory_bytes <= memory


def map_crossover(asked: Crossover, doing: Callable[[str], None]) -> Crossover:
    """Predict every way over every link.

    Args:
        asked: without rows.
        doing: is called with what is predicted now.

    Raises RequestError or UserCodeError where no way can run.
    """
    search = _Search(asked.axes)
    for contender in asked.contenders:
        doing(f"predicting {contender.method}")
        for way in _ways(contender, asked.axes):
            search.predict(contender, way)
    search.require_rows()
    found = replace(asked, rows=search.rows, refused=search.refused)
    doing("searching the best cuts of the fastest")
    return replace(found, rows=search.with_best_cuts(found))


def alone_bytes(contender: Contender, link: str) -> int:
    """The memory that one device needs without others."""
    schedule = default_schedule(local_losses=contender.local_losses, stages=1)
    way = Way(contender.method, schedule.name, 1, 1, 1, 1, contender.batch_size)
    setting = contender.setting(way, link)
    return memory_of(setting, (len(setting.costs.components),), 0).total_bytes


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
                        contender.batch_size,
                    )


def _divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]


class _Search:
    """The rows found so far, each with its setting, the memory of its stages' devices, and the `averaged_share` of its
    contender."""

    def __init__(self, axes: Axes) -> None:
        self._axes = axes
        self._found: dict[Row, tuple[StepSetting, tuple[int, ...], float]] = {}
        self._faults: dict[tuple[str, str], RequestError | UserCodeError] = {}

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(self._found)

    @property
    def refused(self) -> dict[tuple[str, str], str]:
        run = {(row.way.method, row.way.schedule) for row in self._found}
        return {each: _reason(fault) for each, fault in self._faults.items() if each not in run}

    def require_rows(self) -> None:
        """Raise what is wrong with the first way, if none can run."""
        if not self._found and self._faults:
            raise next(iter(self._faults.values()))

    def predict(self, contender: Contender, way: Way) -> None:
        """Add the rows of a way, if it can run."""
        try:
            settings = {link: contender.setting(way, link) for link in self._axes.links}
            for setting in settings.values():
                check_parts(setting)
        except (RequestError, UserCodeError) as error:  # a block may not take so few samples
            self._faults.setdefault((way.method, way.schedule), error)
            return
        for link, placed in settings.items():
            setting, theirs = replace(placed, memory_limits=()), self._axes.memory[0]
            own = placed.memory_limits or (() if theirs is None else (theirs,) * way.stages)
            row = self._add(contender, way, link, setting, own)
            for limit in self._axes.memory:
                if limit is not None and not _fits(row, limit, own=limit == theirs):
                    limits = own if limit == theirs else (limit,) * way.stages
                    self._fit(contender, row, replace(setting, memory_limits=limits), own, limit)

    def _fit(self, contender: Contender, row: Row, limited: StepSetting, own: tuple[int, ...], limit: int) -> None:
        """Add the way of a row with a cut that fits the memory, or where there is none, with forwards computed again.

        With several virtual stages only the cut of the row is tried: to search one would take long.
        """
        again = [replace(limited, recomputes=True)] if limited.scheduled.is_pipeline and limited.stages > 1 else []
        for each in (limited, *again):
            cut = nearest_to_fitting(each) if each.virtual_stages == 1 else row.partition
            if fullest_stage(each, cut)[0] <= 1.0:
                self._add(contender, replace(row.way, recomputes=each.recomputes), row.link, each, own, limit, cut)
                return

    def _add(
        self,
        contender: Contender,
        way: Way,
        link: str,
        setting: StepSetting,
        own: tuple[int, ...],
        limit: int | None = None,
        cut: Cut | None = None,
    ) -> Row:
        if cut is None and setting.num_parts > 1:
            cut = near_cut(replace(setting, memory_limits=()))
        share = contender.averaged_share
        row = _row(way, link, limit, setting, own, share, cut or (len(setting.costs.components),))
        self._found[row] = setting, own, share
        return row

    def with_best_cuts(self, found: Crossover) -> tuple[Row, ...]:
        """The rows; those that are fast have the cut that `partition: auto` chooses."""
        axes, near = self._axes, set[Row]()
        for devices, link, memory in product(axes.devices, axes.links, axes.memory):
            for micro_batches in (None, *axes.micro_batches):
                ranked = found.at(devices, link, memory, micro_batches=micro_batches)
                for family in (True, False):
                    own = [row for row in ranked if row.way.local_losses == family]
                    near |= {row for row in own if found.seconds(row) <= NEAR * found.seconds(own[0])}
        return tuple(each for row in self._found for each in (self._with_best_cut(row) if row in near else [row]))

    def _with_best_cut(self, row: Row) -> list[Row]:
        """The row with the fastest cut. Where that cut does not fit a limit of memory and the present one does, the row
        with the present cut stays for this limit."""
        setting, own, share = self._found[row]
        if setting.num_parts == 1:
            return [row]
        try:
            best = best_cut(setting)
        except PlanError:  # of very many cuts of virtual stages few are weighed; that of the row fits all the same
            return [row]
        fastest = _row(row.way, row.link, row.memory_limit, setting, own, share, best.cut)
        fits = [
            [limit for limit in self._axes.memory if _fits(each, limit, own=limit == self._axes.memory[0])]
            for each in (row, fastest)
        ]
        return [fastest, *(replace(row, memory_limit=limit) for limit in fits[0] if limit not in fits[1])]


def _reason(error: RequestError | UserCodeError) -> str:
    first = error.problems[0]
    return f"{first.message}; {first.hint}" if first.hint else first.message


def _row(
    way: Way,
    link: str,
    limit: int | None,
    setting: StepSetting,
    own: tuple[int, ...],
    averaged_share: float,
    cut: Cut,
) -> Row:
    step_s = predict_step(setting, cut).step_time_s
    needed = [memory_of(setting, cut, stage).total_bytes for stage in range(setting.stages)]
    between = sum(edge.bytes_per_step for edge in edge_plans(setting, cut)) + copied_bytes(setting)
    # In every all-reduce alray has, n ranks send 2 (n - 1) times the bytes of the gradients together.
    averages = 2 * (way.replicas - 1) * sum(component.gradient_bytes for component in setting.costs.components)
    return Row(
        way=way,
        link=link,
        memory_limit=limit,
        partition=tuple(cut),
        step_s=step_s,
        memory_bytes=max(needed),
        sent_bytes=way.replicas * between + averaged_share * averages,
        over=any(need > limit for need, limit in zip(needed, own, strict=False)),
        range_s=step_range(setting, cut),
    )
