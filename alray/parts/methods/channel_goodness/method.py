"""Channel-wise competitive learning (CwComp; Papachristodoulou et al., AAAI 2024): channels in groups, one a class."""

from __future__ import annotations

import torch
from torch import nn

from alray.core.errors import SpecError
from alray.models.component import LocalComponent, read
from alray.models.encoder import Encoder, EncoderFacts, Tensors
from alray.models.method import MakePart, Method
from alray.models.optimizers import Recipe
from alray.models.readout import Features
from alray.models.task import LearningTask


class ChannelGoodnessMethod(Method):
    """It has no fields. Every depth is a route.

        Y_l     = f_l(stop(Y_{l-1}))                   [N, C, H, W], the channels in J groups of C / J, one for a class
        G_l[j]  = mean of Y_l^2 over the group j       goodness of class j, [N, J]
        L_l     = -log(exp G_l[y] / sum_j exp G_l[j])  the channel-wise competitive loss; it trains f_l
        pass on stop(Y_l)
        prediction                                     argmax of G_l

    A component has no weights but those of f. Vectors are groups of values, and sequences are averaged over positions.

    Pitfalls: channels must be divisible by the classes. Goodness is at least 0 and the loss has no temperature, so
    features that are small everywhere learn slowly; batch normalisation in f keeps them large.

    Deviation: the authors' blocks are convolution, ReLU, pooling, batch normalisation, and alternate between
    convolutions of all channels and of each group; a `vgg` block is convolution, batch normalisation, ReLU, pooling,
    and convolves all channels. They train each layer in some of the epochs only, and a softmax classifier on the last
    one; neither is done here. Encoders are those that the spec lists, and layers that train in turns would leave the
    stages of a pipeline idle. The cost of these together is not known: their networks are not measured here. Their
    rate, Adam at 1e-2, is that of the committed spec.

    Published test error in percent: MNIST 0.58, Fashion-MNIST 7.69, CIFAR-10 21.89, CIFAR-100 48.77.
    """

    def component(self, index: int, f: Encoder, facts: EncoderFacts, make: MakePart) -> GoodnessComponent:
        classes = self.task.classes
        features = Features(facts.output, 1, facts.pooling)
        if features.width % classes:
            raise SpecError(
                f"component {index} gives {features.width} channels, which are not {classes} groups of one size",
                key=f.key,
                hint=f"`channel_goodness` has a group for each class: give it {features.width // classes + 1} x "
                f"{classes} channels",
            )
        return GoodnessComponent(
            index,
            f=f,
            goodness=ClassGoodness(features, classes),
            learning=self.task.learning,
            optimizer=self.task.optimizer,
        )

    def ends_route(self, index: int) -> bool:
        """Every depth is a route."""
        return True


class ClassGoodness(nn.Module):
    """`[N, *output of the encoder] -> [N, classes]`: the mean of the squares of each group of channels."""

    def __init__(self, features: Features, classes: int) -> None:
        """
        Args:
            features: averages maps to one value, and sequences over their positions.
        """
        super().__init__()
        self.features = features
        self.classes = classes

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """
        Args:
            mask: [N, T] bool, where `s` is a sequence [N, T, D] whose rows differ in length.
        """
        of_channels: torch.Tensor = self.features(s.square(), mask)
        goodness: torch.Tensor = of_channels.unflatten(1, (self.classes, -1)).mean(2)
        return goodness


class GoodnessComponent(LocalComponent):
    """Encoder f, trained by the cross-entropy of the goodness of its channels' groups."""

    def __init__(
        self, index: int, *, f: Encoder, goodness: ClassGoodness, learning: LearningTask, optimizer: Recipe
    ) -> None:
        super().__init__(index, f)
        self.learning = learning
        self.goodness = goodness
        self.train_with(optimizer, encoder=(f,))

    @property
    def turn(self) -> nn.Module:
        return self.goodness

    def local_losses(self, encoded: Tensors, incoming: Tensors) -> tuple[Tensors, Tensors]:
        labels = incoming["labels"]
        return {self.learning.loss_name: self.learning.loss(read(self.goodness, encoded), labels)}, {"labels": labels}
