"""`task`: what the network learns."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import ConfigDict, Discriminator, Tag

from alray.config.sections.choice import OPEN_TAG, Choice
from alray.config.sections.own_code import Name, OfPackage, OwnCode
from alray.config.sections.packages import TASKS as GROUP
from alray.config.sections.section import Section
from alray.core.run_folder.metrics import METRICS, Metric

DEFAULT = "classification"
"""The task of a spec that names none."""


class TaskSection(Section):
    """The keys that every task's section has."""

    implementation: ClassVar[str] = ""
    """The class in alray.models.tasks that carries it out, as `module:Class`."""
    metric_name: ClassVar[str] = ""

    kind: str
    """Which task."""

    @property
    def measures(self) -> Metric:
        """The metric of evaluations."""
        return METRICS[self.metric_name]

    @property
    def like(self) -> str:
        """The kind of alray's own whose methods can learn it."""
        return self.kind

    @property
    def fields(self) -> dict[str, Any]:
        """The arguments of the task's constructor, by name: every key but `kind`."""
        return {key: getattr(self, key) for key in type(self).model_fields if key != "kind"}


class Classification(TaskSection):
    """Each sample has one of several classes. The loss is the cross-entropy, the metric the accuracy."""

    implementation = "alray.models.tasks.classification:Classification"
    metric_name = "accuracy"

    kind: Literal["classification"] = "classification"
    """`classification`."""


class MultiLabel(TaskSection):
    """Each sample has any number of several labels. The loss is the binary cross-entropy of each label, the metric the
    mean of the labels' average precisions."""

    implementation = "alray.models.tasks.multi_label:MultiLabel"
    metric_name = "mean_average_precision"

    kind: Literal["multi_label"]
    """`multi_label`."""


class Regression(TaskSection):
    """Each sample has one or more numbers, its targets."""

    implementation = "alray.models.tasks.regression:Regression"

    kind: Literal["regression"]
    """`regression`."""
    loss: Literal["squared_error", "absolute_error"] = "squared_error"
    """Error that is minimised, the mean over samples and targets. Default: squared_error."""
    metric: Literal["r2", "mean_squared_error", "mean_absolute_error"] = "r2"
    """Metric of evaluations, in the units of the targets. The highest R² is the best, and the lowest error. Default:
    r2."""
    standardise: bool = True
    """Whether the network learns targets that are standardised, by the mean and the deviation that the source gives of
    each, if it does. Metrics and predictions stay in the targets' units. Default: true."""

    @property
    def measures(self) -> Metric:
        return METRICS[self.metric]


class NextToken(TaskSection):
    """Each position of a text has the next token as its label. The loss is the cross-entropy, in nats a token."""

    implementation = "alray.models.tasks.next_token:NextToken"

    kind: Literal["next_token"]
    """`next_token`."""
    metric: Literal["nats_per_token", "perplexity", "bits_per_byte", "top_1"] = "nats_per_token"
    """Metric of evaluations. `bits_per_byte` is for tokens that are bytes: the bits of all tokens, divided by the
    number of bytes; the end of a document is a token, but no byte. `top_1` is the share of tokens that have the highest
    score; its highest value is the best, and the lowest of the others. Default: nats_per_token."""

    @property
    def measures(self) -> Metric:
        return METRICS[self.metric]


class OwnTask(OwnCode, TaskSection):
    """A task of one's own; the keys that are not listed here go to its constructor."""

    model_config = ConfigDict(extra="allow")

    kind: Annotated[Name, OfPackage(GROUP)]
    """The class, as `python:package.module.Class`, or the name that an installed package gives it. It derives from
    `alray.models.tasks.task.LearningTask`."""
    metric: Literal[
        "accuracy",
        "mean_average_precision",
        "r2",
        "mean_squared_error",
        "mean_absolute_error",
        "nats_per_token",
        "perplexity",
        "bits_per_byte",
        "top_1",
        "score",
        "cost",
    ]
    """Metric of evaluations, one of those in the class's `metrics`. `score` and `cost` are of its own: the highest
    score is the best, and the lowest cost."""

    @property
    def measures(self) -> Metric:
        return METRICS[self.metric]

    @property
    def like(self) -> str:
        return "regression"  # its loss, too, is taken from the task


Task = Annotated[
    Annotated[Classification, Tag("classification")]
    | Annotated[MultiLabel, Tag("multi_label")]
    | Annotated[Regression, Tag("regression")]
    | Annotated[NextToken, Tag("next_token")]
    | Annotated[OwnTask, Tag(OPEN_TAG)],
    Discriminator(Choice("kind", default=DEFAULT, group=GROUP, own=lambda: TASKS)),
]

CLASSIFICATION = Classification()

TASKS: dict[str, type[TaskSection]] = {
    get_args(member)[1].tag: get_args(member)[0]
    for member in get_args(get_args(Task)[0])
    if get_args(member)[1].tag != OPEN_TAG
}
"""The sections of alray's own tasks by `kind`."""

LABELLED = tuple(kind for kind in TASKS if kind != "next_token")
"""The tasks whose labels are given with the samples. Of `next_token`, the samples themselves have them."""
