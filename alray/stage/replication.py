"""What the replicas of a stage do together: gradients averaged, cuts agreed on, shares of the mini-batch dealt.

Gradients go over a process group of the replicas of one stage, in a thread of its own; the few numbers that replicas
have to agree on go over the run's store. Operations that may have to wait are generators (see `alray.channel.link`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
import torch.distributed as dist

from alray.channel.all_reduce.registry import ALL_REDUCES
from alray.channel.compression.layout import Layout
from alray.channel.compression.registry import make_compression
from alray.channel.gradient_reducer import GradientReducer, communication_thread
from alray.channel.link import Waiting
from alray.nn.component import Component
from alray.plan.plan import Plan
from alray.plan.shares import balanced_shares, shares_of_part
from alray.seeds import derive_seed
from alray.spec.models import Spec
from alray.stage.clock import AmongReplicas

_LOOK_S = 2.0e-4


class Replication:
    """One stage of one replica among its likes."""

    def __init__(
        self,
        spec: Spec,
        plan: Plan,
        *,
        stage: int,
        replica: int,
        shares: Sequence[int],
        components: Sequence[Component],
        group: dist.ProcessGroup,
        store: dist.Store,
        in_turns: bool,
        timeout_s: float,
    ) -> None:
        """shares: samples of a mini-batch each replica takes at first; group: one rank for each replica of this stage;
        store: of all stages of all replicas; in_turns: whether they share this thread, so that waiting must not block.
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
        thread = communication_thread()
        self._parameters = {
            component.index: [parameter for parameter in component.parameters() if parameter.requires_grad]
            for component in components
        }
        self._reducers: dict[int, GradientReducer] = {}
        for index, parameters in self._parameters.items():
            layout = Layout.of(parameters)
            settings = spec.replicas.compression.model_dump()
            seed = derive_seed(spec.seed, "compression", index) % 2**63
            self._reducers[index] = GradientReducer(
                layout,
                over=ALL_REDUCES[spec.replicas.all_reduce](group, timeout_s=timeout_s),
                compression=make_compression(layout=layout, seed=seed, **settings),
                thread=thread,
            )

    def own_samples(self, samples: int) -> int:
        """Of a mini-batch of so many samples, how many are this replica's."""
        return shares_of_part(self.shares, samples)[self.replica]

    def weight(self, samples: int) -> float:
        """This replica's share, of 1, of a mini-batch of so many samples."""
        return self.own_samples(samples) / samples

    def account(self) -> AmongReplicas:
        """For the record: this replica's share, bytes sent and time spent so far."""
        reducers = self._reducers.values()
        return AmongReplicas(
            share=self.shares[self.replica],
            bytes_sent=sum(reducer.bytes_sent for reducer in reducers),
            communication_s=sum(reducer.communication_s for reducer in reducers),
        )

    def start(self, component: Component, samples: int) -> None:
        """Begin to average a component's gradients of a mini-batch of so many samples, over all replicas, as one flat
        reduction in parameter order."""
        gradients = [parameter.grad for parameter in self._parameters[component.index]]
        self._reducers[component.index].start(gradients, self.weight(samples))

    def finish(self) -> Waiting[None]:
        """Wait until every gradient is the average of all replicas', and put it in its place."""
        yield from self._reduced()
        for index, reducer in self._reducers.items():
            for parameter, gradient in zip(self._parameters[index], reducer.wait(), strict=True):
                parameter.grad = gradient

    def average_weights(self, step: int) -> Waiting[None]:
        """Model averaging: at every `average_every`-th mini-batch, weights become the mean of all replicas'."""
        if step % self._average_every:
            return
        for index, reducer in self._reducers.items():
            reducer.start([parameter.detach() for parameter in self._parameters[index]], self.weight(self._batch_size))
        yield from self._reduced()
        for reducer in self._reducers.values():
            reducer.wait()

    def _reduced(self) -> Waiting[None]:
        while self._in_turns and not all(reducer.done for reducer in self._reducers.values()):
            yield
            time.sleep(_LOOK_S)

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
            time.sleep(_LOOK_S)
        value: bytes = self._store.get(key)
        return value

    def state_dict(self, index: int) -> dict[str, torch.Tensor]:
        """What the compression of a component's gradients keeps from step to step on this replica."""
        return self._reducers[index].state_dict()

    def load_state_dict(self, index: int, state: dict[str, torch.Tensor]) -> None:
        self._reducers[index].load_state_dict(state)
