"""Components with local losses: nothing travels backwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from alray.models.component import ComparingComponent, LocalComponent, SampleSpan
from alray.models.encoder import Tensors
from alray.runtime.channel.edge import Waiting
from alray.runtime.stage.clock import Clock
from alray.runtime.stage.work.work import ComponentLosses, MicroBatch, Work, all_finite


@dataclass(eq=False)
class LocalLosses(Work):
    """Every component trains by local losses; what it passes on is computed before it updates its weights."""

    components: Sequence[LocalComponent]

    def __post_init__(self) -> None:
        super().__post_init__()
        self._local = [self.components[run] for run in self.runs]

    def forward(self, batch: MicroBatch) -> None:
        tensors = batch.incoming
        span = SampleSpan(self.replication.first_sample(batch.samples), batch.samples)
        for component in self._local[batch.own]:
            tensors = component.encoder_step(tensors, batch.step, span)
        batch.outgoing.update(tensors)

    def gather(self, batch: MicroBatch, clock: Clock, text: str) -> Waiting[None]:
        replication = self.replication
        comparing = [component for component in self._local[batch.own] if isinstance(component, ComparingComponent)]
        gathering = [component for component in comparing if component.gathers]
        if replication.count == 1 or not gathering:
            return
        with clock.measure("L", text, batch.step):
            for component in gathering:
                replication.start_gather(component, component.to_gather(batch.incoming), batch.samples)
        with clock.measure("all_reduce", f"gather {batch.step - 1}", batch.step):
            gathered = yield from replication.gathered(gathering)
        for component in gathering:
            component.take_gathered(gathered[component.index], replication.first_sample(batch.samples))

    def label(self, batch: MicroBatch) -> None:
        tensors = batch.incoming
        for component in self._local[batch.own]:
            tensors = component.label_step(tensors)
        batch.outgoing.update(tensors)

    def backward(self, batch: MicroBatch) -> ComponentLosses:
        losses = {}
        for component in self._local[batch.own]:
            own = losses[component.index] = component.backward_step()
            if self.averages_early and all_finite(own.values()):
                self.replication.start(component, batch.samples)
        return losses

    def update(self, lr: float, own: int = 0, *, step: int) -> None:
        for component in self._local[own]:
            component.update_step(lr)

    @torch.no_grad()
    def _infer_up(self, incoming: Tensors, step: int, batch: int, own: int) -> tuple[Tensors, list[torch.Tensor]]:
        """The list holds, for each route that turns here, its code decoded down to the first component of this virtual
        stage."""
        routes: list[torch.Tensor] = []
        run = self._local[own]
        for index, component in enumerate(run):
            outgoing = component.infer(incoming, step, "evaluation", batch)
            if component.ends_route:
                t = component.code(outgoing)
                for below in reversed(run[: index + 1]):
                    t = below.decode(t)
                routes.append(t)
            incoming = component.sent(outgoing)
        return incoming, routes

    @torch.no_grad()
    def infer_down(self, routes: list[torch.Tensor], own: int = 0) -> list[torch.Tensor]:
        """Decode each route by itself, in the shape of the batch.

        Stacked routes would change the bits of a matrix product, and now and then an accuracy.
        """
        decoded = []
        for t in routes:
            for component in reversed(self._local[own]):
                t = component.decode(t)
            decoded.append(t)
        return decoded
