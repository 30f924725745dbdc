"""The crossover of a spec: the costs of each method on each share of a mini-batch, and the setting of every way."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from alray.config.loading.inputs import load_with_inputs
from alray.config.loading.load import LoadedSpec, SpecSource, read_spec
from alray.config.sections.method import DEFAULT
from alray.core.errors import PlanError, RequestError
from alray.planning.prediction.basis import basis_of
from alray.planning.prediction.costs import Costs, Link
from alray.planning.prediction.crossover import (
    REFERENCE,
    Axes,
    Contender,
    Crossover,
    Steps,
    Way,
    map_crossover,
    reference_of,
)
from alray.planning.prediction.machines import MOST_DEVICES, Device, link_of, machines_of
from alray.planning.prediction.setting import StepSetting
from alray.planning.prediction.stage_devices import AS_HERE
from alray.planning.schedules.table import SCHEDULES
from alray.runtime.options import Options
from alray.runtime.planner.fitting import FREE, in_place, require_stages_alike, values_given
from alray.runtime.planner.micro_batches import cut_into
from alray.runtime.planner.normalisation import require_samples_to_normalise, require_whole_norms
from alray.runtime.planner.opening import Teller, open_planner

if TYPE_CHECKING:
    from alray.config.sections.spec import Spec
    from alray.runtime.planner.planning import Planner

HOST = "host"
"""The name of no link: all devices are on one host."""
LINKS = (HOST, "10 Gbit/s, 50 us", "1 Gbit/s, 200 us", "100 Mbit/s, 20 ms")
"""The links where neither links nor machines are given: one host, two local networks, and a line between offices."""
USUAL_DEVICES = (1, 2, 4, 8, 16)
"""The numbers of devices where none are asked for; with machines those below what they have, and that."""
_CHECKPOINTING = "pipeline.activation_checkpointing"
_ALONE = {
    **FREE,
    "pipeline.links": [],
    "replicas.count": 1,
    "replicas.shares": None,
    _CHECKPOINTING: False,
}
"""What a crossover goes over, and its value while components are counted or measured."""
_MOST_MICRO_BATCHES = 4096
"""Each is simulated by itself."""


def crossover_spec(
    source: SpecSource,
    overrides: list[str],
    *,
    methods: Collection[str],
    devices: str | Iterable[int],
    micro_batches: Iterable[int],
    links: Collection[str],
    steps: Mapping[str, int],
    probe: bool,
    options: Options,
    teller: Teller,
) -> Crossover:
    """Predict every way to train the network of a spec, here or on its `machines`.

    Args:
        methods: to compare with that of the spec; (): backpropagation, or with that associated_learning.
        devices: (): `USUAL_DEVICES`.
        links: between any two devices, or with machines the card of each node; (): `LINKS`, or as the machines say.
        steps: to the target, by method or `method/schedule`, where they are known.
        probe: measure the components on this machine instead of estimating their costs.
    """
    composed = read_spec(source)
    for key in sorted(values_given(composed, overrides).keys() & _ALONE.keys()):
        raise RequestError("a crossover goes over this", key=key, hint="leave it out")
    require_stages_alike(composed, overrides)
    numbers = _numbers(devices, "--devices", MOST_DEVICES)
    parts = _numbers(micro_batches, "--micro-batches", _MOST_MICRO_BATCHES)
    opener = _Opener(source, tuple(overrides), tuple(dict.fromkeys(links)), probe=probe, options=options, teller=teller)
    spec = opener.loaded({}).spec
    own, named_links = spec.method.kind, opener.links_of(spec)
    if spec.pipeline.costs is not None:
        raise RequestError(
            "the spec gives the costs of one method, and a crossover compares several",
            key="pipeline.costs",
            hint="add pipeline.costs=null",
        )
    if (composed.value.get("pipeline") or {}).get(_CHECKPOINTING.removeprefix("pipeline.")):
        teller.note(
            f"{_CHECKPOINTING} of the file is set aside: forwards are computed again where the memory is too small"
        )
    compared = tuple(dict.fromkeys((own, *(methods or (REFERENCE if own != REFERENCE else DEFAULT,)))))
    known = _known_steps(steps, compared)
    counts = _devices(numbers, spec)
    opened = [opener.opened({} if each == own else {"method": each}, max(counts)) for each in compared]
    contenders = tuple(each.contender() for each in opened)
    axes = Axes(counts, parts, named_links)
    machines = None if spec.machines is None else spec.machines.described()
    basis = basis_of(contenders[0].alone, machines)
    asked = Crossover(spec.name, basis, axes, contenders, known, spec.data.batch_size)
    return map_crossover(asked, doing=teller.doing)


def _known_steps(steps: Mapping[str, int], methods: Collection[str]) -> dict[tuple[str, str | None], Steps]:
    """Mini-batches to the target, by method and schedule. Raises RequestError where they cannot count."""
    known: dict[tuple[str, str | None], Steps] = {}
    for way, number in steps.items():
        method, _, schedule = way.partition("/")
        if method not in methods or (schedule and schedule not in SCHEDULES):
            raise RequestError(
                f"steps are given for `{way}`, which is not compared",
                key="--steps",
                hint=f"compared are {', '.join(methods)}, in their schedules",
            )
        known[method, schedule or None] = Steps(number, "given")
    reference = reference_of(tuple(methods))
    if known and (reference, None) not in known:
        raise RequestError(
            f"steps count beside those of {reference}, which are not known",
            key="--steps",
            hint=f"give those of {reference} too",
        )
    return known


def _devices(asked: tuple[int, ...], spec: Spec) -> tuple[int, ...]:
    """The numbers of devices. Raises RequestError where the machines do not have so many."""
    if spec.machines is None:
        return asked or USUAL_DEVICES
    machines = spec.machines.described()
    most = len(machines.devices)
    if asked and asked[-1] > most:
        raise RequestError(
            f"{asked[-1]} devices are asked for, and {machines} are {most}",
            key="--devices",
            hint="ask for fewer, or name more machines",
        )
    return asked or (*(number for number in USUAL_DEVICES if number < most), most)


@dataclass(frozen=True)
class _Opener:
    """Opens the planners of a spec with other methods.

    Attributes:
        links: that were asked for.
    """

    source: SpecSource
    overrides: tuple[str, ...]
    links: tuple[str, ...]
    probe: bool
    options: Options
    teller: Teller

    def loaded(self, values: Mapping[str, object]) -> LoadedSpec:
        """The spec with these values, on one device unless they say more."""
        values = {**_ALONE, **values}
        return load_with_inputs(
            self.source,
            in_place(self.overrides, values, values),
            allow_elsewhere=self.options.allow_code,
            without_data=True,
            objects=self.options.objects,
        )

    def opened(self, values: Mapping[str, object], most_stages: int) -> _Opened:
        loaded = self.loaded(values)
        with loaded.locations.locating():
            planner = open_planner(loaded, self.options, self.teller, without_data=True, most_stages=most_stages)
        return _Opened(self, values, planner)

    def links_of(self, spec: Spec) -> tuple[str, ...]:
        """Their names. Raises RequestError where one is no link."""
        for text in self.links:
            if text != HOST:
                _link(text)
            elif spec.machines is not None:
                raise RequestError(
                    "the machines say which devices are on one host",
                    key="--link",
                    hint="give their network card, or leave it out",
                )
        if self.links:
            if spec.machines is not None:
                spec.machines.require_used("link")
            return self.links
        return LINKS if spec.machines is None else (spec.machines.link or "as published",)


class _Opened:
    """A method, with its planner."""

    def __init__(self, opener: _Opener, values: Mapping[str, object], planner: Planner) -> None:
        self._opener = opener
        self._values = values
        self._planner = planner
        self._spec = planner.workload.spec
        self._alone = cache(self._costs)
        self._over = cache(self._planner_over)
        self._shared = cache(self._averaged)
        self._laid_out = cache(self._spec_of)

    def contender(self) -> Contender:
        spec = self._spec
        share = spec.replicas.compression.share_sent(self._planner.workload.network.dtype.itemsize)
        return Contender(
            method=spec.method.kind,
            local_losses=spec.method.local_losses,
            alone=self._alone(1),
            setting=self.setting,
            averaged_share=(1.0 if share is None else share)
            / spec.replicas.average_interval(spec.optimizer.accumulate),
        )

    def setting(self, way: Way, link: str) -> StepSetting:
        """The setting of a way over a link. Raises RequestError where the spec cannot train like this."""
        spec, stages, replicas = self._spec, way.stages, way.replicas
        laid_out = self._laid_out(way.schedule, stages, replicas)
        require_samples_to_normalise(cut_into(laid_out, way.micro_batches), self._planner.workload)
        asked = spec.resources.memory_bytes or spec.resources.bundles(1)[0].get("memory")  # alike for all stages
        planner = self._over(link)
        setting = planner.setting(
            planner.workload.spec,
            self._alone(replicas),
            stages,
            replicas,
            schedule=way.schedule,
            micro_batches=way.micro_batches,
            virtual_stages=way.virtual_stages,
        )
        if spec.machines is not None:
            return setting
        found = AS_HERE
        if link != HOST:  # each device is a node by itself, with this card
            machines = machines_of([(Device("device", None), stages * replicas, 1, _link(link), None)])
            found = machines.stage_devices(stages, replicas, ring=setting.is_ring)
        return replace(
            setting,
            costs=self._shared(replicas, found.replica_link),
            links=found.links,
            cores=None,
            memory_limits=() if asked is None else (int(asked),) * stages,
        )

    def _costs(self, replicas: int) -> Costs:
        """Of one replica of so many, without averages."""
        spec = self._spec
        count = spec.replicas.model_copy(update={"count": replicas})
        planner = self._with(spec.model_copy(update={"replicas": count}))
        return planner.costs(probe=self._opener.probe, any_layout=True)

    def _with(self, spec: Spec) -> Planner:
        return replace(self._planner, workload=replace(self._planner.workload, spec=spec))

    def _planner_over(self, link: str) -> Planner:
        """The planner, for the machines of the spec with this card."""
        machines = self._spec.machines
        if machines is None or not self._opener.links:
            return self._planner
        return self._with(self._spec.model_copy(update={"machines": machines.model_copy(update={"link": link})}))

    def _averaged(self, replicas: int, link: Link | None) -> Costs:
        costs = self._alone(replicas)
        # A message over a network goes through the memory of both hosts too.
        here = Link(costs.edge_latency_s, costs.edge_s_per_byte, costs.edge_s_per_byte)
        return self._planner.averaged(costs, replicas, here if link is None else _slower(here, link))

    def _spec_of(self, schedule: str, stages: int, replicas: int) -> Spec:
        """The spec in a layout. Raises RequestError where it cannot train in it."""
        layout = {"pipeline.schedule": schedule, "pipeline.stages": stages, "replicas.count": replicas}
        spec = self._opener.loaded({**self._values, **layout}).spec
        require_whole_norms(spec, self._planner.workload.network)
        return spec


def _slower(one: Link, other: Link) -> Link:
    return Link(
        max(one.latency_s, other.latency_s),
        max(one.up_s_per_byte, other.up_s_per_byte),
        max(one.down_s_per_byte, other.down_s_per_byte),
    )


def _link(text: str) -> Link:
    try:
        return link_of(text)
    except PlanError as error:
        problem = error.problems[0]
        raise RequestError(problem.message, hint=problem.hint, key="--link") from error


def _numbers(given: str | Iterable[int], key: str, most: int) -> tuple[int, ...]:
    parts = [part.strip() for part in given.split(",")] if isinstance(given, str) else [str(each) for each in given]
    if not all(re.fullmatch(r"\d{1,9}", part) and 1 <= int(part) <= most for part in parts):
        text = given if isinstance(given, str) else ",".join(parts)
        raise RequestError(
            f"`{text}` is not a list of whole numbers from 1 to {most}", key=key, hint="write, for example, 1,2,4,8"
        )
    return tuple(sorted(set(map(int, parts))))
