"""Replicas that train by torch's DistributedDataParallel (DDP) over the whole network: the ecosystem's baseline.

DDP averages gradients within the backward pass, in buckets, over the default process group, and gives every replica the
same weight. It does not report how long it communicated or waited: that time is part of B, and records say 0 s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from alray.core.errors import PlanError
from alray.core.randomness.seeds import derive_seed
from alray.models.backpropagation import BackpropagationComponent
from alray.models.component import backward_of
from alray.models.encoder import Tensors
from alray.runtime.channel.ddp_compression import make_ddp_compression
from alray.runtime.channel.point_to_point import lost_neighbour
from alray.runtime.stage.assignment import Assignment
from alray.runtime.stage.replication import ReplicaPeers, SeveralReplicas
from alray.runtime.stage.work.backpropagation import ChainWork, Losses, losses_of, through
from alray.runtime.stage.work.work import ComponentLosses, MicroBatch

_OF_GLOO = "gloo"
"""The text that errors of a lost connection contain: a path in gloo's sources."""


class DataParallelReplication(SeveralReplicas):
    """`replicas.engine: ray_train`: DDP averages the gradients of the replicas."""

    def __init__(self, assignment: Assignment, peers: ReplicaPeers) -> None:
        """Raises PlanError where the shares differ."""
        super().__init__(assignment, peers)
        spec, shares = assignment.spec, self.shares
        if len(set(shares)) > 1:
            raise PlanError(
                f"DDP gives every replica the same weight, and {spec.data.batch_size} samples are not {len(shares)} "
                "equal shares",
                key="replicas.count",
                hint=f"use a data.batch_size that {len(shares)} divides",
            )
        # A user's code may leave parameters without a gradient. DDP then looks for them in every mini-batch.
        self.may_lack_gradients = spec.trains_unknown_code
        self._compression = make_ddp_compression(spec.replicas.compression, seed=derive_seed(spec.seed, "compression"))
        self._parameters: list[nn.Parameter] = []
        self.steps = 0
        """Mini-batches whose gradients were averaged."""

    def register(self, network: DistributedDataParallel) -> None:
        """Tell DDP how to compress gradients, as the spec says, and remember the parameters whose bytes are counted."""
        self._parameters = [each for each in network.parameters() if each.requires_grad]
        self._compression.register(network)

    def account(self) -> dict[str, Any]:
        """The bytes are those that a ring sends of m bytes of gradients, 2m (n-1)/n over n: DDP reports none."""
        count = sum(parameter.numel() for parameter in self._parameters)
        summed = self._compression.bytes_summed(self.steps, count, self._parameters[0].element_size())
        sent = 2 * (self.count - 1) * summed // self.count
        return {"share": self.shares[self.replica], "all_reduce_bytes": sent}


class DataParallel(ChainWork):
    """All components of the network on one replica, in one DDP.

    Inference runs the components themselves, without DDP: replica 0 evaluates alone.
    """

    def __init__(self, components: Sequence[BackpropagationComponent], replication: DataParallelReplication) -> None:
        """Collective: all replicas call it, in processes whose default process group they form."""
        super().__init__(components, replication)
        self._network = DistributedDataParallel(
            _WholeNetwork(components),
            find_unused_parameters=replication.may_lack_gradients,
            # Gradients lie in its buckets then. Elsewhere those of two parameters may lie in one memory, into which it
            # would write both averages (`separate_gradients`).
            gradient_as_bucket_view=True,
        )
        self._by_ddp = replication
        self._pending: Losses | None = None  # between F and B
        replication.register(self._network)

    def forward(self, batch: MicroBatch) -> None:
        with _lost_replicas():
            scores = self._network(batch.incoming, batch.step)
        self._pending = losses_of(self.chains[0], scores, batch.incoming["labels"])

    def backward(self, batch: MicroBatch) -> ComponentLosses:
        """B, within which DDP averages the gradients."""
        assert self._pending is not None, "B before F"
        losses, self._pending = self._pending, None
        chain = self.chains[0]
        with backward_of(chain), _lost_replicas():
            losses[chain[-1].index].backward()
        self._by_ddp.steps += 1
        return {index: {chain[-1].loss_name: loss.detach()} for index, loss in losses.items()}


class _WholeNetwork(nn.Module):
    """All components as one module, which is what DDP takes."""

    def __init__(self, components: Sequence[BackpropagationComponent]) -> None:
        super().__init__()
        self.components = nn.ModuleList(components)
        self._chain = components

    def forward(self, incoming: Tensors, step: int) -> dict[int, torch.Tensor]:
        return through(self._chain, incoming, step)[1]


@contextmanager
def _lost_replicas() -> Iterator[None]:
    """Raise ChannelError where a replica is lost. Any other error, such as that of a block, is raised unchanged."""
    try:
        yield
    except RuntimeError as error:
        if _OF_GLOO in str(error) or isinstance(error, dist.DistError):
            raise lost_neighbour("between the replicas of stage 0", error) from error
        raise
