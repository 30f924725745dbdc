"""Generation: a language model continues a text, token by token, by the route of one depth."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from alray.errors import RequestError
from alray.inference.network import TrainedNetwork
from alray.randomness.seeds import derive_seed


@dataclass(frozen=True)
class Generated:
    """A text that a network has continued.

    Attributes:
        text: what follows the prompt.
        tokens: how many tokens it has.
    """

    prompt: str
    text: str
    tokens: int
    depth: int


@torch.no_grad()
def generate(
    network: TrainedNetwork, prompt: str, *, tokens: int, temperature: float, depth: int | None, seed: int
) -> Generated:
    """Continue a prompt by this many tokens. The same seed gives the same text.

    The network sees the last tokens that fit into its context, and computes all of them anew for each token. An empty
    prompt stands for the beginning of a document.

    Args:
        temperature: by which scores are divided before the softmax, of which the next token is drawn; 0 takes the one
            with the highest score.
        depth: of the route, None: the deepest.

    Raises:
        RequestError: if the network is no language model.
    """
    given = network.workload.data.tokens
    if given is None:
        raise RequestError(
            f"this network learnt {network.workload.spec.task.kind}, and continues no text",
            key="--prompt",
            hint="leave it out, and give inputs",
        )
    depth = network.require_depth(depth)
    route, (context,) = network.route(depth), network.workload.data.sample_shape
    drawn = torch.Generator().manual_seed(derive_seed(seed, "generate"))
    text = given.prompt(prompt)
    for _ in range(tokens):
        scores = route(text[-context:].unsqueeze(0).to(network.device))[0, -1].double().cpu()
        if temperature == 0:
            following = scores.argmax().unsqueeze(0)
        else:
            following = torch.multinomial(torch.softmax(scores / temperature, 0), 1, generator=drawn)
        text = torch.cat([text, following])
    return Generated(prompt, given.text(text[len(text) - tokens :].tolist()), tokens, depth)
