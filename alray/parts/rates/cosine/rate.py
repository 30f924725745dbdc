"""Half a cosine from the full rate at the end of warm-up to `final_lr` at the end of the run."""

from __future__ import annotations

from alray.parts.rates.cosine.keys import Cosine
from alray.runtime.stage.learning_rate import Moment, between, cosine


def rate(section: Cosine, at: Moment) -> float:
    share = at.share_since_warm_up(at.length() - at.warm_up)
    return between(section.final_lr, at.full, cosine(share))
