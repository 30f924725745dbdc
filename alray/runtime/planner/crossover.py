"""The crossover of a spec: the costs of each method on each share of a mini-batch, and the setting of every way."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import cache, partial
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
    Layout,
    Steps,
    map_crossover,
    reference_of,
)
from alray.planning.prediction.machines import MOST_DEVICES, Device, Machines, link_of, machines_of
from alray.planning.prediction.setting import StepSetting
from alray.planning.prediction.stage_devices import AS_HERE
from alray.planning.schedules.table import SCHEDULES
from alray.runtime.options import Options
from alray.runtime.planner.fitting import FREE, in_place, require_stages_alike, values_given
from alray.runtime.planner.micro_batches import with_pipeline
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

    def loaded(method: Mapping[str, object], layout: Mapping[str, object]) -> LoadedSpec:
        """The spec with this method, on one device unless a layout says more."""
        values = {**_ALONE, **method, **layout}
        return load_with_inputs(
            source,
            in_place(overrides, values, values),
            allow_elsewhere=options.allow_code,
            without_data=True,
            objects=options.objects,
        )

    spec = loaded({}, {}).spec
    own = spec.method.kind
    named_links = _links_of(links, spec)
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
    machines = None if spec.machines is None else spec.machines.described()
    counts = _devices(numbers, machines)
    loads = [partial(loaded, {} if each == own else {"method": each}) for each in compared]
    planners = []
    for load in loads:
        alone = load({})
        with alone.locations.locating():
            planners.append(open_planner(alone, options, teller, without_data=True, most_stages=max(counts)))
    contenders = tuple(
        _contender(*each, over_links=bool(links), probe=probe) for each in zip(planners, loads, strict=True)
    )
    axes = Axes(counts, parts, named_links)
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


def _devices(asked: tuple[int, ...], machines: Machines | None) -> tuple[int, ...]:
    """The numbers of devices. Raises RequestError where the machines do not have so many."""
    if machines is None:
        return asked or USUAL_DEVICES
    most = len(machines.devices)
    if asked and asked[-1] > most:
        raise RequestError(
            f"{asked[-1]} devices are asked for, and {machines} are {most}",
            key="--devices",
            hint="ask for fewer, or name more machines",
        )
    return asked or (*(number for number in USUAL_DEVICES if number < most), most)


def _links_of(links: Collection[str], spec: Spec) -> tuple[str, ...]:
    """The names of the links. Raises RequestError where one is no link.

    Args:
        links: that were asked for.
    """
    for text in links:
        if text != HOST:
            _link(text)
        elif spec.machines is not None:
            raise RequestError(
                "the machines say which devices are on one host",
                key="--link",
                hint="give their network card, or leave it out",
            )
    if links:
        if spec.machines is not None:
            spec.machines.require_used("link")
        return tuple(dict.fromkeys(links))
    return LINKS if spec.machines is None else (spec.machines.link or "as published",)


def _contender(
    planner: Planner, loaded: Callable[[Mapping[str, object]], LoadedSpec], *, over_links: bool, probe: bool
) -> Contender:
    """The method of a planner.

    Args:
        loaded: the spec of the planner, in a layout.
        over_links: whether links were asked for.
    """
    spec = planner.spec
    network = planner.workload.network

    def planning(own: Spec) -> Planner:
        return replace(planner, workload=replace(planner.workload, spec=own))

    @cache
    def alone(replicas: int) -> Costs:
        """Of one replica of so many, without averages."""
        count = spec.replicas.model_copy(update={"count": replicas})
        return planning(spec.model_copy(update={"replicas": count})).costs(probe=probe, any_layout=True)

    @cache
    def over(link: str) -> Planner:
        """The planner, for the machines of the spec with this card."""
        if spec.machines is None or not over_links:
            return planner
        return planning(spec.model_copy(update={"machines": spec.machines.model_copy(update={"link": link})}))

    @cache
    def averaged(replicas: int, link: Link | None) -> Costs:
        costs = alone(replicas)
        # A message over a network goes through the memory of both hosts too.
        here = Link(costs.edge_latency_s, costs.edge_s_per_byte, costs.edge_s_per_byte)
        if link is not None:
            here = Link(
                max(here.latency_s, link.latency_s),
                max(here.up_s_per_byte, link.up_s_per_byte),
                max(here.down_s_per_byte, link.down_s_per_byte),
            )
        return planner.averaged(costs, replicas, here)

    @cache
    def laid_out(schedule: str, stages: int, replicas: int) -> Spec:
        layout = {"pipeline.schedule": schedule, "pipeline.stages": stages, "replicas.count": replicas}
        found = loaded(layout).spec
        require_whole_norms(found, network)
        return found

    def setting(layout: Layout, link: str) -> StepSetting:
        _, stages, replicas, micro_batches = layout
        own = with_pipeline(laid_out(*layout[:3]), micro_batches=micro_batches)
        require_samples_to_normalise(own, planner.workload)
        asked = spec.resources.memory_bytes or spec.resources.bundles(1)[0].get("memory")  # alike for all stages
        placed = over(link).setting(own, alone(replicas), stages, replicas)
        if spec.machines is not None:
            return placed
        found = AS_HERE
        if link != HOST:  # each device is a node by itself, with this card
            machines = machines_of([(Device("device", None), stages * replicas, 1, _link(link), None)])
            found = machines.stage_devices(stages, replicas, ring=placed.is_ring)
        return replace(
            placed,
            costs=averaged(replicas, found.replica_link),
            links=found.links,
            cores=None,
            memory_limits=() if asked is None else (int(asked),) * stages,
        )

    share = spec.replicas.compression.share_sent(network.dtype.itemsize)
    return Contender(
        method=spec.method.kind,
        local_losses=spec.method.local_losses,
        alone=alone(1),
        setting=setting,
        averaged_share=(1.0 if share is None else share) / spec.replicas.average_interval(spec.optimizer.accumulate),
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
