"""The trained network of a run as an ordinary torch module."""

from __future__ import annotations

import copy

import torch

from alray.data.form import TextForm
from alray.inference.network import TrainedNetwork
from alray.inference.route_header import RouteHeader, header_of
from alray.models.encoder import Tensors
from alray.models.route import Route
from alray.models.task import LearningTask
from alray.models.token_embedding import PADDING


class PlainNetwork(Route):
    """One route of a trained network: from samples to what `alray evaluate` measures.

    `network(samples)` gives `[N, classes]`, scores before the softmax or the sigmoid, or with AL's `first_label_loss:
    mse` shares of about 0 to 1; of a regression the targets `[N, targets]` in their units, float64; of a language model
    `[N, T, tokens]`. `shares` makes of scores what a prediction shows. It is an `nn.Module` in evaluation mode on the
    CPU: it moves to any device, has gradients, and can be copied and pickled. It computes in the precision of the run,
    float32 unless `run.precision` says otherwise. The names of its weights are those of `alray export --format
    safetensors`. A process that unpickles it needs alray, and the modules of a user's classes.

    Attributes:
        input: how an input becomes a sample. Of pictures and rows of numbers, `input.prepare(raw)` takes
            `[N, *input.shape]` as the source gives them, and scales and standardises them (`mean`, `std`). Of text,
            `input.words` has the word of each number, and of tokens `input.tokens` says what a token is.
            `input.inputs().read(file)` reads a picture or a text.
        classes: the names of the classes by number, or of the labels, targets or tokens.
        depth: how many components the route has.
        header: all of this as an exported file has it, and what the network is made of.
    """

    def __init__(self, route: Route, header: RouteHeader, learning: LearningTask) -> None:
        """It holds the modules of the route, not copies of them."""
        super().__init__(
            list(route.f),
            route.turn,
            list(route.h),
            writes_input=route.writes_input,
            below=list(route.below),
            passages=list(route.passages),
            boundaries=list(route.boundaries),
        )
        self.header = header
        self.input = header.input
        self.classes = header.classes
        self.depth = header.depth
        self._learning = learning

    def forward(self, samples: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """
        Args:
            samples: `[N, *input.shape]`, prepared as in training; `[N, T]` int64 of text and tokens.
            mask: `[N, T]` bool, of text alone: where a row has a word. None: everywhere but at the number of `<pad>`.
        """
        scores = super().forward(samples, mask)
        targets = self.header.targets
        if targets is None:
            return scores
        mean, std = (
            torch.tensor(each, dtype=torch.float64, device=scores.device) for each in (targets.mean, targets.std)
        )
        return scores.double() * std + mean

    def shares(self, scores: torch.Tensor) -> torch.Tensor:
        """What a prediction says of each class, label or token, float64 in 0..1: the softmax of the scores, of labels
        the sigmoid; where the method fits scores to 0 and 1, the scores limited to 0..1, of classes over their sum.

        Args:
            scores: as the network gives them.

        Raises:
            RequestError: the targets of a regression have no shares.
        """
        return self._learning.shares(scores)

    def activations(self, samples: torch.Tensor, mask: torch.Tensor | None = None) -> list[torch.Tensor]:
        """What each component of the route passes on, in order; the arguments as for `forward`.

        It is the output of the encoder, in the form in which the next one gets it, but for the compression of messages
        between the two. Where each encoder gets the samples, it is what comes with them.
        """
        tensors = self.tensors(samples, mask)
        found = []
        for passed_on in self.each(tensors):
            new = [name for name in passed_on if name != "score" and passed_on[name] is not tensors.get(name)]
            # A copy: the next block may write into its input.
            found.append(passed_on[new[0] if new else "s"].clone())
            tensors = passed_on
        return found

    def tensors(self, samples: torch.Tensor, mask: torch.Tensor | None = None) -> Tensors:
        """What the first encoder gets: samples in the type of the weights, and of text the mask."""
        if mask is None and isinstance(self.input, TextForm):
            mask = samples != PADDING
        if samples.is_floating_point():
            samples = samples.to(next(self.parameters()).dtype)
        return super().tensors(samples, mask)


def plain_network(network: TrainedNetwork, depth: int | None = None) -> PlainNetwork:
    """A copy of the route of this depth (None: the deepest), on the CPU. Raises RequestError if there is none."""
    depth = network.require_depth(depth)
    route = copy.deepcopy(network.route(depth)).to("cpu")
    return PlainNetwork(route, header_of(network, depth), network.learning)
