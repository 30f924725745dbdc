"""Generation: a language model continues a text, token by token, by the route of one depth."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass

import torch

from alray.core.errors import RequestError
from alray.core.randomness.seeds import derive_seed
from alray.data.inputs import Inputs, TokenInputs
from alray.inference.exported import ExportedRoute
from alray.inference.network import TrainedNetwork


@dataclass(frozen=True)
class Generated:
    """A text that a network has continued.

    Attributes:
        text: what follows the prompt.
        tokens: how many tokens it has.
        depth: of the route.
    """

    prompt: str
    text: str
    tokens: int
    depth: int


@torch.no_grad()
def generate(
    network: TrainedNetwork | ExportedRoute,
    prompt: str,
    *,
    tokens: int,
    temperature: float,
    depth: int | None,
    seed: int,
) -> Generated:
    """Continue a prompt by this many tokens. The same seed gives the same text.

    The network sees the last tokens that fit into its context, and computes all of them anew for each token. An empty
    prompt stands for the beginning of a document.

    Args:
        temperature: by which scores are divided before the softmax, of which the next token is drawn; 0 takes the one
            with the highest score.
        depth: of the route, None: the deepest.

    Raises:
        RequestError: if a number is out of its bounds, the network is no language model, or an exported route is asked
            for another depth.
    """
    _require_bounds(tokens, temperature)
    given, device = _inputs(network)
    depth = network.require_depth(depth)
    route = network.route if isinstance(network, ExportedRoute) else network.route(depth)
    drawn = torch.Generator().manual_seed(derive_seed(seed, "generate"))
    text = given.tokens.prompt(prompt)
    with nullcontext() if isinstance(network, ExportedRoute) else network.configured():
        for _ in range(tokens):
            scores = route(text[-given.context :].unsqueeze(0).to(device))[0, -1].double().cpu()
            if temperature == 0:
                following = scores.argmax().unsqueeze(0)
            else:
                below = scores - scores.max()  # so that a tiny temperature gives no infinity above
                following = torch.multinomial(torch.softmax(below / temperature, 0), 1, generator=drawn)
            text = torch.cat([text, following])
    return Generated(prompt, given.tokens.text(text[len(text) - tokens :].tolist()), tokens, depth)


def _require_bounds(tokens: int, temperature: float) -> None:
    """Raise RequestError if one of them is out of its bounds."""
    wrong = (
        ("tokens", tokens, "a whole number of at least 1", tokens >= 1),
        ("temperature", temperature, "a number of at least 0", temperature >= 0 and math.isfinite(temperature)),
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
