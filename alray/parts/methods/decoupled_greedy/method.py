"""Decoupled greedy learning (DGL; Belilovsky, Eickenberg and Oyallon 2020): a classifier after every component."""

from __future__ import annotations

from functools import partial

from torch import nn

from alray.config.sections.head import HeadOrModel
from alray.models.component import LocalComponent, read
from alray.models.encoder import Encoder, EncoderFacts, Tensors
from alray.models.method import MakePart, Method, NetworkFacts
from alray.models.optimizers import Recipe
from alray.models.readout import head_of
from alray.models.task import LearningTask


class GreedyMethod(Method):
    """The fields are the keys of the section.

    Every component minimises the loss that the task has on the scores of its auxiliary classifier, in the paper the
    cross-entropy, and gradients stop between components (algorithm 1 of "Decoupled Greedy Learning of CNNs", ICML
    2020). Every depth is a route.

    Deviation: the authors' auxiliary networks have several layers with batch normalisation on maps averaged to 2 x 2
    (CNN-aux, MLP-aux, MLP-SR-aux), and the last component a perceptron of two. Here it is one linear layer on maps
    averaged to at most 4 x 4, the classifier that backpropagation has after its last encoder, so that methods differ in
    their losses only. Its cost was not measured. Their rate is SGD 0.1, momentum 0.9, weight decay 5e-4, divided by
    five every 15 epochs.

    Args:
        head: `{pool: 2, hidden: 512}` is a perceptron on averaged maps, as MLP-aux is, without its normalisation.
            `model`: a copy of the model's classifier.
    """

    def __init__(self, task: NetworkFacts, *, head: HeadOrModel, label_smoothing: float) -> None:
        super().__init__(task)
        self.head = head
        self.label_smoothing = label_smoothing

    def component(self, index: int, f: Encoder, facts: EncoderFacts, make: MakePart) -> GreedyComponent:
        head = make("head", partial(self._head, facts))
        return GreedyComponent(
            index,
            f=f,
            head=head,
            learning=self.task.learning,
            label_smoothing=self.label_smoothing,
            optimizer=self.task.optimizer,
        )

    def _head(self, facts: EncoderFacts) -> nn.Module:
        classes = self.task.classes
        if self.head == "model":
            assert self.task.classifier is not None, "the keys ask for a model"
            return self.task.classifier(facts.output, classes)
        return head_of(self.head, facts.output, classes=classes, pooling=facts.pooling)

    def ends_route(self, index: int) -> bool:
        """Every depth is a route."""
        return True


class GreedyComponent(LocalComponent):
    """Encoder f and auxiliary classifier `head`; the loss of head(f(s)) trains both. It is that of the task, in
    classification the cross-entropy."""

    def __init__(
        self,
        index: int,
        *,
        f: Encoder,
        head: nn.Module,
        learning: LearningTask,
        label_smoothing: float,
        optimizer: Recipe,
    ) -> None:
        """
        Args:
            label_smoothing: share of the target spread evenly over all classes, in [0, 1).
        """
        super().__init__(index, f)
        self.head = head
        self.losses_draw = getattr(head, "alray_draws", False)  # of a part of a model, such as its dropout
        self.learning = learning
        self.label_smoothing = label_smoothing
        self.train_with(optimizer, encoder=(f, head))

    @property
    def turn(self) -> nn.Module:
        return self.head

    def local_losses(self, encoded: Tensors, incoming: Tensors) -> tuple[Tensors, Tensors]:
        labels = incoming["labels"]
        scores = read(self.head, encoded)
        loss = self.learning.loss(scores, labels, self.label_smoothing)
        return {self.learning.loss_name: loss}, {"labels": labels}
