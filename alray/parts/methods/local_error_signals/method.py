"""Local error signals (predsim; Nøkland and Eidnes, ICML 2019): a readout predicts classes, similarities match them."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from alray.config.sections.head import HeadOrAuto
from alray.models.component import ComparingComponent, read
from alray.models.encoder import Encoder, EncoderFacts, Tensors
from alray.models.method import MakePart, Method, NetworkFacts
from alray.models.optimizers import Recipe
from alray.models.readout import Features, head_of
from alray.models.similarities import similarities, similarities_of_classes
from alray.models.task import LearningTask


class LocalErrorMethod(Method):
    """The fields are the keys of the section. Every depth is a route.

        h_l     = f_l(stop(h_{l-1}))
        L_pred  = CE(W_l avgpool(h_l), y)                      readout W_l, the part `head`
        L_sim   = || S(C_l(h_l)) - S(onehot(y)) ||^2 / N^2     C_l, the part `c`: a 3 x 3 convolution of maps, else a
                                                               linear layer; neither has a bias
        predsim = (1 - beta) L_pred + beta L_sim               trains f_l, W_l and C_l

    S(x) [N, N] has the correlations of the rows of x (`similarities`). C_l(h_l) of more than 3 maps is first reduced to
    the standard deviation of each map.

    `pred` is L_pred alone, `sim` L_sim alone; with `sim`, L_pred trains the readout W_l and nothing below it, as the
    output layer of the paper is trained.

    Pitfalls: without the reduction to standard deviations, S costs N^2 C H W. Dropout at the end of a component also
    acts on the losses here, and only on what is passed on in the paper. A loss that compares samples depends on the
    share of a replica: `gather` compares all. With many cuts the error rises.

    Deviation: the authors' code begins with readouts of zero and averages maps only until 4,096 values or fewer are
    left; it has an output layer after the last hidden layer's readout, and a loss after every convolution. Here
    readouts begin as classifiers of other methods do and read at most 4 x 4 positions (`head`), the last component's
    readout is the output layer, and a component has one loss. With readouts of zero `specs/laptop/predsim_digits.yaml`
    is as accurate: 93.3 and 93.4 % after 12 epochs, three paired seeds. The others were not measured. Dropout and leaky
    ReLU of their networks are a matter of the encoders. Their rate, Adam at 5e-4, is that of the committed spec; they
    divide it by four four times.

    Published test error in percent (pred, sim, predsim; backpropagation): MLP of 3 x 1,024 on MNIST 0.68, 0.80, 0.62;
    0.75, and by predsim on Fashion-MNIST 8.54 (8.37) and CIFAR-10 30.93 (33.56); VGG8b by predsim on Fashion-MNIST 4.65
    (4.53), CIFAR-10 5.58 (5.99) and CIFAR-100 24.07 (26.24). arXiv 1901.06656.
    """

    def __init__(self, task: NetworkFacts, *, loss: str, beta: float, head: HeadOrAuto, gather: bool) -> None:
        super().__init__(task)
        self.loss = loss
        self.beta = beta
        self.head = head
        self.gather = gather

    def component(self, index: int, f: Encoder, facts: EncoderFacts, make: MakePart) -> LocalErrorComponent:
        classes = self.task.classes
        return LocalErrorComponent(
            index,
            f=f,
            head=make("head", lambda: head_of(self.head, facts.output, classes=classes, pooling=facts.pooling)),
            c=None if self.loss == "pred" else make("c", lambda: Transformed(facts)),
            loss=self.loss,
            beta=self.beta,
            classes=classes,
            gathers=self.gather,
            learning=self.task.learning,
            optimizer=self.task.optimizer,
        )

    def ends_route(self, index: int) -> bool:
        """Every depth is a route."""
        return True

    def compares_samples(self) -> tuple[str, str] | None:
        if self.gather or self.loss == "pred":
            return None
        reason = "similarities are those of the samples of each replica's share of the mini-batch"
        return reason, "method.gather=true compares those of all replicas"


class Transformed(nn.Module):
    """`C_l(h_l)` as a row for each sample: `[N, *output of the encoder] -> [N, D]`."""

    def __init__(self, facts: EncoderFacts) -> None:
        super().__init__()
        self.features: Features | None = None
        self.layer: nn.Module
        self.moves_channels = facts.pooling == "channels_last"
        if len(facts.output) == 3:
            channels = facts.output[-1 if self.moves_channels else 0]
            self.layer = nn.Conv2d(channels, channels, kernel_size=3, padding=1, bias=False)
        else:
            self.features = Features(facts.output, None, facts.pooling)
            self.layer = nn.Linear(self.features.width, self.features.width, bias=False)

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """
        Args:
            mask: [N, T] bool, where `s` is a sequence [N, T, D] whose rows differ in length.
        """
        if self.features is not None:
            s = self.features(s, mask)
        elif self.moves_channels:
            s = s.movedim(3, 1)
        maps: torch.Tensor = self.layer(s)
        return maps.flatten(2).std(2) if maps.ndim == 4 and maps.shape[1] > 3 and maps.shape[2] > 1 else maps.flatten(1)


class LocalErrorComponent(ComparingComponent):
    """Encoder f, readout `head` and, for similarities, the transformation c."""

    def __init__(
        self,
        index: int,
        *,
        f: Encoder,
        head: nn.Module,
        c: nn.Module | None,
        loss: str,
        beta: float,
        classes: int,
        gathers: bool,
        learning: LearningTask,
        optimizer: Recipe,
    ) -> None:
        """
        Args:
            loss: "predsim", "pred" or "sim".
            c: None for "pred".
            beta: share of the similarities in "predsim".
        """
        super().__init__(index, f, gathers=gathers and c is not None)
        self.head = head
        self.c = c
        self.loss = loss
        self.beta = beta
        self.classes = classes
        self.learning = learning
        if loss == "sim":
            self.apart = ("head",)
        self.train_with(optimizer, encoder=(f, head) if c is None else (f, head, c))

    @property
    def turn(self) -> nn.Module:
        return self.head

    def codes(self, encoded: Tensors) -> torch.Tensor:
        assert self.c is not None, "`pred` compares nothing"
        return read(self.c, encoded)

    def local_losses(self, encoded: Tensors, incoming: Tensors) -> tuple[Tensors, Tensors]:
        labels = incoming["labels"]
        seen = encoded if self.loss != "sim" else {**encoded, "s": encoded["s"].detach()}
        pred = self.learning.loss(read(self.head, seen), labels)
        losses = {"pred": pred}
        if self.c is not None:
            codes, classes = self.compared(self.own_codes(encoded), labels)
            sim = functional.mse_loss(similarities(codes), similarities_of_classes(classes, self.classes, codes.dtype))
            both = {"predsim": (1 - self.beta) * pred + self.beta * sim}
            losses = both if self.loss == "predsim" else {"sim": sim, "cross_entropy": pred}
        return losses, {"labels": labels}
