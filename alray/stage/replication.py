"""What the replicas of a stage have to agree on: cuts, shares of the mini-batch, and that gradients are averaged.

The few numbers go over the run's store; how gradients are averaged differs (`alray.stage.reduction`,
`alray.stage.data_parallel`). Operations that may have to wait are generators (see `alray.channel.edge`).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
import torch.distributed as dist

from alray.channel.edge import Waiting
from alray.nn.component import Component
from alray.plan.plan import Plan
from alray.plan.shares import balanced_shares, shares_of_part
from alray.spec.models import Spec
from alray.stage.clock import AmongReplicas

LOOK_S = 2.0e-4
"""How often replicas that take turns look whether what they wait for has come."""


class Replication(ABC):
    """One stage of one replica among its likes."""

    averages_weights: bool
    """Whether replicas train apart, and take the mean of their weights now and then."""

    def __init__(
        self,
        spec: Spec,
        plan: Plan,
        *,
        stage: int,
        replica: int,
        shares: Sequence[int],
        store: dist.Store,
        in_turns: bool,
    ) -> None:
        """shares: samples of a mini-batch each replica takes at first; store: of all stages of all replicas;
        in_turns: whether they share this thread, so that waiting must not block.
        """
        self.replica, self.count = replica, plan.replicas
        self.shares = tuple(shares)
        self._stage, self._stages = stage, plan.stages
        self._batch_size = spec.data.batch_size
        self._store, self._in_turns = store, in_turns
        synchronise = spec.replicas.synchronise
        self._average_every = 1 if synchronise == "every_step" else synchronise.num_steps
        self.averages_weights = self._average_every > 1
        self.deals_shares = spec.replicas.balance == "dynamic_batch_size"

    def own_samples(self, samples: int) -> int:
        """Of a mini-batch of so many samples, how many are this replica's."""
        return shares_of_part(self.shares, samples)[self.replica]

    def weight(self, samples: int) -> float:
        """This replica's share, of 1, of a mini-batch of so many samples."""
        return self.own_samples(samples) / samples

    @abstractmethod
    def account(self) -> AmongReplicas:
        """For the record: this replica's share, bytes sent and time spent so far."""

    @abstractmethod
    def start(self, component: Component, samples: int) -> None:
        """Begin to average a component's gradients of a mini-batch of so many samples, over all replicas."""

    @abstractmethod
    def finish(self) -> Waiting[None]:
        """Wait until every gradient is the average of all replicas', and put it in its place."""

    @abstractmethod
    def average_weights(self, step: int) -> Waiting[None]:
        """Model averaging, after mini-batch `step`: where it is due, weights become the mean of all replicas'."""

    @abstractmethod
    def state_dict(self, index: int) -> dict[str, torch.Tensor]:
        """What the compression of a component's gradients keeps from step to step on this replica."""

    @abstractmethod
    def load_state_dict(self, index: int, state: dict[str, torch.Tensor]) -> None:
        """Take over what `state_dict` gave."""

    def announce(self, what: str, value: int) -> None:
        """Replica 0 says a number; `what` names it, once in the life of a graph."""
        if self.replica == 0:
            self._store.set(f"announced {what}", str(value))

    def heard(self, what: str) -> Waiting[int]:
        """The number replica 0 announced."""
        return int((yield from self._get(f"announced {what}")))

    def forget(self, what: str) -> None:
        """Replica 0 takes back what every replica has heard."""
        if self.replica == 0:
            self._store.delete_key(f"announced {what}")

    @property
    def lag(self) -> int:
        """Mini-batches that replicas may be apart from each other, at most."""
        return self._average_every + 1

    def deal(self, epoch: int, compute_s: float) -> Waiting[None]:
        """After an epoch, new shares by the time each replica computed: that of its slowest stage, waiting excluded.

        Source: Ye et al., arXiv 2007.11831 (see `alray.plan.shares`).
        """
        self._store.set(f"computed {epoch} {self.replica} {self._stage}", repr(compute_s))
        times = []
        for replica in range(self.count):
            of_stages = []
            for stage in range(self._stages):
                of_stages.append(float((yield from self._get(f"computed {epoch} {replica} {stage}"))))
            times.append(max(of_stages))
        self.shares = balanced_shares(self.shares, times, self._batch_size)

    def _get(self, key: str) -> Waiting[bytes]:
        while self._in_turns and not self._store.check([key]):
            yield
            time.sleep(LOOK_S)
        value: bytes = self._store.get(key)
        return value
