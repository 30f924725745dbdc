"""Replicas that average gradients by alray's own all-reduces: one flat sum for each component.

The sums run in a thread of their own, over a process group of the replicas of one stage. Operations that may have to
wait are generators (see `alray.channel.edge`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
import torch.distributed as dist

from alray.channel.all_reduce.registry import ALL_REDUCES
from alray.channel.compression.layout import Layout
from alray.channel.compression.registry import make_compression
from alray.channel.edge import Waiting
from alray.channel.gradient_reducer import GradientReducer, communication_thread
from alray.nn.component import Component
from alray.plan.plan import Plan
from alray.seeds import derive_seed
from alray.spec.models import Spec
from alray.stage.clock import AmongReplicas
from alray.stage.replication import LOOK_S, SeveralReplicas


class ReducedReplication(SeveralReplicas):
    """`replicas.engine: graph`."""

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
        """group: one rank for each replica of this stage, for gradients alone; the rest as in `SeveralReplicas`."""
        super().__init__(spec, plan, stage=stage, replica=replica, shares=shares, store=store, in_turns=in_turns)
        self.averages_gradients = not self.averages_weights
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

    def account(self) -> AmongReplicas:
        reducers = self._reducers.values()
        return AmongReplicas(
            share=self.shares[self.replica],
            bytes_sent=sum(reducer.bytes_sent for reducer in reducers),
            communication_s=sum(reducer.communication_s for reducer in reducers),
        )

    def start(self, component: Component, samples: int) -> None:
        gradients = [parameter.grad for parameter in self._parameters[component.index]]
        self._reducers[component.index].start(gradients, self.weight(samples))

    def finish(self) -> Waiting[None]:
        yield from self._reduced()
        for index, reducer in self._reducers.items():
            for parameter, gradient in zip(self._parameters[index], reducer.wait(), strict=True):
                parameter.grad = gradient

    def average_weights(self, step: int) -> Waiting[None]:
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
            time.sleep(LOOK_S)

    def state_dict(self, index: int) -> dict[str, torch.Tensor]:
        return self._reducers[index].state_dict()

    def load_state_dict(self, index: int, state: dict[str, torch.Tensor]) -> None:
        self._reducers[index].load_state_dict(state)
