"""SOLO (arXiv 2609.35440, 2026): local losses of a language model through a copy of its last readout."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from alray.core.errors import SpecError
from alray.models.causal import CausalLayers
from alray.models.component import CopyingComponent, read
from alray.models.encoder import Encoder, EncoderFacts, Tensors
from alray.models.method import MakePart, Method, NetworkFacts
from alray.models.optimizers import Recipe
from alray.models.readout import Features, Readout, head_of
from alray.models.shape import Shape
from alray.models.task import LearningTask


class SoloMethod(Method):
    """The fields are the keys of the section. Every depth is a route.

        h_k = f_k(stop(h_{k-1}))                               k = 1, ..., K
        L_k = CE(tau_k W' phi_k(h_k), next tokens), k < K      trains f_k, phi_k and tau_k
        L_K = CE(W norm(h_K), next tokens)                     trains f_K, norm and W
        W' in mini-batches mS + 1, ..., (m + 1)S               W after mini-batch (m - 1)S; at first the initial W
        pass on stop(h_k)

    phi_k is two causal layers and an RMSNorm that component k alone has, tau_k a learned number, W' a copy that no loss
    trains. S is `copy_every`. The copy made after a mini-batch is used S mini-batches later at the earliest, so a stage
    does not wait for it where S is not smaller than the number of mini-batches that are between the stages.

    Pitfalls: the components need outputs of one width, since all read with the same W. phi_k costs as much as two
    layers of the network. W' is taken S to 2S mini-batches ago. The paper finds no gain where there are fewer classes
    than the width.

    Deviation: none is known, but the authors have published no code to compare with. Choices of this file that the
    equations leave open: phi_k's layers begin as those of the network do (`alray.models.causal`), tau_k at 1,
    their hidden layers are four widths wide and followed by GELU, their queries and keys are not turned, and W reads
    through a layer norm, whatever norm the network has.

    Published perplexity of 340M parameters: backpropagation 28.04, two components 29.05, four 31.19; of 40M parameters:
    backpropagation 67.08, SOLO 70.62, a readout for each component 75.34.
    """

    def __init__(self, task: NetworkFacts, *, copy_every: int, heads: int) -> None:
        super().__init__(task)
        self.copy_every = copy_every if task.num_components > 1 else None
        self.heads = heads

    def require(self, encoders: Sequence[EncoderFacts]) -> None:
        """Every component reads with the same W, so outputs have one width."""
        width = _width(encoders[-1])
        for index, facts in enumerate(encoders):
            if _width(facts) != width:
                raise SpecError(
                    f"`solo` reads every component with the readout of the last one, whose input has a width of "
                    f"{width}, and component {index} gives {_width(facts)}",
                    key=f"model.components[{index}]",
                    hint="give all components outputs of one width",
                )
        if width % self.heads:
            raise SpecError(
                f"`solo` divides a width of {width} among the heads of its layers, and {self.heads} is not a divisor",
                key="method.heads",
                hint="choose another number of heads",
            )

    def component(self, index: int, f: Encoder, facts: EncoderFacts, make: MakePart) -> SoloComponent:
        classes, last = self.task.classes, self._is_last(index)
        head = make(
            "head",
            lambda: (
                head_of("auto", facts.output, classes=classes, pooling=facts.pooling)
                if last
                else CopyReadout(self._phi(facts.output), width=_width(facts), classes=classes)
            ),
        )
        return SoloComponent(index, f=f, head=head, learning=self.task.learning, optimizer=self.task.optimizer)

    def _phi(self, output: Shape) -> nn.Sequential:
        context, width = output
        layers = CausalLayers(
            context,
            width,
            tokens=None,
            heads=self.heads,
            feedforward=4 * width,
            dropout=0.0,
            layers=2,
            norm="rms",
            positions="none",
        )
        return nn.Sequential(layers, nn.RMSNorm(width, eps=1e-5))

    def copied(self, encoders: Sequence[EncoderFacts]) -> dict[str, Shape]:
        return {"readout": Shape((self.task.classes, _width(encoders[-1])), self.task.dtype)}

    def ends_route(self, index: int) -> bool:
        """Every depth is a route."""
        return True


def _width(facts: EncoderFacts) -> int:
    """The width of each position of an encoder's output. Raises SpecError if it has no positions."""
    return Features(facts.output, None, facts.pooling).width


class CopyReadout(nn.Module):
    """`tau W' phi(s)`: `[N, T, D] -> [N, T, classes]`."""

    def __init__(self, phi: nn.Module, *, width: int, classes: int) -> None:
        super().__init__()
        self.phi = phi
        self.tau = nn.Parameter(torch.ones(()))
        self.copy: torch.Tensor
        self.register_buffer("copy", torch.zeros(classes, width))

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """
        Args:
            mask: is not used, padding is after the words.
        """
        result: torch.Tensor = self.tau * functional.linear(self.phi(s), self.copy)
        return result


class SoloComponent(CopyingComponent):
    """Encoder f and readout `head`: a `CopyReadout`, at the last component a layer norm and W."""

    def __init__(self, index: int, *, f: Encoder, head: nn.Module, learning: LearningTask, optimizer: Recipe) -> None:
        super().__init__(index, f)
        self.head = head
        self.learning = learning
        self.latest: torch.Tensor | None
        """The copy that `head` will read with next."""
        self.register_buffer("latest", torch.zeros_like(head.copy) if isinstance(head, CopyReadout) else None)
        self.train_with(optimizer, encoder=(f, head))

    @property
    def turn(self) -> nn.Module:
        return self.head

    def local_losses(self, encoded: Tensors, incoming: Tensors) -> tuple[Tensors, Tensors]:
        labels = incoming["labels"]
        return {self.learning.loss_name: self.learning.loss(read(self.head, encoded), labels)}, {"labels": labels}

    def original(self) -> Tensors:
        assert isinstance(self.head, Readout), "the last component has the readout itself"
        readout = self.head[-1]
        assert isinstance(readout, nn.Linear), "a readout ends with W"
        return {"readout": readout.weight.detach().clone()}

    def take_copy(self, copy: Tensors) -> None:
        if self.latest is not None:
            self.latest.copy_(copy["readout"])

    def renew_copy(self) -> None:
        if isinstance(self.head, CopyReadout):
            assert self.latest is not None, "a component with a copy in use has the one after it"
            self.head.copy.copy_(self.latest)
