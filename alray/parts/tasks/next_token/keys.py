"""`task: next_token`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.task import TaskSection


class NextToken(TaskSection):
    """Each position of a text has the next token as its label. The loss is the cross-entropy, in nats a token."""

    implementation = "task:NextTokenTask"
    label = "tokens"

    kind: Literal["next_token"]
    """`next_token`."""
    metric: Literal["nats_per_token", "perplexity", "bits_per_byte", "top_1"] = "nats_per_token"
    """Metric of evaluations. `bits_per_byte` is for tokens that are bytes: the bits of all tokens, divided by the
    number of bytes; the end of a document is a token, but no byte. `top_1` is the share of tokens that have the highest
    score; its highest value is the best, and the lowest of the others. Default: nats_per_token."""
