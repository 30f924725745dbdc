"""`run.trackers: [wandb]`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.trackers import TrackerSection


class Wandb(TrackerSection):
    """Weights & Biases. Its own environment variables, such as WANDB_PROJECT and WANDB_MODE, say where the run goes."""

    implementation = "tracker:WandbTracker"
    library = "wandb"

    kind: Literal["wandb"]
    """`wandb`."""
