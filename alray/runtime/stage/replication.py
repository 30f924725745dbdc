"""The agreements among the replicas of a stage: cuts, shares of the mini-batch, and averaged gradients.

Numbers go over the run's store. How gradients are averaged is up to `alray.runtime.stage.reduction` and
`alray.runtime.stage.work.data_parallel`. Operations that may have to wait are generators (see
`alray.runtime.channel.edge`).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from alray.models.component import Component
from alray.models.replica_norm import ReplicaSums
from alray.planning.prediction.shares import ideal_shares, integer_shares, shares_of_part
from alray.runtime.channel.edge import Waiting
from alray.runtime.stage.assignment import Assignment

MeanWeights = dict[int, dict[nn.Parameter, torch.Tensor]]
"""The parameters of each component that the replicas average, with their means. A block may freeze one of them during
the run, or let another one learn, which no optimizer has."""

LOOK_S = 2.0e-4
"""Seconds between two looks at the store, for replicas that take turns in one process."""


@contextmanager
def holding(components: Sequence[Component], weights: MeanWeights) -> Iterator[None]:
    """Within it, components hold these weights instead of their own; where there are none of a component, its own."""
    held = [
        (parameter, parameter.data, value)
        for component in components
        if component.index in weights
        for parameter, value in weights[component.index].items()
    ]
    try:
        for parameter, _, value in held:
            parameter.data = value
        yield
    finally:
        for parameter, own, _ in held:
            parameter.data = own


def trained(component: Component) -> list[nn.Parameter]:
    """The parameters of a component that training changes."""
    return [parameter for parameter in component.parameters() if parameter.requires_grad]


class Replication(ABC):
    """What one stage of one replica agrees on with the same stage of the other replicas. With one replica nothing is
    sent, and every method returns at once."""

    replica = 0
    count = 1
    shares: tuple[int, ...]
    """Number of samples of a mini-batch for each replica."""
    averages_gradients = False
    """Whether `start` and `finish` average the gradients of every mini-batch."""
    averages_in_backward = True
    """Whether the averages of a chain's gradients may start while its backward pass goes on."""
    averages_weights = False
    """Whether each replica trains alone for some steps, until all take the mean of their weights."""
    kept = ("", "")
    """Whose state `state_dict` returns, as `Replicas.kept` says it."""
    balances_shares = False
    """Whether shares follow the speed of the replicas, epoch by epoch."""

    @abstractmethod
    def decided(self, what: str, decide: Callable[[], int]) -> Waiting[int]:
        """A number that replica 0 decides for all of them; the generator returns it.

        With several replicas, replica 0 decides during this call. Alone, it decides only when the generator runs.

        Args:
            what: names the number, once in the life of a graph.
        """

    def own_samples(self, samples: int) -> int:
        """How many of the samples of a mini-batch this replica takes."""
        return shares_of_part(self.shares, samples)[self.replica]

    def first_sample(self, samples: int) -> int:
        """Return the position, in a mini-batch of so many samples, of the first sample that this replica takes."""
        return sum(shares_of_part(self.shares, samples)[: self.replica])

    def account(self) -> dict[str, Any]:
        """Share, bytes sent and time spent so far, as fields of a `StageRecord`; empty where there is one replica."""
        return {}

    def start(self, component: Component, samples: int) -> None:
        """After B of a component, in a mini-batch of so many samples in all: take its gradients.

        Where the mini-batch completes an update, begin to average them over all replicas.
        """
        return

    def finish(self, components: Sequence[Component]) -> Waiting[None]:
        """Wait until the gradients of these components, each of which `start` began with, are the average over all
        replicas, and put them in place."""
        yield from ()

    def start_gather(self, component: Component, own: torch.Tensor, samples: int) -> None:
        """Begin to gather `[N, D]` of every replica, one row for each of the `samples` of a mini-batch in all."""
        raise AssertionError("only replicas of stages gather")

    def gathered(self, components: Sequence[Component]) -> Waiting[dict[int, torch.Tensor]]:
        """Wait for what `start_gather` began for these components: by component, `[samples, D]` in the order of the
        mini-batch."""
        yield from ()
        return {}

    def average_weights(self, step: int) -> Waiting[None]:
        """Model averaging, after mini-batch `step`: where it is due, weights become the mean over all replicas."""
        yield from ()

    def mean_weights(self, step: int) -> Waiting[MeanWeights]:
        """For a cut after mini-batch `step`: the mean over all replicas, where they differ. Nothing is changed."""
        yield from ()
        return {}

    def balance(self, epoch: int, compute_s: float) -> Waiting[None]:
        """After an epoch: new shares, from the seconds this stage computed."""
        yield from ()

    def in_order(self, sums: ReplicaSums) -> ReplicaSums:
        """Sums within computations, so that they and the averages start in one order on all replicas."""
        return sums

    def state_dict(self, index: int) -> dict[str, torch.Tensor]:
        """Return what lasts from step to step: the state of the compression of a component's gradients, or of its outer
        optimizer."""
        return {}

    def load_state_dict(self, index: int, state: dict[str, torch.Tensor]) -> None:
        """Load a state that `state_dict` returned; an empty one begins anew."""
        return


class Alone(Replication):
    """The replication of a run with one replica."""

    def __init__(self, batch_size: int = 1) -> None:
        """
        Args:
            batch_size: samples in a mini-batch.
        """
        self.shares = (batch_size,)

    def own_samples(self, samples: int) -> int:
        return samples

    def decided(self, what: str, decide: Callable[[], int]) -> Waiting[int]:
        yield from ()
        return decide()


def _known(number: int) -> Waiting[int]:
    yield from ()
    return number


class SeveralReplicas(Replication, ABC):
    """Replicas that meet over the store of the run."""

    def __init__(self, assignment: Assignment, *, store: dist.Store, in_turns: bool) -> None:
        """
        Args:
            store: that of all stages of all replicas.
            in_turns: whether all replicas share this thread, so that waiting must not block.
        """
        spec, plan = assignment.spec, assignment.plan
        self.replica = assignment.replica
        self.count = plan.replicas
        self.shares = tuple(assignment.shares)
        self._stage = assignment.stage
        self._stages = plan.stages
        self._batch_size = spec.data.batch_size
        self._least_share = assignment.least_share
        self._store = store
        self._in_turns = in_turns
        synchronise = spec.replicas.synchronise
        self._apart = None if synchronise == "every_step" else synchronise
        self.averages_weights = self._apart is not None
        self.kept = spec.replicas.kept
        self.balances_shares = spec.replicas.balance == "dynamic_batch_size"

    def weight(self, samples: int) -> float:
        """This replica's share, of 1, of a mini-batch of so many samples."""
        return self.own_samples(samples) / samples

    def decided(self, what: str, decide: Callable[[], int]) -> Waiting[int]:
        key = f"decided {what}"
        if self.replica > 0:
            return self._heard(key)
        number = decide()
        self._store.set(key, str(number))
        return _known(number)

    def _heard(self, key: str) -> Waiting[int]:
        """The number that replica 0 decided. The last replica that hears it deletes it: the store does not grow.

        Replica 0 does not: where a stage has nothing to train, its replicas never meet, and nothing here says how far
        replica 0 is ahead.
        """
        number = int((yield from self._get(key)))
        hearers, heard = self.count - 1, f"heard {key}"
        if hearers == 1:
            self._store.delete_key(key)
        elif self._store.add(heard, 1) == hearers:
            self._store.delete_key(key)
            self._store.delete_key(heard)
        return number

    def balance(self, epoch: int, compute_s: float) -> Waiting[None]:
        """New shares by the time each replica computed: that of its slowest stage, waiting excluded.

        Source: Ye et al., arXiv 2007.11831 (see `alray.planning.prediction.shares`).
        """
        self._store.set(f"computed {epoch} {self.replica} {self._stage}", repr(compute_s))
        times = []
        for replica in range(self.count):
            of_stages = []
            for stage in range(self._stages):
                of_stages.append(float((yield from self._get(f"computed {epoch} {replica} {stage}"))))
            times.append(max(of_stages))
        ideal = ideal_shares(self.shares, times, self._batch_size)
        self.shares = integer_shares(ideal, self._batch_size, self._least_share)

    def _get(self, key: str) -> Waiting[bytes]:
        # A TCPStore wakes those that wait for a key. A FileStore only looks every 10 ms, so look here, and more often.
        while not isinstance(self._store, dist.TCPStore) and not self._store.check([key]):
            if self._in_turns:
                yield
            time.sleep(LOOK_S)
        value: bytes = self._store.get(key)
        return value
