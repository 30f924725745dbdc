"""Replicas that train by torch's DistributedDataParallel over the whole network: the ecosystem's own baseline.

DDP averages gradients within the backward pass, in buckets, over the default process group, and counts every replica
the same. How long it communicated or waited it does not tell: that is part of B, and the record has 0 seconds for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from alray.channel.edge import Waiting
from alray.channel.point_to_point import lost_neighbour
from alray.errors import PlanError
from alray.nn.component import BackpropagationComponent, Component
from alray.nn.encoder import Tensors
from alray.plan.plan import Plan
from alray.spec.models import Spec
from alray.spec.replicas import CompressionSection, PowerSgd
from alray.stage.clock import AmongReplicas
from alray.stage.replication import Replication
from alray.stage.stage import SteppedStage, class_scores, step_optimizers, zero_gradients

_HALVES = {"fp16": default_hooks.fp16_compress_hook, "bf16": default_hooks.bf16_compress_hook}
_HALF_BYTES = 2
_OF_GLOO = "gloo"
"""What errors of a lost connection name: the place in gloo's sources."""


class DataParallelStage(SteppedStage):
    """All components of the backpropagation twin on one replica, in one DDP."""

    def __init__(
        self,
        components: Sequence[BackpropagationComponent],
        *,
        label_smoothing: float,
        compression: CompressionSection,
        seed: int,
    ) -> None:
        """Collective: all replicas call it, in processes whose default process group they are.

        seed: of PowerSGD's first factors, the same on all replicas.
        """
        self.components = list(components)
        self._links = components
        self._label_smoothing = label_smoothing
        self._network = DistributedDataParallel(_WholeNetwork(components))
        self._sent = _BytesSent(components, compression)
        self._pending: torch.Tensor | None = None
        if compression.kind in _HALVES:
            self._network.register_comm_hook(None, _HALVES[compression.kind])
        elif isinstance(compression, PowerSgd):
            self._sent.powersgd = PowerSGDState(
                process_group=None,
                matrix_approximation_rank=compression.rank,
                start_powerSGD_iter=compression.start_iteration,
                random_seed=seed % 2**32,
            )
            self._network.register_comm_hook(self._sent.powersgd, powerSGD_hook)

    def encoder_forward(self, incoming: Tensors, step: int) -> Tensors:
        with _lost_replicas():
            scores = self._network(incoming, step)
        self._pending = functional.cross_entropy(scores, incoming["labels"], label_smoothing=self._label_smoothing)
        return {}

    def backward(self) -> dict[int, Tensors]:
        """B, within which DDP averages the gradients: what comes after it is the same on every replica."""
        assert self._pending is not None, "B before F"
        loss, self._pending = self._pending, None
        zero_gradients(self._links)
        with _lost_replicas():
            loss.backward()
        self._sent.steps += 1
        return {self._links[-1].index: {"cross_entropy": loss.detach()}}

    def update(self, lr: float, label_lr: float) -> None:
        step_optimizers(self._links, lr)

    @property
    def bytes_to_replicas(self) -> int:
        """Payload of gradients this replica has sent so far, by what a ring sends of it (see `Backend`)."""
        return self._sent.total()

    @torch.no_grad()
    def infer_up(self, incoming: Tensors, step: int, batch: int) -> tuple[Tensors, list[torch.Tensor]]:
        """On the components themselves: replica 0 evaluates alone."""
        return incoming, [class_scores(self._links, incoming, step, "evaluation", batch)]

    @torch.no_grad()
    def infer_down(self, routes: list[torch.Tensor]) -> list[torch.Tensor]:
        return routes


class DataParallelReplication(Replication):
    """`replicas.engine: ray_train`: there is nothing to do between B and U, and nothing kept from step to step.

    The state of PowerSGD belongs to DDP's buckets, which are laid out anew by every DDP: a resumed run begins it anew.
    """

    def __init__(
        self,
        spec: Spec,
        plan: Plan,
        *,
        stage: DataParallelStage,
        replica: int,
        shares: Sequence[int],
        store: dist.Store,
    ) -> None:
        """Raises PlanError where the shares differ."""
        super().__init__(spec, plan, stage=0, replica=replica, shares=shares, store=store, in_turns=False)
        if len(set(shares)) > 1:
            raise PlanError(
                f"DDP gives every replica the same weight, and {spec.data.batch_size} samples are not {len(shares)} "
                "equal shares",
                key="replicas.count",
                mend=f"use a data.batch_size that {len(shares)} divides",
            )
        self._of_stage = stage

    def account(self) -> AmongReplicas:
        return AmongReplicas(
            share=self.shares[self.replica], bytes_sent=self._of_stage.bytes_to_replicas, communication_s=0.0
        )

    def start(self, component: Component, samples: int) -> None:
        pass

    def finish(self) -> Waiting[None]:
        yield from ()

    def average_weights(self, step: int) -> Waiting[None]:
        yield from ()

    def state_dict(self, index: int) -> dict[str, torch.Tensor]:
        return {}

    def load_state_dict(self, index: int, state: dict[str, torch.Tensor]) -> None:
        pass


class _WholeNetwork(nn.Module):
    """All components as one module, which is what DDP takes."""

    def __init__(self, components: Sequence[BackpropagationComponent]) -> None:
        super().__init__()
        self.components = nn.ModuleList(components)
        self._links = components

    def forward(self, incoming: Tensors, step: int) -> torch.Tensor:
        return class_scores(self._links, incoming, step)


class _BytesSent:
    """What a ring sends of the gradients, which DDP does not tell: 2m (n-1)/n of m bytes, over n replicas."""

    def __init__(self, components: Sequence[Component], compression: CompressionSection) -> None:
        parameters = [each for component in components for each in component.parameters() if each.requires_grad]
        self.steps = 0  # mini-batches
        self.powersgd: PowerSGDState | None = None
        self._replicas = dist.get_world_size()
        self._count = sum(parameter.numel() for parameter in parameters)
        self._element_bytes = _HALF_BYTES if compression.kind in _HALVES else parameters[0].element_size()

    def total(self) -> int:
        elements = self.steps * self._count
        if self.powersgd is not None:
            whole = min(self.steps, self.powersgd.start_powerSGD_iter)
            elements = whole * self._count + int(self.powersgd.compression_stats()[2])
        return 2 * (self._replicas - 1) * elements * self._element_bytes // self._replicas


@contextmanager
def _lost_replicas() -> Iterator[None]:
    """Raise ChannelError where a replica is lost; anything else, such as what a block raised, goes on as it is."""
    try:
        yield
    except RuntimeError as error:
        if _OF_GLOO in str(error) or isinstance(error, dist.DistError):
            raise lost_neighbour("between the replicas of stage 0", error) from error
        raise
