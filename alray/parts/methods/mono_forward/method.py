"""Mono-Forward (arXiv 2501.09238, 2025): a projection to the classes after every component, and their sum predicts."""

from __future__ import annotations

from torch import nn

from alray.models.component import LocalComponent, read
from alray.models.encoder import Encoder, EncoderFacts, Tensors
from alray.models.method import MakePart, Method, NetworkFacts
from alray.models.optimizers import Recipe
from alray.models.readout import Features, Readout
from alray.models.shape import Shape
from alray.models.task import LearningTask


class MonoForwardMethod(Method):
    """The fields are the keys of the section. Every depth is a route.

        a_l = f_l(a_{l-1})         activations
        G_l = a_l M_l^T            goodness of each class; M_l is a matrix of weights, without a bias
        L_l = CE(G_l, y)           cross-entropy with the class number; it trains f_l and M_l
        pass on stop(a_l)
        prediction                 argmax of G_1 + ... + G_l, or of G_l alone (`prediction`)

    The loss is that of decoupled greedy learning with a linear classifier. A sum over depths is also taken of a route
    below the full depth, over the components that it uses.

    Pitfalls: scores of different depths are added as they are, so a component with large scores decides for the others.

    Deviation: the paper multiplies all values of a feature map, which makes M_l large; here maps are averaged to at
    most 4 x 4 first. Its cost was not measured. M_l begins as a linear layer of
    PyTorch does. No code of the authors was found to compare with.

    Published test accuracy in percent: MLP on Fashion-MNIST 90.5 and CIFAR-10 58.3; CNN on Fashion-MNIST 93.98 and
    CIFAR-100 63.28.
    """

    def __init__(self, task: NetworkFacts, *, prediction: str) -> None:
        super().__init__(task)
        self.adds_up = prediction == "sum"

    def component(self, index: int, f: Encoder, facts: EncoderFacts, make: MakePart) -> MonoForwardComponent:
        classes = self.task.classes

        def projection() -> Readout:
            features = Features(facts.output, 4, facts.pooling)
            return Readout(features, nn.Linear(features.width, classes, bias=False))

        return MonoForwardComponent(
            index,
            f=f,
            m=make("m", projection),
            adds_up=self.adds_up,
            learning=self.task.learning,
            optimizer=self.task.optimizer,
        )

    def ends_route(self, index: int) -> bool:
        """Every depth is a route."""
        return True

    def infers_along(self) -> dict[str, Shape]:
        return {"score": self.route(0)} if self.adds_up else {}


class MonoForwardComponent(LocalComponent):
    """Encoder f and projection m; the cross-entropy of m(f(s)) trains both."""

    def __init__(
        self, index: int, *, f: Encoder, m: nn.Module, adds_up: bool, learning: LearningTask, optimizer: Recipe
    ) -> None:
        super().__init__(index, f)
        self.learning = learning
        self.m = m
        self.adds_up = adds_up
        self.train_with(optimizer, encoder=(f, m))

    @property
    def turn(self) -> nn.Module:
        return self.m

    def local_losses(self, encoded: Tensors, incoming: Tensors) -> tuple[Tensors, Tensors]:
        labels = incoming["labels"]
        return {self.learning.loss_name: self.learning.loss(read(self.m, encoded), labels)}, {"labels": labels}
