"""The interface of a training method: one object for each network answers every question about the method."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from alray.config.made import Load, class_of, making
from alray.config.sections.method import METHODS, MethodSection, OwnMethod
from alray.config.sections.section import listed
from alray.config.sections.task import DEFAULT, TaskSection
from alray.core.errors import SpecError
from alray.models.component import Component
from alray.models.encoder import Encoder, EncoderFacts
from alray.models.optimizers import Recipe
from alray.models.shape import Shape
from alray.models.task import LearningTask

MakePart = Callable[[str, Callable[[], nn.Module]], nn.Module]
"""`make(name, build)`: a part of a component, its initial weights drawn from (seed, component, name)."""


CopyOf = Callable[[int, int, EncoderFacts], tuple[EncoderFacts, Callable[[], nn.Module]]]
"""`copy(index, of, below)`: the description of encoder `of` for component `index`, after the encoder of the facts
`below`: the facts of such an encoder, and a function that builds it with new weights."""


@dataclass(frozen=True)
class NetworkFacts:
    """The facts that a method has about the network that it trains."""

    classes: int  # of labels or targets, in other tasks than classification
    num_components: int
    dtype: torch.dtype  # of everything that is computed
    optimizer: Recipe
    learning: LearningTask  # has the form of the labels, and the loss
    copy: CopyOf  # for methods whose components have encoders like those of others
    classifier: Callable[[Shape, int], nn.Module] | None = None  # builds that of the model, if it has one


class Method(ABC):
    """How a network is trained. A subclass builds the components and says what travels between them.

    Subclass this for your own method: `method: {kind: "python:my_method.Mine", width: 64}` calls
    `Mine(task, width=64)`. Its components are `LocalComponent`s; only `component` must be defined. Where labels do not
    travel unchanged from component to component, `labels_out` says what does; where routes end before the last
    component, `ends_route` says so.
    """

    local_losses: ClassVar[bool] = True
    """Whether every component learns from local losses, so that no gradient travels between components."""
    encoders_take_samples: ClassVar[bool] = False
    """Whether every encoder takes the samples themselves, not what the encoder below gives."""
    sends_rows: ClassVar[bool] = False
    """Whether `s`, as `goes_up` gives it, has several rows for a sample. Then nothing is compressed."""
    notes: Sequence[str] = ()
    """Sentences that the user should read before a run."""
    gives_shares: bool = False
    """Whether the scores of classes or labels are their shares, because they were fitted to 0 and 1 by a squared error.
    False: a prediction takes the softmax of the scores, or the sigmoid."""
    tasks: ClassVar[tuple[str, ...]] = (DEFAULT,)
    """Of your own method: the kinds of task that it can learn. One that takes its loss from `task.learning` can
    learn any."""
    weighs_classes: ClassVar[bool] = False
    """Of your own method: whether every loss that reads labels is `task.learning.loss`, with labels as they come, so
    that `task.class_weights` can weigh the classes."""

    def __init__(self, task: NetworkFacts) -> None:
        """A subclass also takes the further keys of the spec's section `method`, by name."""
        self.task = task

    @abstractmethod
    def component(self, index: int, f: Encoder, facts: EncoderFacts, make: MakePart) -> Component:
        """Component `index`, from 0, around its encoder f.

        Args:
            facts: shapes of f, and how a sequence that it gives is pooled.
            make: builds every further part.
        """

    def labels_in(self, index: int) -> dict[str, Shape]:
        """Return the label tensors that component `index` receives, by name: shapes of one sample. The first component
        receives the labels as the data gives them."""
        return self.given_labels if index == 0 else self.labels_out(index - 1)

    def labels_out(self, index: int) -> dict[str, Shape]:
        """Return the label tensors that component `index` sends with its encoder's output: shapes of one sample."""
        return self.given_labels

    @property
    def given_labels(self) -> dict[str, Shape]:
        """The labels of a mini-batch: `labels` [N] int64 in classification, [N, positions] int64 of tokens, else [N,
        outputs] of the type in which the network computes."""
        learning = self.task.learning
        dtype = self.task.dtype if learning.target_dtype.is_floating_point else learning.target_dtype
        return {"labels": Shape(learning.target_shape, dtype)}

    def goes_up(self, facts: EncoderFacts, *, training: bool = True) -> dict[str, Shape]:
        """Return what goes up from a component apart from labels, by name, `s` first: shapes of one sample. It is what
        the encoder gives, unless components have a `passage`.

        Args:
            facts: of its encoder.
            training: whether in training or in inference.
        """
        return facts.gives

    def infers_along(self) -> dict[str, Shape]:
        """Return what goes up with every encoder's output in inference alone: shapes of one sample, by name. `score`,
        where components add up what the turns of all depths give (`LocalComponent.adds_up`)."""
        return {}

    def require(self, encoders: Sequence[EncoderFacts]) -> None:
        """Raise SpecError if the method cannot train these encoders, which are those of all components in order."""
        return

    normalises_batches: bool = False
    """Whether parts that the method adds normalise by statistics over the samples of a mini-batch."""
    copy_every: int | None = None
    """Mini-batches from one copy of the last component's part to the next; None: no component has copies. With a number
    all components are `CopyingComponent`s. A copy is used as many mini-batches after it was made."""

    def copied(self, encoders: Sequence[EncoderFacts]) -> dict[str, Shape]:
        """Return the tensors of the last component of which all others have copies, by name: their shapes.

        Args:
            encoders: those of all components in order.
        """
        return {}

    def alike(self, index: int) -> str:
        """A text that is equal for components with equal encoders whose other parts differ in their weights only.

        Of your own method: where you leave it out, each component is measured by itself.
        """
        return ""

    def ends_route(self, index: int) -> bool:
        """Whether a route of inference ends at component `index`. One must end at the last component."""
        return self._is_last(index)

    def _is_last(self, index: int) -> bool:
        return index == self.task.num_components - 1

    def compares_samples(self) -> tuple[str, str] | None:
        """Why a replica's share of a mini-batch gives other losses than the whole one, and what helps against it; None
        where every loss is a mean over samples."""
        return None

    def route(self, above: int) -> Shape:
        """Return the shape of one sample that a route sends down from component `above` to those below it."""
        return Shape(self.task.learning.score_shape, self.task.dtype)


def make_method(section: MethodSection, task: NetworkFacts, load: Load, *, of_task: TaskSection) -> Method:
    """The method of a spec.

    Raises SpecError.

    Args:
        of_task: of the same spec.
        load: takes a reference to a class, as from `reference_to`, to that class.
    """
    kind: type[Method] = class_of(METHODS, section, Method, load, key="method.kind")
    if not isinstance(section, OwnMethod):
        return kind(task, **section.fields)
    if of_task.like not in kind.tasks:
        raise SpecError(
            f"method `{section.kind}` does not know the task {of_task.kind}, only {listed(kind.tasks, 'and')}",
            key="method.kind",
            hint=f"take the loss from `task.learning`, and add `{of_task.like}` to the class's `tasks`",
        )
    if of_task.weights_of_classes is not None and not kind.weighs_classes:
        raise SpecError(
            f"method `{section.kind}` does not say that its losses have weights of classes",
            key="task.class_weights",
            hint="leave it out, or take every loss from `task.learning`, and set the class's `weighs_classes` to True",
        )
    called = "it is called as Class(task, **fields) with the further keys of the section `method`"
    with making(f"method `{section.kind}`", called, key="method", kind=kind):
        own = kind(task, **section.fields)
    if not own.local_losses:
        raise SpecError(
            f"method `{section.kind}` has `local_losses = False`, which only alray's backpropagation may have",
            key="method.kind",
            hint="leave it at True, and give every component losses of its own",
        )
    return own
