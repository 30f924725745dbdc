"""By how much a replica is slowed on purpose, epoch by epoch: a function of the spec alone."""

from __future__ import annotations

from random import Random
from typing import Any

from alray.seeds import derive_seed


def slowdown(disturbance: Any, worker: int, epoch: int, *, seed: int) -> float:
    """What the computing time of replica `worker` is multiplied by in an epoch; 1.0 where it is not slowed.

    disturbance: the spec's `replicas.disturbance`, or None. epoch: epochs completed before (0 in the first; the spec
    counts them from 1). seed: the spec's.

    kind `fixed`: the workers and epochs it names. kind `random`: the test of Ye et al. (arXiv 2007.11831). A worker
    that is not slowed becomes so with `chance` at the beginning of each epoch, and stays so for `least_epochs` to
    `most_epochs` epochs, this one included; then its luck is tried again. Draws are from (seed, worker, epoch), so that
    they are the same however the run is laid out, and after a resume.
    """
    if disturbance is None:
        return 1.0
    if disturbance.kind == "fixed":
        first, last = disturbance.epochs
        slowed = worker in disturbance.workers and first <= epoch + 1 <= last
    else:
        slowed = _bad_luck(disturbance, worker, epoch, seed)
    return float(disturbance.factor) if slowed else 1.0


def _bad_luck(disturbance: Any, worker: int, epoch: int, seed: int) -> bool:
    slowed_until = 0  # the first epoch in which the worker is free
    for each in range(epoch + 1):
        if each < slowed_until:
            continue
        draws = Random(derive_seed(seed, "disturbance", worker, each))
        if draws.random() < disturbance.chance:
            lengths = disturbance.most_epochs - disturbance.least_epochs + 1
            slowed_until = each + disturbance.least_epochs + int(draws.random() * lengths)
    return epoch < slowed_until
