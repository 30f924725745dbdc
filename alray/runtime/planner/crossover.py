"""The crossover of a spec: the costs of each method on each share of a mini-batch, and the prediction of every way."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING

from alray.config.loading.inputs import load_with_inputs
from alray.config.loading.load import LoadedSpec, SpecSource, read_spec
from alray.config.loading.overrides import override_text
from alray.config.sections.method import DEFAULT
from alray.core.errors import PlanError, RequestError
from alray.core.quantities import BYTES, value_of
from alray.planning.prediction.basis import basis_of
from alray.planning.prediction.costs import Costs, Link
from alray.planning.prediction.crossover import (
    OWN,
    REFERENCE,
    Axes,
    Contender,
    Crossover,
    Steps,
    StepsOf,
    Way,
    alone_bytes,
    map_crossover,
    reference_of,
)
from alray.planning.prediction.machines import MOST_DEVICES, Device, link_of, machines_of
from alray.planning.prediction.setting import StepSetting
from alray.planning.prediction.stage_devices import StageDevices
from alray.planning.schedules.table import SCHEDULES
from alray.runtime.options import Options
from alray.runtime.planner.fitting import values_given, with_stages_alike
from alray.runtime.planner.memory_limits import left_for_tensors, stage_memories, stage_memory_limits
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
    "pipeline.schedule": "auto",
    "pipeline.stages": 1,
    "pipeline.partition": "auto",
    "pipeline.micro_batches": None,
    "pipeline.virtual_stages": None,
    "pipeline.links": [],
    "replicas.count": 1,
    "replicas.shares": None,
    _CHECKPOINTING: False,
}
"""What a crossover goes over, and its value while components are counted or measured."""
_MOST_MICRO_BATCHES = 4096
"""Each is simulated by itself."""
_MOST_SAMPLES = 10**9 - 1


@dataclass(frozen=True)
class Asked:
    """What a crossover is asked to go over.

    Attributes:
        devices: (): `USUAL_DEVICES`.
        links: between any two devices, or with machines the card of each node; (): `LINKS`, or as the machines say.
        memory: bytes of each device, besides no limit or what is published of the machines; (): without machines a
            half, a quarter and an eighth of what one device needs.
        methods: to compare with that of the spec; (): backpropagation, or with that associated_learning.
        batch_sizes: besides that of the spec; the steps of `reference_of` with each must be known.
        steps: to the target, where they are known.
    """

    devices: tuple[int, ...]
    micro_batches: tuple[int, ...]
    links: tuple[str, ...] = ()
    memory: tuple[int, ...] = ()
    methods: tuple[str, ...] = ()
    batch_sizes: tuple[int, ...] = ()
    steps: StepsOf = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        *,
        methods: str = "",
        devices: str = "",
        micro_batches: str = "4,8,16,32",
        links: Sequence[str] = (),
        memory: str = "",
        batch_sizes: str = "",
        steps: Sequence[str] = (),
    ) -> Asked:
        """As the command line takes them.

        Raises RequestError where one of them cannot be read.
        """
        return cls(
            _numbers(devices, "--devices", MOST_DEVICES) if devices else (),
            _numbers(micro_batches, "--micro-batches", _MOST_MICRO_BATCHES),
            tuple(dict.fromkeys(links)),
            _sizes(memory) if memory else (),
            _parts(methods),
            _numbers(batch_sizes, "--batch-sizes", _MOST_SAMPLES) if batch_sizes else (),
            dict(map(_given_steps, steps)),
        )


def crossover_spec(
    source: SpecSource,
    overrides: Sequence[str],
    asked: Asked,
    *,
    probe: bool,
    options: Options,
    teller: Teller,
) -> Crossover:
    """Predict every way to train the network of a spec, here or on its `machines`.

    Args:
        probe: measure the components on this machine instead of estimating their costs.
    """
    composed = read_spec(source)
    for key in sorted(values_given(composed, overrides).keys() & _ALONE.keys()):
        raise RequestError("a crossover goes over this", key=key, hint="leave it out")
    overrides = with_stages_alike(composed, overrides)
    opener = _Opener(source, tuple(overrides), asked, probe=probe, options=options, teller=teller)
    spec = opener.loaded({}).spec
    own, usual, links = spec.method.kind, spec.data.batch_size, opener.links(spec)
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
    methods = tuple(dict.fromkeys((own, *(asked.methods or (REFERENCE if own != REFERENCE else DEFAULT,)))))
    for name, schedule, _ in asked.steps:
        if name not in methods or (schedule is not None and schedule not in SCHEDULES):
            raise RequestError(
                f"steps are given for `{name if schedule is None else f'{name}/{schedule}'}`, which is not compared",
                key="--steps",
                hint=f"compared are {', '.join(methods)}, in their schedules",
            )
    sizes = tuple(dict.fromkeys((usual, *asked.batch_sizes)))
    _require_reference(asked, reference_of(methods), sizes)
    numbers = opener.devices(spec)
    opened = [
        opener.opened({} if method == own else {"method": method}, size, max(numbers))
        for method in methods
        for size in sizes
    ]
    limit = opened[0].memory_limit(max(numbers))
    whole = opened[0].device_memory(max(numbers), asked.memory)
    contenders = tuple(each.contender() for each in opened)
    memory = tuple(least for least, each in whole.items() if each in asked.memory)
    if limit is None and not memory:
        memory = _parts_of(alone_bytes(contenders[0], links[0]))
    machines = None if spec.machines is None else spec.machines.described()
    unlike = machines is not None and len(set(machines.memory_limits(max(numbers), 1))) > 1
    axes = Axes(numbers, asked.micro_batches, links, tuple(dict.fromkeys((OWN if unlike else limit, *memory))))
    basis = basis_of(contenders[0].alone, machines)
    return map_crossover(Crossover(spec.name, basis, axes, contenders, asked.steps, usual), doing=teller.doing)


def _require_reference(asked: Asked, reference: str, sizes: Sequence[int]) -> None:
    """Raise RequestError where steps that are given cannot count, and where mini-batches of several sizes cannot be
    compared.

    Args:
        sizes: of the mini-batches that are compared, first that of the spec.
    """
    usual = sizes[0]
    for _, _, size in asked.steps:
        if size is not None and size not in sizes:
            raise RequestError(
                f"steps are given for mini-batches of {size}, which are not compared",
                key="--steps",
                hint=f"add --batch-sizes {size}",
            )
    known = {
        usual if size is None else size for name, schedule, size in asked.steps if (name, schedule) == (reference, None)
    }
    unknown = [size for size in sizes if size not in known]
    if not unknown:
        return
    if asked.batch_sizes:
        size = unknown[0]
        raise RequestError(
            f"ways with mini-batches of {size} cannot be compared: the mini-batches that {reference} takes to the "
            "target are not known",
            key="--batch-sizes",
            hint=f"add --steps {reference}@{size}=N, and those of other methods",
        )
    if asked.steps:
        raise RequestError(
            f"steps count beside those of {reference}, which are not known",
            key="--steps",
            hint=f"add --steps {reference}=N",
        )


def _sets_any(override: str, keys: Collection[str]) -> bool:
    """Whether an override sets one of these keys, or a key of the section that one of them is."""
    key = override.partition("=")[0].strip()
    return any(key == each or key.startswith(f"{each}.") for each in keys)


@dataclass(frozen=True)
class _Opener:
    """Opens the planners of a spec with other methods and mini-batches."""

    source: SpecSource
    overrides: tuple[str, ...]
    asked: Asked
    probe: bool
    options: Options
    teller: Teller

    def loaded(self, values: Mapping[str, object]) -> LoadedSpec:
        """The spec with these values, on one device unless they say more."""
        texts = [override_text(key, value) for key, value in {**_ALONE, **values}.items()]
        others = [text for text in self.overrides if not _sets_any(text, values)]
        return load_with_inputs(
            self.source,
            [*others, *texts],
            allow_elsewhere=self.options.allow_code,
            without_data=True,
            objects=self.options.objects,
        )

    def opened(self, values: Mapping[str, object], batch_size: int, most_stages: int) -> _Opened:
        values = {**values, "data.batch_size": batch_size}
        loaded = self.loaded(values)
        with loaded.locations.locating():
            planner = open_planner(loaded, self.options, self.teller, without_data=True, most_stages=most_stages)
        return _Opened(self, values, planner)

    def devices(self, spec: Spec) -> tuple[int, ...]:
        """The numbers of devices. Raises RequestError where the machines do not have so many."""
        asked = self.asked.devices
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

    def links(self, spec: Spec) -> tuple[str, ...]:
        """Their names. Raises RequestError where one is no link."""
        for text in self.asked.links:
            if text == HOST and spec.machines is not None:
                raise RequestError(
                    "the machines say which devices are on one host",
                    key="--link",
                    hint="give their network card, or leave it out",
                )
            if text != HOST:
                _link(text)
        if self.asked.links:
            if spec.machines is not None:
                spec.machines.require_used("link")
            return self.asked.links
        return LINKS if spec.machines is None else (spec.machines.link or "as published",)


class _Opened:
    """A method on mini-batches of one size, with its planner."""

    def __init__(self, opener: _Opener, values: Mapping[str, object], planner: Planner) -> None:
        self._opener = opener
        self._values = values
        self._planner = planner
        self._spec = planner.workload.spec
        self._alone = cache(self._costs)
        self._over = cache(self._planner_over)
        self._shared = cache(self._averaged)
        self._laid_out = cache(self._spec_of)

    def memory_limit(self, devices: int) -> int | None:
        """Bytes that a stage may hold: what the spec gives it, and no more than the smallest of the first devices of
        the machines has; None if nothing is known of one."""
        resources = self._spec.resources
        if self._spec.machines is None:
            asked = resources.memory_bytes or resources.bundles(1)[0].get("memory")  # alike for all stages
            return None if asked is None else int(asked)
        limits = stage_memory_limits(self._spec, devices, 1, self._planner.workload.device)
        return min(limits, default=None)

    def device_memory(self, devices: int, asked: Collection[int]) -> dict[int, int]:
        """The memory of the first devices of the machines, and of those that are asked for, by what a stage may hold of
        it. Raises RequestError where nothing is left of what is asked for."""
        if any(left_for_tensors(each, self._spec) == 1 for each in asked):
            raise RequestError(
                "1 GB of each device is left to libraries, and a device that is asked for has no more",
                key="--memory",
                hint="ask for more than 1GB, or plan for processors",
            )
        machines = self._spec.machines
        theirs = () if machines is None else machines.described().memory_limits(devices, 1)
        return {left_for_tensors(each, self._spec): each for each in (*theirs, *asked)}

    def contender(self) -> Contender:
        spec = self._spec
        share = spec.replicas.compression.share_sent(self._planner.workload.network.dtype.itemsize)
        return Contender(
            method=spec.method.kind,
            local_losses=spec.method.local_losses,
            batch_size=spec.data.batch_size,
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
        setting = StepSetting(
            schedule=way.schedule,
            costs=self._alone(replicas),
            stages=stages,
            in_flight=spec.pipeline.in_flight,
            micro_batches=way.micro_batches,
            virtual_stages=way.virtual_stages,
            memories=stage_memories(spec, stages, replicas),
            replicas=replicas,
            clips_together=spec.clips_together,
        )
        if spec.machines is not None:
            return self._over(link).placed(setting)
        found = StageDevices()
        if link != HOST:  # each device is a node by itself, with this card
            machines = machines_of([(Device("device", None), stages * replicas, 1, _link(link), None)])
            found = machines.stage_devices(stages, replicas, ring=setting.is_ring)
        return replace(setting, costs=self._shared(replicas, found.replica_link), links=found.links)

    def _costs(self, replicas: int) -> Costs:
        """Of one replica of so many, without averages."""
        spec = self._spec
        count = spec.replicas.model_copy(update={"count": replicas})
        planner = self._with(spec.model_copy(update={"replicas": count}))
        return planner.costs(probe=self._opener.probe, any_layout=True)

    def _with(self, spec: Spec) -> Planner:
        return replace(self._planner, workload=replace(self._planner.workload, spec=spec))

    def _planner_over(self, link: str) -> Planner:
        """The planner for the machines of the spec with this card."""
        machines = self._spec.machines
        assert machines is not None, "links are named for machines"
        if not self._opener.asked.links:
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


def _parts_of(nbytes: int) -> tuple[int, ...]:
    """A half, a quarter and an eighth, to two digits."""
    return tuple(int(float(f"{nbytes / part:.2g}")) for part in (2, 4, 8))


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


def _parts(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part for part in map(str.strip, text.split(",")) if part))


def _numbers(text: str, key: str, most: int) -> tuple[int, ...]:
    parts = _parts(text)
    if not parts or not all(re.fullmatch(r"\d{1,9}", part) and 1 <= int(part) <= most for part in parts):
        raise RequestError(
            f"`{text}` is not a list of whole numbers from 1 to {most}",
            key=key,
            hint="write, for example, 1,2,4,8",
        )
    return tuple(sorted(set(map(int, parts))))


def _sizes(text: str) -> tuple[int, ...]:
    try:
        found = [value_of(part, BYTES) for part in _parts(text)]
    except PlanError as error:
        problem = error.problems[0]
        raise RequestError(problem.message, hint=problem.hint, key="--memory") from error
    if not found or not all(found):
        raise RequestError(
            f"`{text}` is not a list of sizes of memory", key="--memory", hint="write, for example, 16GB or 16GB,80GB"
        )
    return tuple(int(each) for each in found if each)


def _given_steps(text: str) -> tuple[tuple[str, str | None, int | None], Steps]:
    read = re.fullmatch(r"([^\s/@=]+)(?:/(\w+))?(?:@(\d{1,9}))? *= *(\d{1,12})", text.strip())
    if read is None or read[4] == "0":
        raise RequestError(
            f"`{text}` is not a method and its mini-batches to the target",
            key="--steps",
            hint="write, for example, associated_learning=1200, backpropagation/2bw=1500 or backpropagation@256=400",
        )
    return (read[1], read[2], None if read[3] is None else int(read[3])), Steps(float(read[4]), "given")
