"""`task: classification`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from alray.config.sections.choice import ByShape
from alray.config.sections.section import PositiveFloat
from alray.config.sections.task import ClassWeights, TaskSection

Weights = Annotated[
    Annotated[dict[str, PositiveFloat], Field(min_length=1), Tag("section")]
    | Annotated[
        Annotated[tuple[PositiveFloat, ...], Field(strict=False, min_length=1), Tag("list")]
        | Annotated[Literal["balanced"], Tag("word")],
        Discriminator(ByShape((list, tuple), "list", "word")),
        Tag("no section"),
    ],
    Discriminator(ByShape(dict, "section", "no section")),
]


class Classification(TaskSection):
    """Each sample has one of several classes. The loss is the cross-entropy."""

    implementation = "task:ClassificationTask"
    label = "class"
    metric_name = "accuracy"  # in run folders of versions that had no other

    kind: Literal["classification"] = "classification"
    """`classification`."""
    metric: Literal["accuracy", "balanced_accuracy", "macro_f1"] = "accuracy"
    """Metric of evaluations; its highest value is the best. `balanced_accuracy`: the mean over the classes of the share
    of their samples that is recognised. `macro_f1`: the mean over the classes of their F1, the harmonic mean of
    precision and recall. Default: accuracy."""
    class_weights: Weights | None = None
    """Weights of the classes in the loss, which is the mean over a mini-batch weighted by the class of each sample.
    `balanced`: samples / (classes x samples of the class), counted in the training split. A list: one weight for each
    class, in the order of their numbers. A section: weights by the names of classes; those that it does not name have
    1. null: all samples count alike."""

    @property
    def weights_of_classes(self) -> ClassWeights | None:
        return self.class_weights
