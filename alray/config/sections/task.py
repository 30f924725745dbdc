"""`task`: what the network learns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from alray.config.sections.kind import Kind, PartSection
from alray.config.sections.own_code import Name, OfPackage, OwnCode
from alray.core.metric import Metric
from alray.core.run_folder.metrics import METRICS

DEFAULT = "classification"
"""The task of a spec that names none."""
Label = Literal["class", "flags", "numbers", "tokens", "classes", "own", "any"]
"""What the label of a sample is: its class, a 0 or 1 for each of several labels, its targets, for each position the
next token or its class, what a class of the user makes it, or whatever a loss that a Python program gives takes."""
ClassWeights = Literal["balanced"] | tuple[float, ...] | dict[str, float]
"""Weights of classes: by how often they occur, in the order of the classes, or by their names."""
if TYPE_CHECKING:
    MetricName = str
else:
    MetricName = Literal[tuple(METRICS)]


class TaskSection(PartSection):
    """The keys that every task's section has."""

    label: ClassVar[Label]
    metric_name: ClassVar[str] = ""

    kind: str
    """Which task."""

    @property
    def measures(self) -> Metric:
        """The metric of evaluations."""
        return METRICS[getattr(self, "metric", self.metric_name)]

    @property
    def standardises(self) -> bool:
        """Whether the network learns standardised targets."""
        return False

    @property
    def weights_of_classes(self) -> ClassWeights | None:
        """The weights of the classes in the loss; None: all samples count alike."""
        return None

    @property
    def like(self) -> str:
        """The task of alray whose methods can learn it."""
        return self.kind


class OwnTask(OwnCode, TaskSection, extra="allow"):
    """A task of the user; the keys that are not listed here go to its constructor."""

    label = "own"

    kind: Annotated[Name, OfPackage("alray.tasks")]
    """The class, as `python:package.module.Class`, or the name that an installed package gives it. It derives from
    `alray.Task`."""
    metric: MetricName
    """Metric of evaluations, one of those in the class's `metrics`. `score` and `cost` are metrics that it defines: the
    highest score is the best, and the lowest cost."""

    @property
    def like(self) -> str:
        return "regression"  # its loss, too, is taken from the task


TASKS = Kind("tasks", TaskSection, OwnTask, default=DEFAULT)
"""All tasks."""
Task = Annotated[TaskSection, TASKS]
