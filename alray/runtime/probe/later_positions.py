"""Whether a component of a language model sees positions that it must not see."""

from __future__ import annotations

import torch

from alray.core.errors import RunError
from alray.models.component import Component
from alray.models.encoder import EncoderFacts, Tensors

_TOLERANCE = 1e-3  # of the largest output; far above what the order of sums changes, and far below any influence


@torch.no_grad()
def require_no_later_position(component: Component, facts: EncoderFacts, incoming: Tensors, tokens: int) -> None:
    """Raise RunError if what the encoder gives for a position depends on the last position of the window.

    A label of `task: next_token` is the token after a position, so such a network would learn to copy its input.

    Args:
        incoming: a mini-batch, with `s` [N, T] int64 of tokens or [N, T, D].
        tokens: how many there are.
    """
    s = incoming["s"]
    other = s.clone()
    other[:, -1] = s[:, -1] + 1 if s.is_floating_point() else (s[:, -1] + 1) % tokens
    component.f.eval()
    before, after = (component.f.run({**incoming, "s": each}, 0)["s"][:, :-1] for each in (s, other))
    component.f.train()
    largest = float(before.abs().max()) if before.numel() else 0.0
    if not torch.allclose(before, after, rtol=0.0, atol=_TOLERANCE * largest):
        raise RunError(
            f"component {component.index} (block `{facts.name}`) sees later positions: another last token changes what "
            "it gives for those before, so it would read the next token instead of learning it",
            key=facts.key(component.index),
            hint="mask its attention, such as by is_causal=True",
        )
