"""`method`: how the network is trained."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar

from alray.config.sections.kind import Finding, Kind, PartSection
from alray.config.sections.own_code import Name, OfPackage, OwnCode
from alray.config.sections.paths import Path
from alray.config.sections.section import PositiveInt
from alray.config.sections.task import DEFAULT as DEFAULT_TASK
from alray.config.sections.task import TASKS

if TYPE_CHECKING:
    from alray.config.sections.spec import Spec

DEFAULT = "associated_learning"
"""The method of a spec that names none."""


class MethodSection(PartSection):
    """The keys that every method's section has."""

    local_losses: ClassVar[bool] = True
    """Whether every component learns from local losses, so that no gradient travels between components."""
    encoders_take_samples: ClassVar[bool] = False
    """Whether every encoder takes the samples themselves, not what the encoder below gives."""
    tasks: ClassVar[tuple[str, ...] | None] = (DEFAULT_TASK,)
    """The kinds of task that the method can learn; None: any."""
    takes_shares: ClassVar[bool] = False
    """Whether a label may be a share for each class instead of one class, as that of a mixed sample is."""
    weighs_classes: ClassVar[bool] = False
    """Whether every loss that reads labels is that of the task, which weights of classes can weigh."""

    takes_model_head: ClassVar[bool] = False
    """Whether the classifier of an imported model may be the head."""

    @property
    def uses_model_head(self) -> bool:
        """Whether it is."""
        return getattr(self, "head", None) == ("auto" if self.takes_model_head else "model")

    trains: ClassVar[str] = ""
    """The losses of a component, in words."""
    travels: ClassVar[str] = "s, labels"
    """The tensors that go from component to component in training."""
    every_depth: ClassVar[bool] = True
    """Whether a route of inference ends at every component; otherwise only at the last one."""
    source: ClassVar[str] = ""
    """The publication."""

    kind: str
    """Which method."""

    @property
    def blocks_together(self) -> int:
        """How many entries of `model.components` are one component."""
        return 1

    @classmethod
    def known_tasks(cls) -> tuple[str, ...]:
        """The kinds of alray's tasks that the method can learn."""
        return tuple(TASKS.sections) if cls.tasks is None else cls.tasks

    @classmethod
    def compares_samples(cls) -> bool:
        """Whether losses compare the samples of a mini-batch, so that replicas may gather them."""
        return issubclass(cls, ComparingSection)


class ComparingSection(MethodSection):
    """The keys of methods whose losses compare the samples of a mini-batch with each other."""

    gather: bool = False
    """Whether the losses compare the samples of all replicas, which then exchange what is compared in every mini-batch.
    false: each compares the samples of its own share."""


class GroupingSection(MethodSection):
    """The keys of methods that can learn by one loss for several components."""

    chosen_by: ClassVar[tuple[str, ...]] = ("kind", "group")

    group: PositiveInt = 1
    """Number of components, as `model.components` lists them, that learn together: by backpropagation within the group,
    from one loss at its end. No gradient travels between groups. A group is then one component: stages, partitions,
    costs and depths count groups; the last group takes what is left. Blocks only: an imported model is cut into fewer
    components. Default: 1."""

    @property
    def blocks_together(self) -> int:
        return self.group

    def faults(self, spec: Spec, at: Path) -> Iterator[Finding]:
        if self.group > 1 and spec.model.source is not None:
            yield (
                (*at, "group"),
                "an imported model can be cut into larger components itself",
                "leave it out, and give fewer model.components",
            )


class OwnMethod(OwnCode, MethodSection, extra="allow"):
    """A method of the user, with local losses; the keys that are not listed here go to its constructor."""

    tasks = None  # its class says which
    weighs_classes = True  # its class says whether
    encoders_take_samples = True  # a spec cannot tell

    kind: Annotated[Name, OfPackage("alray.methods")]
    """The class, as `python:package.module.Class`, or the name that an installed package gives it. It derives from
    `alray.Method`."""


METHODS = Kind("methods", MethodSection, OwnMethod, default=DEFAULT)
"""All methods."""
Method = Annotated[MethodSection, METHODS]
