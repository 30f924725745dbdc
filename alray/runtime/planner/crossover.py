"""The crossover of a spec: the costs of each method on each share of a mini-batch, and the prediction of every way."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from pydantic import ValidationError

from alray.config.loading.inputs import load_with_inputs
from alray.config.loading.load import LoadedSpec, SpecSource
from alray.config.loading.overrides import override_text
from alray.config.sections.link import LinkSection
from alray.config.sections.method import DEFAULT
from alray.core.errors import RequestError
from alray.planning.prediction.costs import Costs, Link
from alray.planning.prediction.crossover import (
    REFERENCE,
    Axes,
    Contender,
    Crossover,
    Steps,
    StepsOf,
    Way,
    map_crossover,
)
from alray.planning.prediction.setting import StepSetting
from alray.planning.prediction.shares import even_shares
from alray.runtime.options import Options
from alray.runtime.planner.fitting import parse_devices
from alray.runtime.planner.memory import stage_memories
from alray.runtime.planner.normalisation import require_whole_norms
from alray.runtime.planner.opening import Teller, open_planner
from alray.runtime.planner.stage_devices import NO_LIMIT_BYTES

if TYPE_CHECKING:
    from alray.runtime.planner.planning import Planner

HOST = "host"
"""The name of no link: all devices are on one host."""
LINKS = (HOST, "10Gbit/s@50us", "1Gbit/s@200us", "100Mbit/s@20ms")
"""The links that are compared where none is given: one host, two kinds of local network, and a line between offices."""
MOST_DEVICES = 4096
_ALONE = {
    "pipeline.schedule": "auto",
    "pipeline.stages": 1,
    "pipeline.partition": "auto",
    "pipeline.micro_batches": None,
    "pipeline.virtual_stages": None,
    "pipeline.links": [],
    "replicas.count": 1,
    "replicas.shares": None,
}
"""What a crossover goes over, and its value while components are counted or measured."""


@dataclass(frozen=True)
class Asked:
    """What a crossover is asked to go over.

    Attributes:
        methods: to compare with that of the spec; (): backpropagation, or with that associated_learning.
        steps: to the target, where they are known.
    """

    axes: Axes
    links: Mapping[str, Link | None]
    methods: tuple[str, ...] = ()
    steps: StepsOf = field(default_factory=dict)

    @classmethod
    def of(
        cls, *, methods: str, devices: str, micro_batches: str, links: Sequence[str], memory: str, steps: Sequence[str]
    ) -> Asked:
        """As the command line takes them. Raises RequestError where one of them cannot be read."""
        named = {text: parse_link(text) for text in dict.fromkeys(links)}
        axes = Axes(
            _numbers(devices, "--devices"),
            _numbers(micro_batches, "--micro-batches"),
            tuple(named),
            (None, *(parse_devices(memory, key="--memory") if memory else ())),
        )
        return cls(axes, named, _parts(methods), dict(map(_known_steps, steps)))


def crossover_spec(
    source: SpecSource,
    overrides: Sequence[str],
    asked: Asked,
    *,
    probe: bool,
    allow_code: bool,
    teller: Teller,
) -> Crossover:
    """Predict every way to train the network of a spec.

    Args:
        probe: measure the components on this machine instead of estimating their costs.
    """
    for text in overrides:
        if (key := text.partition("=")[0].strip()) in _ALONE:
            raise RequestError("a crossover goes over this", key=key, hint="leave it out")
    opener = _Opener(source, tuple(overrides), asked.links, probe=probe, allow_code=allow_code, teller=teller)
    spec = opener.loaded({}).spec
    own, usual = spec.method.kind, spec.data.batch_size
    if spec.pipeline.costs is not None:
        raise RequestError(
            "the spec gives the costs of one method, and a crossover compares several",
            key="pipeline.costs",
            hint="add pipeline.costs=null",
        )
    methods = asked.methods or (REFERENCE if own != REFERENCE else DEFAULT,)
    contenders = [
        opener.contender({} if method == own else {"method": method}, size)
        for method in dict.fromkeys((own, *methods))
        for size in dict.fromkeys((usual, *(size for name, _, size in asked.steps if name == method and size is not None)))
    ]
    return map_crossover(contenders, asked.axes, steps=asked.steps, batch_size=usual, doing=teller.doing)


@dataclass(frozen=True)
class _Opener:
    """Opens the planners of a spec with other methods and shares of the mini-batch."""

    source: SpecSource
    overrides: tuple[str, ...]
    links: Mapping[str, Link | None]
    probe: bool
    allow_code: bool
    teller: Teller

    def loaded(self, values: dict[str, object]) -> LoadedSpec:
        """The spec with these values, on one device unless they say more."""
        texts = [override_text(key, value) for key, value in {**_ALONE, **values}.items()]
        return load_with_inputs(
            self.source, [*self.overrides, *texts], allow_elsewhere=self.allow_code, without_data=True
        )

    def planner(self, values: dict[str, object]) -> Planner:
        loaded = self.loaded(values)
        with loaded.locations.locating():
            return open_planner(loaded, Options(allow_code=self.allow_code), self.teller, without_data=True)

    def contender(self, values: dict[str, object], batch_size: int) -> Contender:
        """A method on mini-batches of this size.

        Args:
            values: name the method.
        """

        planner = self.planner({**values, "data.batch_size": batch_size})

        @cache
        def alone(samples: int) -> Costs:
            if not self.probe:
                return planner.estimated(samples)
            return self.planner({**values, "data.batch_size": samples}).costs(probe=True)

        @cache
        def costs(replicas: int, link: Link | None) -> Costs:
            own = alone(even_shares(replicas, batch_size)[0])
            here = Link(own.edge_latency_s, own.edge_s_per_byte, own.edge_s_per_byte)
            slower = here if link is None else _slower(here, link)
            return planner.averaged(own, replicas, slower)

        @cache
        def require(schedule: str, stages: int, replicas: int) -> None:
            layout = {
                "pipeline.schedule": schedule,
                "pipeline.stages": stages,
                "replicas.count": replicas,
                "data.batch_size": batch_size,
            }
            require_whole_norms(self.loaded({**values, **layout}).spec, planner.workload.network)

        spec = planner.workload.spec
        share = spec.replicas.compression.sent_share

        def setting(way: Way, link: str) -> StepSetting:
            require(way.schedule, way.stages, way.replicas)
            line = self.links[link]
            return StepSetting(
                schedule=way.schedule,
                costs=costs(way.replicas, line),
                stages=way.stages,
                in_flight=spec.pipeline.in_flight,
                micro_batches=way.micro_batches,
                virtual_stages=way.virtual_stages,
                memories=stage_memories(spec, way.stages, way.replicas),
                replicas=way.replicas,
                links=() if line is None or way.stages == 1 else (line,) * way.stages,
            )

        return Contender(
            method=spec.method.kind,
            local_losses=spec.method.local_losses,
            batch_size=batch_size,
            alone=alone(batch_size),
            setting=setting,
            averaged_share=(1.0 if share is None else share)
            / spec.replicas.average_interval(spec.optimizer.accumulate),
        )


def _slower(one: Link, other: Link) -> Link:
    """A link that is as slow as the slower one: a message over a network goes through the memory of both hosts too."""
    return Link(
        max(one.latency_s, other.latency_s),
        max(one.up_s_per_byte, other.up_s_per_byte),
        max(one.down_s_per_byte, other.down_s_per_byte),
    )


def _parts(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part for part in map(str.strip, text.split(",")) if part))


def _numbers(text: str, key: str) -> tuple[int, ...]:
    parts = _parts(text)
    if not parts or not all(part.isdecimal() and 1 <= int(part) <= MOST_DEVICES for part in parts):
        raise RequestError(
            f"`{text}` is not a list of whole numbers from 1 to {MOST_DEVICES}", key=key, hint="write, for example, 1,2,4,8"
        )
    return tuple(sorted(map(int, parts)))


def parse_link(text: str) -> Link | None:
    """A link between any two devices, from a text such as `10Gbit/s@50us`; None for `host`. Raises RequestError."""
    if text == HOST:
        return None
    bandwidth, _, latency = text.partition("@")
    try:
        section = LinkSection.model_validate({"bandwidth": bandwidth.strip(), "latency": latency.strip() or "0 s"})
    except ValidationError as error:
        raise RequestError(
            f"`{text}` is not a link", key="--link", hint=f"write {HOST}, or a bandwidth and a latency: 10Gbit/s@50us"
        ) from error
    return Link(section.latency_s, section.s_per_byte, section.s_per_byte, NO_LIMIT_BYTES)


def _known_steps(text: str) -> tuple[tuple[str, str | None, int | None], Steps]:
    read = re.fullmatch(r"(\w+)(?:/(\w+))?(?:@(\d{1,9}))? *= *(\d{1,12})", text.strip())
    if read is None or read[4] == "0":
        raise RequestError(
            f"`{text}` is not a method and its mini-batches to the target",
            key="--steps",
            hint="write, for example, associated_learning=1200, backpropagation/2bw=1500 or backpropagation@256=400",
        )
    return (read[1], read[2], None if read[3] is None else int(read[3])), Steps(float(read[4]), "given")
