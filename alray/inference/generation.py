"""Generation: a language model continues a text, token by token, by the route of one depth or of the first sure one."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from alray.core.errors import RequestError
from alray.core.randomness.seeds import derive_seed
from alray.data.inputs import Inputs, TokenInputs
from alray.inference.exported import ExportedRoute
from alray.inference.network import TrainedNetwork
from alray.models.route import Route
from alray.models.task import LearningTask


@dataclass(frozen=True)
class ExitTokens:
    """The tokens that left at one depth.

    Attributes:
        s_per_token: mean seconds that such a token took; None if there is none.
    """

    depth: int
    tokens: int
    s_per_token: float | None


@dataclass(frozen=True)
class Generated:
    """A text that a network has continued.

    Attributes:
        text: what follows the prompt.
        tokens: how many tokens it has.
        depth: of the deepest route that was used.
        exits: how many tokens came from each depth, shallowest first.
    """

    prompt: str
    text: str
    tokens: int
    depth: int
    exits: tuple[ExitTokens, ...]


@torch.no_grad()
def generate(
    network: TrainedNetwork | ExportedRoute,
    prompt: str,
    *,
    tokens: int,
    temperature: float,
    depth: int | None,
    seed: int,
    threshold: float | None = None,
) -> Generated:
    """Continue a prompt by this many tokens. The same seed gives the same text.

    The network sees the last tokens that fit into its context, and computes all of them anew for each token. An empty
    prompt stands for the beginning of a document.

    Args:
        temperature: by which scores are divided before the softmax, of which the next token is drawn; 0 takes the one
            with the highest score.
        depth: of the route, None: the deepest.
        threshold: in 0..1; each token comes from the first depth whose most probable token has at least this
            probability, before the temperature; else from `depth`. None: all tokens come from `depth`.

    Raises:
        RequestError: if a number is out of its bounds, the network is no language model, or an exported route is asked
            for another depth.
    """
    _require_bounds(tokens, temperature, threshold)
    given, device = _inputs(network)
    depth = network.require_depth(depth)
    if isinstance(network, ExportedRoute):
        depths, routes = [depth], [network.route]
    else:
        depths = [each for each in network.depths if each == depth or (threshold is not None and each < depth)]
        routes = [network.route(each) for each in depths]
    drawn = torch.Generator().manual_seed(derive_seed(seed, "generate"))
    text = given.tokens.prompt(prompt)
    left_s: list[list[float]] = [[] for _ in routes]
    with nullcontext() if isinstance(network, ExportedRoute) else network.configured():
        for _ in range(tokens):
            begun_s = time.perf_counter()
            number, scores = _sure(routes, text[-given.context :].unsqueeze(0).to(device), network.learning, threshold)
            left_s[number].append(time.perf_counter() - begun_s)
            if temperature == 0:
                following = scores.argmax().unsqueeze(0)
            else:
                below = scores - scores.max()  # so that a tiny temperature gives no infinity above
                following = torch.multinomial(torch.softmax(below / temperature, 0), 1, generator=drawn)
            text = torch.cat([text, following])
    exits = tuple(
        ExitTokens(each, len(those), sum(those) / len(those) if those else None)
        for each, those in zip(depths, left_s, strict=True)
    )
    return Generated(prompt, given.tokens.text(text[len(text) - tokens :].tolist()), tokens, depth, exits)


def _require_bounds(tokens: int, temperature: float, threshold: float | None) -> None:
    """Raise RequestError if one of them is out of its bounds."""
    wrong = (
        ("tokens", tokens, "a whole number of at least 1", tokens >= 1),
        ("temperature", temperature, "a number of at least 0", temperature >= 0 and math.isfinite(temperature)),
        ("threshold", threshold, "a number in 0..1", threshold is None or 0 <= threshold <= 1),
    )
    for name, value, wanted, fits in wrong:
        if not fits:
            raise RequestError(f"this is {value}", key=f"--{name}", hint=f"give {wanted}")


def _inputs(network: TrainedNetwork | ExportedRoute) -> tuple[TokenInputs, torch.device]:
    """The inputs of a language model, and the device that it is on."""
    inputs: Inputs | None
    if isinstance(network, ExportedRoute):
        inputs, device = network.header.input.inputs(), torch.device("cpu")
        kind = network.header.whole_spec().task.kind
    else:
        inputs, device = network.inputs, network.device
        kind = network.workload.spec.task.kind
    if isinstance(inputs, TokenInputs):
        return inputs, device
    raise RequestError(
        f"this network learnt {kind}, and continues no text", key="--prompt", hint="leave it out, and give inputs"
    )


def _sure(
    routes: Sequence[Route], window: Tensor, learning: LearningTask, threshold: float | None
) -> tuple[int, Tensor]:
    """The number of the first route that is sure of the next token, else of the last one, and its scores [tokens].

    The encoders run once.
    """
    tensors, done = routes[0].tensors(window), 0
    for number, route in enumerate(routes):
        tensors, done = route.up(tensors, done), len(route.f)
        scores = route.scores(tensors)[0, -1].double().cpu()
        if threshold is not None and float(learning.shares(scores).max()) >= threshold:
            return number, scores
    return len(routes) - 1, scores
