"""A replica that is slower on purpose: `replicas.disturbance`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from alray.config.sections.replicas import Disturbance, FixedDisturbance
from alray.config.sections.spec import Spec
from alray.core.randomness.seeds import derive_seed
from alray.runtime.channel.edge import Waiting

_LOOK_S = 1.0e-3


@dataclass
class Slowdown:
    """Makes one replica behave as if its device were slower.

    Attributes:
        spec: one with a `replicas.disturbance`.
    """

    spec: Spec
    replica: int
    steps_per_epoch: int

    def __post_init__(self) -> None:
        disturbance = self.spec.replicas.disturbance
        assert disturbance is not None, "a spec without one has no slowdown"
        # To draw an epoch takes longer, the later it is.
        self._of_epoch = lru_cache(maxsize=1)(
            lambda epoch: slowed(disturbance, self.replica, epoch, seed=self.spec.seed)
        )

    def depends_on_computing(self, step: int) -> bool:
        """Whether the missing time of mini-batch `step` depends on how long the replica computed."""
        return self._of_epoch((step - 1) // self.steps_per_epoch)[0] > 1.0

    def wait(self, step: int, computed_s: float) -> Waiting[None]:
        """After the computations of mini-batch `step`, which took `computed_s` seconds: wait for the missing time.

        Busy without computing; replicas that take turns continue meanwhile, as they would on separate devices.
        """
        factor, added_s = self._of_epoch((step - 1) // self.steps_per_epoch)
        missing_s = (factor - 1.0) * computed_s + added_s / self.steps_per_epoch
        until = time.perf_counter() + missing_s
        while (left_s := until - time.perf_counter()) > 0:
            yield
            time.sleep(min(left_s, _LOOK_S))


def slowed(disturbance: Disturbance, worker: int, epoch: int, *, seed: int) -> tuple[float, float]:
    """The factor by which the computing time of replica `worker` grows in an epoch, and the seconds that the epoch
    takes longer, whatever its share; 1.0 and 0.0 where it is not slowed.

    kind `fixed` slows the workers and epochs that it names. kind `random` has the chances of Ye et al. (arXiv
    2007.11831): at the beginning of each epoch, a worker that is not slowed becomes so with probability `chance`, and
    stays so for `least_epochs` to `most_epochs` epochs, this one included. Seconds are drawn from `added_s` for each
    epoch, as in their code. Draws are from (seed, worker, epoch), so that they stay the same for every partition and
    after a resume.

    Args:
        disturbance: the spec's `replicas.disturbance`.
        epoch: epochs completed before (0 in the first one; the spec counts epochs from 1).
        seed: the spec's.
    """
    if not _is_slowed(disturbance, worker, epoch, seed):
        return 1.0, 0.0
    low, high = disturbance.added_s or (0.0, 0.0)
    return disturbance.factor, Random(derive_seed(seed, "disturbance", "seconds", worker, epoch)).uniform(low, high)


def _is_slowed(disturbance: Disturbance, worker: int, epoch: int, seed: int) -> bool:
    if isinstance(disturbance, FixedDisturbance):
        first, last = disturbance.epochs
        return worker in disturbance.workers and first <= epoch + 1 <= last
    slowed_until = 0  # the first epoch in which the worker is free
    for each in range(epoch + 1):
        if each < slowed_until:
            continue
        draws = Random(derive_seed(seed, "disturbance", worker, each))
        if draws.random() < disturbance.chance:
            lengths = disturbance.most_epochs - disturbance.least_epochs + 1
            slowed_until = each + disturbance.least_epochs + int(draws.random() * lengths)
    return epoch < slowed_until
