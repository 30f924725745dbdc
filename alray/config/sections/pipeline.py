"""`pipeline`: how components are divided among stages, and in which order the stages work."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Tag,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, core_schema

from alray.config.sections.choice import ByShape
from alray.config.sections.compression import Messages
from alray.config.sections.own_code import OfPackage
from alray.config.sections.section import (
    Counts,
    Input,
    InputFile,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Section,
    located,
    quantity_of,
    refusal,
)
from alray.core.errors import AlrayError, PlanError
from alray.core.packages import provided
from alray.core.quantities import BITS_PER_S, SECONDS, pattern, value_of
from alray.planning.schedules.listed import ENDING, LARGEST_BYTES, is_listed, schedule_of, text_of
from alray.planning.schedules.schedule import Schedule
from alray.planning.schedules.table import GROUP, SCHEDULES, default_schedule, of_package


def _bandwidth(text: str) -> str:
    if not quantity_of(text, BITS_PER_S):
        raise refusal(f"expected a bandwidth above zero, got `{text}`", "write, for example, 1 Gbit/s or 100 Mbit/s")
    return text


def _latency(text: str) -> str:
    if quantity_of(text, SECONDS) is None:
        raise refusal(f"expected a latency, got `{text}`", "write, for example, 20 ms")
    return text


Bandwidth = Annotated[
    str,
    AfterValidator(_bandwidth),
    WithJsonSchema({"type": "string", "pattern": pattern(BITS_PER_S), "examples": ["1 Gbit/s", "100 Mbit/s"]}),
]
Latency = Annotated[
    str,
    AfterValidator(_latency),
    WithJsonSchema({"type": "string", "pattern": pattern(SECONDS), "examples": ["20 ms"]}),
]


class LinkSection(Section):
    """A link between two stages, the same in both directions."""

    bandwidth: Bandwidth
    """What it takes in a second: `N bit/s`, `N kbit/s`, `N Mbit/s` or `N Gbit/s`, or bytes: `N MB/s`, `N GB/s`."""
    latency: Latency = "0 s"
    """Time that a message travels besides: `N s`, `N ms` or `N us`. Default: 0 s."""

    @property
    def s_per_byte(self) -> float:
        """Seconds that a byte takes the link."""
        return 8.0 / (value_of(self.bandwidth, BITS_PER_S) or 1.0)

    @property
    def latency_s(self) -> float:
        """The latency in seconds."""
        return value_of(self.latency, SECONDS) or 0.0


if TYPE_CHECKING:
    ScheduleName = str
else:
    ScheduleName = Literal[("auto", *SCHEDULES)]


@dataclass(frozen=True)
class _ByFile(ByShape):
    """The discriminator of a schedule: whether a file lists it, or it has a name."""

    def __call__(self, value: Any) -> str:
        return self.tag if is_listed(value) else self.otherwise


@dataclass(frozen=True)
class _OrOfPackage(OfPackage):
    """Marks the name of a schedule, which may be that of an installed package too."""

    def marks(self, value: Any) -> bool:
        return of_package(value)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        written = core_schema.plain_serializer_function_ser_schema(str)  # else pydantic warns of names of packages
        return core_schema.no_info_wrap_validator_function(self._named, handler(source), serialization=written)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        found = handler(schema)
        return {**found, "enum": [*found["enum"], *filter(of_package, provided(self.group))]}

    def _named(self, value: Any, among_own: ValidatorFunctionWrapHandler) -> Any:
        if not of_package(value):
            return among_own(value)
        try:
            SCHEDULES[value]
        except AlrayError as error:
            (problem,) = error.problems
            raise refusal(problem.message, problem.hint or "correct the package") from error
        return value


_FILE = WithJsonSchema({"type": "string", "pattern": r"\.csv$|\n"})


def _listed(value: str, info: ValidationInfo) -> str:
    """The text that stands for a file that lists a schedule. The spec holds what the file says, not where it lies: a
    run folder needs no other file."""
    text = value if "\n" in value else _read(located(value, info))
    try:
        schedule_of(text)
    except PlanError as error:
        (problem,) = error.problems
        raise refusal(problem.message, problem.hint or "correct the file") from error
    return text


def _read(file: Path) -> str:
    """Raises refusal where there is no such file, or none that can be read."""
    try:
        if not file.is_file():
            raise refusal(f"there is no file `{file}`", "a relative path is taken from the folder of the spec")
        if file.stat().st_size > LARGEST_BYTES:
            raise refusal(f"`{file}` has more than {LARGEST_BYTES:,} bytes", "list fewer micro-batches")
        return text_of(file.name, file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise refusal(f"`{file}` cannot be read: {error.strerror}", "give a readable file") from error
    except UnicodeDecodeError as error:
        raise refusal(f"`{file}` is not UTF-8 text", "give a file of actions as text") from error


class Cost(Section):
    """The costs of one component for one mini-batch, given instead of measured. A replica takes its share of the
    forward and backward pass."""

    forward_s: PositiveFloat
    """Seconds of the forward pass."""
    backward_s: NonNegativeFloat
    """Seconds of the local losses and their gradients."""
    update_s: NonNegativeFloat
    """Seconds of the optimizers' steps."""


def _stages(given: dict[str, Any]) -> int:
    """Return the number of stages where it is left out.

    Args:
        given: the keys of the section before it.
    """
    partition, schedule = given["partition"], given["schedule"]
    layout = None if schedule == "auto" else SCHEDULES[schedule].only_layout
    if layout is not None:
        return layout.stages
    if isinstance(partition, str):
        return 1
    default = 1 if schedule == "auto" else SCHEDULES[schedule].default_virtual_stages
    return max(1, len(partition) // (given["virtual_stages"] or default))


class Pipeline(Section):
    """Schedule, stages and partition."""

    schedule: Annotated[
        Annotated[ScheduleName, _OrOfPackage(GROUP), Tag("name")]
        | Annotated[str, BeforeValidator(_listed), _FILE, Tag("file")],
        Discriminator(_ByFile(str, "file", "name")),
        Input("file", ending=ENDING),
    ] = "auto"
    """Order of work. `auto`: `streamed` for local losses; for backpropagation `single` on one stage, `1f1b` on
    several. Installed packages may have further ones. The path of a .csv file: a pipeline of backpropagation that the
    file lists, a row for each stage with cells such as 0F0 (virtual stage, kind, micro-batch)."""
    partition: Annotated[
        Annotated[Counts, Tag("list")] | Annotated[Literal["auto", "uniform", "parameters", "cyclic"], Tag("name")],
        Discriminator(ByShape((list, tuple), "list", "name")),
    ] = "auto"
    """Components per stage. `auto`: the step is as short as possible. `uniform`: even numbers of components.
    `parameters`: even numbers of parameters. `cyclic`: components lie on the stages round-robin, each of them a virtual
    stage. A list: as given, `repeat` counted; with virtual stages, one entry per virtual stage."""
    virtual_stages: PositiveInt | None = None
    """Number of virtual stages on each stage. A virtual stage is a run of components that follow each other. With
    several, components lie on the stages round-robin (cyclic placement): stage s of S holds the virtual stages s,
    s + S, and so on. All schedules of local losses can have several, and of backpropagation interleaved_1f1b and
    zero_bubble. zb_v and dualpipe_v have two in the shape of a V: stage s holds s and 2S - 1 - s. null: 2 for
    interleaved_1f1b, zb_v and dualpipe_v; for a schedule that a file lists, as many as the file says; with
    `partition: cyclic`, one for each component of a stage; otherwise 1. On one stage, local losses then end with one
    virtual stage before they begin the next, and hold its activations alone."""
    stages: PositiveInt = Field(default_factory=_stages, json_schema_extra={"default": 1})
    """Number of device stages. Left out with a `partition` that is a list: the length of that list, over the
    virtual stages of each stage. Left out with a schedule that a file lists: the rows of the file."""
    in_flight: Annotated[int, Field(ge=1, le=1024)] = 4
    """Mini-batches that may wait on an edge between two stages. Pipelines of backpropagation ignore it: their room
    follows from their lists."""
    micro_batches: (
        Annotated[
            Annotated[PositiveInt, Tag("number")] | Annotated[Literal["auto"], Tag("name")],
            Discriminator(ByShape(int, "number", "name")),
        ]
        | None
    ) = None
    """Equal parts that a mini-batch is cut into, in the pipelines of backpropagation except naive. null: 2 per stage.
    If they do not divide the mini-batch: the next larger number that does, up to 4 per stage, or else the next smaller,
    down to one per stage; with fewer samples than stages, one for each sample where the schedule takes so few.
    `auto`: the fewest, one per stage or more, with which every stage keeps within its memory (see
    `resources.memory_bytes`); the number found is written to the run folder."""
    micro_batch_norm: Literal["refuse", "accept"] = "refuse"
    """Batch normalisation, and a user's code that computes samples from each other, with micro-batches, each of which
    is then normalised by itself. Default: refuse."""
    activation_checkpointing: bool = False
    """Whether the stages of a pipeline of backpropagation keep only the inputs of micro-batches that wait for their
    backward, and compute these forwards again, before the gradient arrives. It takes less memory and more time, and
    gives the same bits. On one stage it needs virtual stages, of which all but the last are then computed again.
    Default: false."""
    costs: (
        Annotated[
            Annotated[tuple[Cost, ...], Field(strict=False, min_length=1), Tag("list")]
            | Annotated[InputFile, Tag("file")],
            Discriminator(ByShape((list, tuple), "list", "file")),
        ]
        | None
    ) = None
    """Costs of the components, one entry each, or the path of a file that has them: one of `alray probe`, or a public
    chain, a YAML file with the times of another network's components. null: measured."""
    links: Annotated[tuple[LinkSection, ...], Field(strict=False)] = ()
    """Links between stages that are slower than this machine. One entry: every link. Several: from each stage to the
    next one, and again from the first entry if there are more links. Messages are delayed as over such links, so the
    stages must be on one machine and compute on processors. Plans count them too. `--inline` has no links. Default:
    none."""

    messages: Messages | None = None
    """Compression of what passes between components. null: messages are sent unchanged."""

    def link(self, lower: int) -> LinkSection | None:
        """The link between stage `lower` and the next one; None if messages are not delayed."""
        return self.links[lower % len(self.links)] if self.links else None

    def resolved_schedule(self, *, local_losses: bool) -> Schedule:
        """The schedule, with `auto` resolved for methods with or without local losses."""
        if self.schedule != "auto":
            return SCHEDULES[self.schedule]
        return default_schedule(local_losses=local_losses, stages=self.stages)

    def resolved_micro_batches(self, schedule: Schedule, samples: int) -> int:
        """Micro-batches of one mini-batch, with null resolved; 1 in schedules that do not cut mini-batches.

        `auto` depends on what components cost. Until that is known it stands for the fewest that are possible.

        Args:
            samples: of a mini-batch on one replica.
        """
        if self.micro_batches == "auto" and schedule.only_layout is None:
            return self.stages
        if self.micro_batches == "auto":
            return schedule.default_micro_batches(self.stages)
        return self.micro_batches or schedule.default_micro_batches(self.stages, samples)

    def resolved_virtual_stages(self, schedule: Schedule, components: int | None) -> int:
        """Virtual stages of each stage, with null resolved.

        Args:
            components: of the network; None: not known yet, which a cyclic partition may not be.
        """
        if self.virtual_stages is None and self.partition == "cyclic" and components is not None:
            return max(1, components // self.stages)
        return self.virtual_stages or schedule.default_virtual_stages
