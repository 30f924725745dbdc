"""The whole spec as one typed value. Attributes are named exactly as the YAML keys."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from alray.config.sections.all_reduce import ALL_REDUCES
from alray.config.sections.blocks import BLOCKS
from alray.config.sections.compression import COMPRESSIONS
from alray.config.sections.data import SOURCES, Data
from alray.config.sections.kind import Kind
from alray.config.sections.lr_schedule import RATES, LrSchedule
from alray.config.sections.machines import MachinesSection
from alray.config.sections.method import METHODS, Method, OwnMethod
from alray.config.sections.model import Model
from alray.config.sections.optimizer import OPTIMIZERS, Optimizer
from alray.config.sections.pipeline import Pipeline
from alray.config.sections.replicas import Replicas
from alray.config.sections.resources import Resources
from alray.config.sections.run import RunSection
from alray.config.sections.section import Section, describe, refusal
from alray.config.sections.task import TASKS, Task
from alray.config.sections.trackers import TRACKERS
from alray.planning.schedules.table import SCHEDULES

KINDS: tuple[Kind[Any], ...] = (
    METHODS,
    BLOCKS,
    SOURCES,
    TASKS,
    OPTIMIZERS,
    RATES,
    ALL_REDUCES,
    COMPRESSIONS,
    TRACKERS,
)
"""A schedule has no keys: `alray.planning.schedules.table` has all of them."""

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"


def _folder_name(name: str) -> str:
    if re.fullmatch(NAME, name) is None:
        raise refusal(
            f"{describe(name)} cannot name a folder",
            "use up to 100 letters from a to z or A to Z, digits, `.`, `_` and `-`, a letter or digit first",
        )
    return name


FolderName = Annotated[str, AfterValidator(_folder_name), WithJsonSchema({"type": "string", "pattern": NAME})]
"""A name that a folder can have."""


class Spec(Section):
    """One training run of alray."""

    version: Literal[1] = 1
    """Version of the grammar."""
    name: FolderName
    """Name of the run: its folder is `runs/<name>-<time>`. Letters, digits, `.`, `_` and `-`."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """All random numbers are drawn from it."""
    data: Data
    """Where samples come from, and how they become mini-batches."""
    model: Model
    """The network."""
    task: Task = TASKS.default_section()
    """What is learned: classes, labels, numbers or the next token."""
    method: Method = METHODS.default_section()
    """How it is trained."""
    optimizer: Optimizer = OPTIMIZERS.default_section()
    """How weights are updated."""
    lr_schedule: LrSchedule = RATES.default_section()
    """How the learning rate changes."""
    pipeline: Pipeline = Pipeline()
    """Stages and schedule."""
    resources: Resources = Resources()
    """Devices and threads."""
    machines: MachinesSection | None = None
    """Devices elsewhere, which plans count with in place of this machine's. A run ignores them. null: none."""
    replicas: Replicas = Replicas()
    """Data parallelism."""
    run: RunSection
    """How long to train, checkpoints, evaluations."""

    @property
    def schedule(self) -> str:
        """The pipeline's schedule, with `auto` resolved, as `alray.planning.schedules.table.SCHEDULES` knows it: by its
        name, or by the text that stands for a file."""
        if self.pipeline.schedule != "auto":
            return self.pipeline.schedule
        return self.pipeline.resolved_schedule(local_losses=self.method.local_losses).name

    @property
    def schedule_name(self) -> str:
        """The name of the schedule as it is shown; of a file, its name."""
        return SCHEDULES[self.schedule].name

    @property
    def schedule_suits(self) -> bool:
        """Whether the schedule is for methods like this one. Where it is not, a check reports it."""
        return SCHEDULES[self.schedule].local_losses == self.method.local_losses

    @property
    def is_pipeline(self) -> bool:
        """Whether gradients travel between stages; false where the schedule does not suit the method."""
        return self.schedule_suits and SCHEDULES[self.schedule].is_pipeline

    @property
    def clips_together(self) -> bool:
        """Whether the gradients of the whole network are clipped together, not those of each component."""
        return self.optimizer.clip_norm is not None and not self.method.local_losses

    @property
    def micro_batches(self) -> int:
        """The pipeline's micro-batches per mini-batch, with null resolved."""
        samples = self.data.batch_size // self.replicas.count  # of a replica that has an equal share
        return self.pipeline.resolved_micro_batches(SCHEDULES[self.schedule], samples)

    @property
    def trains_unknown_code(self) -> bool:
        """Whether code that is not alray's computes gradients, which may leave parameters without one: that of a block,
        of an imported model or of the method."""
        return isinstance(self.method, OwnMethod) or self.model.is_own or self.model.source is not None

    @property
    def num_components(self) -> int | None:
        """The number of components: of `model.components`, or of groups of them; None where only the model tells."""
        blocks = self.model.num_components
        return None if blocks is None else -(-blocks // self.method.blocks_together)

    @property
    def virtual_stages(self) -> int:
        """The pipeline's virtual stages per stage, with null resolved."""
        return self.pipeline.resolved_virtual_stages(SCHEDULES[self.schedule], self.num_components)
