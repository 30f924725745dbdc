"""`machines`: devices that are not here, and the links between them. Plans count with them; runs do not use them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, Discriminator, Field, Tag, ValidationError, WithJsonSchema, model_validator

from alray.config.sections.choice import ByShape
from alray.config.sections.section import PositiveInt, Section, quantity_of, refusal, refused
from alray.core.errors import PlanError, RequestError
from alray.core.quantities import BITS_PER_S, BYTES, OPERATIONS_PER_S, SECONDS, pattern, value_of
from alray.planning.prediction.machines import (
    Device,
    Machines,
    device_of,
    link_of,
    machines_of,
    parse_nodes,
)


def _link(text: str) -> str:
    try:
        link_of(text)
    except PlanError as error:
        raise refused(error) from error
    return text


@dataclass(frozen=True, eq=False)
class _Above0:
    """A text whose number is above 0, with one of these units."""

    units: dict[str, float]
    example: str

    def __call__(self, text: str) -> str:
        if not quantity_of(text, self.units):
            raise refusal(f"expected a number above 0 with a unit, got `{text}`", f"write, for example, {self.example}")
        return text

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": pattern(self.units), "examples": [self.example]}


_MEMORY = _Above0(BYTES, "24 GB")
_BANDWIDTH = _Above0({unit: size for unit, size in BITS_PER_S.items() if "B" in unit}, "900 GB/s")
_OPERATIONS = _Above0(OPERATIONS_PER_S, "30 TFLOP/s")
Memory = Annotated[str, AfterValidator(_MEMORY), WithJsonSchema(_MEMORY.schema)]
Bandwidth = Annotated[str, AfterValidator(_BANDWIDTH), WithJsonSchema(_BANDWIDTH.schema)]
Operations = Annotated[str, AfterValidator(_OPERATIONS), WithJsonSchema(_OPERATIONS.schema)]
_LINK = rf"{pattern(BITS_PER_S)[:-1]}(?:[ ,]+{pattern(SECONDS)[1:-1]})?$"
LinkText = Annotated[
    str,
    AfterValidator(_link),
    WithJsonSchema({"type": "string", "pattern": _LINK, "examples": ["25 GB/s", "100 Mbit/s, 20 ms"]}),
]


class NodesSection(Section):
    """Nodes that are alike."""

    device: str
    """Kind of its devices: a published one such as `A100`, one of `machines.devices`, `cpu`, or a size such as `24GB`
    for a device of which nothing but the memory is known."""
    count: PositiveInt = 1
    """Number of such nodes. Default: 1."""
    devices: PositiveInt = 1
    """Number of devices of each. Default: 1."""
    link: LinkText | None = None
    """Network card of each of these nodes. null: `machines.link`."""
    within: LinkText | None = None
    """Link between two devices of a node. null: `machines.within`."""


class DeviceSection(Section):
    """A kind of device: its memory, and its peaks as its maker publishes them, without sparsity."""

    memory: Memory
    """Size of its memory: `N GB` or `N GiB`."""
    bandwidth: Bandwidth
    """Speed of its memory: `N GB/s`."""
    float32: Operations
    """Operations in a second of matrix products in float32: `N TFLOP/s`."""
    tf32: Operations | None = None
    """The same in TF32. null: as in float32."""
    bf16: Operations | None = None
    """The same in bfloat16, for `run.precision: bf16`. null: it does not know bfloat16."""
    float64: Operations | None = None
    """The same in float64. null: not known."""
    link: Bandwidth | None = None
    """Bandwidth between two such devices of a node, in one direction. null: `machines.within` says it."""

    def described(self, name: str) -> Device:
        """The device of this description."""
        peaks = {key: value_of(text, OPERATIONS_PER_S) for key in _TYPES if (text := getattr(self, key)) is not None}
        return Device(
            name,
            int(value_of(self.memory, BYTES) or 0),
            {key: value for key, value in peaks.items() if value is not None},
            (value_of(self.bandwidth, BITS_PER_S) or 0.0) / 8,
            (value_of(self.link, BITS_PER_S) or 0.0) / 8 if self.link else 0.0,
            "machines.devices of the spec",
        )


_TYPES = ("float32", "tf32", "bf16", "float64")


class MachinesSection(Section):
    """Devices that are not here, for `alray plan`. A run ignores them, and says so."""

    nodes: Annotated[
        Annotated[str, Tag("text")]
        | Annotated[tuple[NodesSection, ...], Field(strict=False, min_length=1), Tag("list")],
        Discriminator(ByShape((list, tuple), "list", "text")),
    ]
    """The devices, in the order in which stages take them, replica by replica. A text: `8xA100` is a node of eight,
    `2x8xA100` are two such nodes, `8xA100,4xV100` a node of each. A list: groups of nodes that are alike."""
    link: LinkText | None = None
    """Network card of each node: a bandwidth and, after a comma, a latency, such as `25 GB/s` or
    `100 Mbit/s, 20 ms`. All that the devices of a node send to other nodes goes through it. With one node only: the
    link between its devices. Default: none, for one node."""
    within: LinkText | None = None
    """Link between two devices of a node, of which each has one. null: as is published of the devices, and of
    processors none."""
    line: LinkText | None = None
    """Line between nodes of two groups, such as two offices, besides their cards; nodes that are alike are two groups
    where they are named one by one, as in `4xA100,4xA100`. Default: none."""
    devices: dict[str, DeviceSection] = Field(default_factory=dict)
    """Further kinds of devices by name. Default: none."""

    @model_validator(mode="after")
    def _known(self) -> MachinesSection:
        try:
            self.described()
        except PlanError as error:
            raise refused(error) from error
        return self

    def require_used(self, key: str) -> None:
        """Raise RequestError if no value of `link` or of `within` changes anything, about the option of that name."""
        one, other = (self.model_copy(update={key: text}).described() for text in ("1 GB/s", "2 GB/s"))
        if one == other:
            raise RequestError(
                "it changes nothing: the machines are one device, or have other links that count before it",
                key=f"--{key}",
                hint="leave it out, or leave out `within` where there is one node, and the links of machines.nodes",
            )

    def described(self) -> Machines:
        """The machines of this description."""
        own = {name: section.described(name) for name, section in self.devices.items()}
        if isinstance(self.nodes, str):
            groups = [(*each, None, None) for each in parse_nodes(self.nodes, own)]
        else:
            groups = [
                (device_of(each.device, own), each.count, each.devices, _of(each.link), _of(each.within))
                for each in self.nodes
            ]
        return machines_of(groups, link=_of(self.link), within=_of(self.within), line=_of(self.line))


def machines_section(value: Any) -> MachinesSection | None:
    """The section that a spec says; None if it is no valid one, which whoever loads the spec tells with its place."""
    try:
        return MachinesSection.model_validate(value)
    except ValidationError:
        return None


def _of(text: str | None) -> Any:
    return None if text is None else link_of(text)
