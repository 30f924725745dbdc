"""Each position of a text has the next token as its label.

`METRICS` are those of this task. `docs/network.md` defines them, and `task.py` computes them.
"""

from __future__ import annotations

from alray.core.metric import Metric

METRICS = (
    Metric("nats_per_token", "nats a token", lowest=True),
    Metric("perplexity", "perplexity", lowest=True),
    Metric("bits_per_byte", "bits a byte", lowest=True),
    Metric("top_1", "top-1", share=True),
)
