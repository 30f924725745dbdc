"""Replicas that average gradients by alray's all-reduces: one flat sum for each component.

What losses need of all replicas goes the same way. The sums run in a separate thread, over a process group of the
replicas of one stage. Operations that may have to wait are generators (see `alray.runtime.channel.edge`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from alray.config.sections.replicas import OuterOptimizer
from alray.core.randomness.seeds import derive_seed
from alray.models.component import Component
from alray.models.optimizers import without_compiler
from alray.models.replica_norm import ReplicaSums
from alray.planning.prediction.shares import shares_of_part
from alray.runtime.channel.all_reduce import AllReduce, make_all_reduce
from alray.runtime.channel.compression import Compression, make_compression
from alray.runtime.channel.edge import Waiting
from alray.runtime.channel.gradient_layout import GradientLayout
from alray.runtime.channel.gradient_reducer import CommunicationThread, Exchange, GradientReducer
from alray.runtime.stage.assignment import Assignment
from alray.runtime.stage.replication import LOOK_S, MeanWeights, ReplicaPeers, SeveralReplicas, trained


class ReducedReplication(SeveralReplicas):
    """`replicas.engine: graph`."""

    def __init__(
        self, assignment: Assignment, peers: ReplicaPeers, components: Sequence[Component], device: torch.device
    ) -> None:
        """
        Args:
            peers: with a group for this object alone.
            device: of the components.
        """
        super().__init__(assignment, peers)
        spec, load = assignment.spec, assignment.code
        self.averages_gradients = not self.averages_weights
        # Sums of batch normalisation over NCCL wait for averages that have started. Where the user's code gives a
        # gradient on one replica only, the average would start before such a sum there, and after it elsewhere.
        self.averages_in_backward = not (
            spec.replicas.sync_batch_norm and spec.trains_unknown_code and peers.group.name() == "nccl"
        )
        self._group = peers.group
        self._parameters = {component.index: trained(component) for component in components}
        self._all_reduce: Callable[[], AllReduce] = partial(
            make_all_reduce, spec.replicas.all_reduce, peers.group, timeout_s=peers.timeout_s, load=load
        )
        self._thread = CommunicationThread(device)
        self._due: dict[int, bool] = {}  # whether the mini-batch completes an update, by component
        self._gathers: dict[int, RowGather] = {}
        self._exchanged: set[int] = set()
        """Components whose replicas have met, and have not yet received what it came to."""
        self._reducers: dict[int, GradientReducer] = {}
        outer = None if self._apart is None else self._apart.outer
        self._outer = {
            index: OuterSteps(outer, parameters)
            for index, parameters in self._parameters.items()
            if outer is not None and parameters
        }
        for index, parameters in self._parameters.items():
            layout = GradientLayout.of(parameters)
            seed = derive_seed(spec.seed, "compression", index) % 2**63
            self._reducers[index] = GradientReducer(
                layout=layout,
                over=self._all_reduce(),
                compression=make_compression(spec.replicas.compression, layout, seed=seed, load=load),
                thread=self._thread,
                may_lack=spec.trains_unknown_code,
            )

    def account(self) -> dict[str, Any]:
        return {
            "share": self.shares[self.replica],
            "all_reduce_bytes": sum(each.bytes_sent for each in self._exchanges()),
            "all_reduce_s": sum(each.communication_s for each in self._exchanges()),
        }

    def in_order(self, sums: ReplicaSums) -> ReplicaSums:
        return _AfterAverages(sums, self._settle) if self._group.name() == "nccl" else sums

    def _settle(self) -> None:
        """Wait until no average and no gather is under way."""
        if not all(each.done for each in self._exchanges()):
            self._thread.submit(lambda: None).result()  # the thread does one after another

    def _exchanges(self) -> list[Exchange[Any]]:
        return [*self._reducers.values(), *self._gathers.values()]

    def start(self, component: Component, samples: int) -> None:
        """Gradients that wait for their update are multiplied by the weight of their mini-batch: it may change."""
        weight, optimizers = self.weight(samples), component.optimizers().values()
        complete = [optimizer.gather(weight) for optimizer in optimizers]
        self._due[component.index] = all(complete)
        if not self._due[component.index]:
            return
        gradients = [parameter.grad for parameter in self._parameters[component.index]]
        weighted = any(optimizer.accumulates for optimizer in optimizers)
        self._reducers[component.index].start(gradients, weight, weighted=weighted)

    def finish(self, components: Sequence[Component]) -> Waiting[None]:
        due = {component.index: self._due.pop(component.index) for component in components}  # `start` came before
        yield from self._all_done([self._reducers[index] for index in due])
        for index in (index for index in due if due[index]):
            parameters = self._parameters[index]
            # Since `start` a gradient that shared its memory may have been copied (`separate_gradients`).
            averages = self._reducers[index].wait([parameter.grad for parameter in parameters])
            for parameter, gradient in zip(parameters, averages, strict=True):
                parameter.grad = gradient

    def start_gather(self, component: Component, own: torch.Tensor, samples: int) -> None:
        gather = self._gathers.get(component.index)
        if gather is None:
            gather = self._gathers[component.index] = RowGather(self._all_reduce(), self._thread)
        gather.start(own, shares_of_part(self.shares, samples))

    def gathered(self, components: Sequence[Component]) -> Waiting[dict[int, torch.Tensor]]:
        begun = {component.index: self._gathers[component.index] for component in components}
        yield from self._all_done(begun.values())
        return {index: gather.wait() for index, gather in begun.items()}

    def average_weights(self, step: int) -> Waiting[None]:
        if self._apart is None:
            return
        meeting = [index for index in self._parameters if self._apart.is_due(index, step)]
        if not self._outer:
            yield from self._mean({index: self._weights(index) for index in meeting})
            return
        for index in meeting:
            if index not in self._outer:
                continue  # it has no parameters
            self._reducers[index].start(self._outer[index].differences(), self.weight(self._batch_size))
            self._exchanged.add(index)
        arriving = [index for index in self._outer if self._apart.is_due(index, step - self._apart.delay)]
        yield from self._receive(arriving)
        for index in arriving:
            self._outer[index].take_waiting(late=self._apart.delay > 0)

    def mean_weights(self, step: int) -> Waiting[MeanWeights]:
        if self._apart is None:
            return {}
        yield from self._receive(self._outer)
        differ = [index for index in self._parameters if self._apart.delay > 0 or not self._apart.is_due(index, step)]
        copies = {index: [each.clone() for each in self._weights(index)] for index in differ}
        yield from self._mean(copies)
        return {index: dict(zip(self._parameters[index], means, strict=True)) for index, means in copies.items()}

    def _weights(self, index: int) -> list[torch.Tensor]:
        return [each.detach() for each in self._parameters[index]]

    def _receive(self, components: Collection[int]) -> Waiting[None]:
        """Wait for the mean differences of these components that are under way."""
        missing = sorted(self._exchanged & set(components))
        yield from self._all_done([self._reducers[index] for index in missing])
        for index in missing:
            received = self._reducers[index].wait()
            self._outer[index].waiting = [each for each in received if each is not None]
        self._exchanged -= set(missing)

    def _mean(self, weights: Mapping[int, list[torch.Tensor]]) -> Waiting[None]:
        """Replace these tensors by their mean over the replicas."""
        begun = [self._reducers[index] for index in weights]
        for reducer, tensors in zip(begun, weights.values(), strict=True):
            reducer.start(tensors, self.weight(self._batch_size))
        yield from self._all_done(begun)
        for reducer in begun:
            reducer.wait()

    def _all_done(self, under_way: Collection[GradientReducer | RowGather]) -> Waiting[None]:
        while self._in_turns and not all(each.done for each in under_way):
            yield
            time.sleep(LOOK_S)

    def state_dict(self, index: int) -> dict[str, torch.Tensor]:
        return self._lasting(index).state_dict()

    def load_state_dict(self, index: int, state: dict[str, torch.Tensor]) -> None:
        self._lasting(index).load_state_dict(state)

    def _lasting(self, index: int) -> OuterSteps | Compression:
        """What component `index` keeps from step to step."""
        return self._outer.get(index) or self._reducers[index].compression


@dataclass
class _AfterAverages:
    """Sums over NCCL within computations. Each starts when no average of gradients is under way.

    Averages are started by another thread, in another communicator. Two communicators of NCCL may wait for each other
    for ever where their operations start in one order on one rank and in the other order on another one (NCCL's user
    guide, "Using multiple NCCL communicators concurrently").
    """

    sums: ReplicaSums
    settle: Callable[[], None]

    def sum(self, tensor: torch.Tensor) -> None:
        self.settle()
        self.sums.sum(tensor)

    def gather(self, own: torch.Tensor) -> torch.Tensor:
        self.settle()
        return self.sums.gather(own)


class RowGather(Exchange[torch.Tensor]):
    """Gives every rank the rows of all ranks, in rank order. The ranks may have different numbers of rows."""

    _counts: Sequence[int] = ()

    def start(self, own: torch.Tensor, counts: Sequence[int]) -> None:
        """Start gathering `own`, shape (rows of this rank, width), which may change from here on.

        Args:
            counts: the number of rows of each rank.
        """
        assert self._under_way is None, "`wait` comes before the next `start`"
        assert len(own) == counts[self.over.rank], "a rank gives as many rows as it says"
        self._counts = counts
        # All ranks send tensors of one length.
        padded = own.new_zeros((max(counts), own.shape[1]), device="cpu")
        padded[: len(own)].copy_(own)
        self._under_way = self.thread.submit(self._gather, padded)

    def wait(self) -> torch.Tensor:
        """Return the rows of all ranks, shape (all rows, width), in host memory.

        Raises `ChannelError` if a peer was lost.
        """
        padded = self._ended()
        return torch.cat([rows[:count] for rows, count in zip(padded, self._counts, strict=True)])

    def _gather(self, padded: torch.Tensor) -> torch.Tensor:
        began = time.perf_counter()
        rows = self.over.gather(padded.flatten()).view(-1, *padded.shape)
        self.communication_s += time.perf_counter() - began
        return rows


class OuterSteps:
    """What the replicas of a component start from, and the momentum that changes it at each meeting.

    It is the same on all replicas. With start x, weights w of each replica, and momentum m, a meeting does

        d = mean over replicas of (x - w),   m = momentum m + d,   x = x - lr (d + momentum m)

    and the replicas go on from x, or with a delay from (w + x) / 2 (arXiv 2501.18512, section 2.3, with alpha 0.5). So
    it takes twice the memory of the parameters, and with a delay three times.
    """

    def __init__(self, section: OuterOptimizer, parameters: Sequence[nn.Parameter]) -> None:
        self._parameters = parameters
        self._starts = [parameter.detach().clone() for parameter in parameters]
        self._sgd = without_compiler(torch.optim.SGD)(
            self._starts, lr=section.lr, momentum=section.momentum, nesterov=section.momentum > 0
        )
        self.waiting: list[torch.Tensor] | None = None
        """The mean difference of a meeting whose result is not yet taken."""

    def differences(self) -> list[torch.Tensor]:
        """How far this replica has moved from the start, x - w."""
        return [start - own.detach() for start, own in zip(self._starts, self._parameters, strict=True)]

    def take_waiting(self, *, late: bool) -> None:
        """Change the start by the mean difference, and let this replica go on from it.

        There is none where a run was resumed on another number of replicas after the meeting: nothing changes then.

        Args:
            late: whether it has trained on since the meeting, and keeps half of its own weights.
        """
        if self.waiting is None:
            return
        for start, difference in zip(self._starts, self.waiting, strict=True):
            start.grad = difference
        self._sgd.step()
        with torch.no_grad():
            for start, own in zip(self._starts, self._parameters, strict=True):
                start.grad = None
                own.copy_(0.5 * own + 0.5 * start if late else start)
        self.waiting = None

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The state after a mini-batch, by name: tensors on the CPU that no later step changes."""
        state = {f"start.{number}": start for number, start in enumerate(self._starts)}
        for number, start in enumerate(self._starts):
            momentum = self._sgd.state.get(start, {}).get("momentum_buffer")
            if momentum is not None:
                state[f"momentum.{number}"] = momentum
        state |= {f"waiting.{number}": mean for number, mean in enumerate(self.waiting or ())}
        return {name: value.to("cpu", copy=True) for name, value in state.items()}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Load a state that `state_dict` returned; an empty one begins anew from the weights as they are."""
        waiting = []
        for number, (start, own) in enumerate(zip(self._starts, self._parameters, strict=True)):
            start.copy_(state.get(f"start.{number}", own.detach()))
            self._sgd.state.pop(start, None)
            if f"momentum.{number}" in state:
                self._sgd.state[start]["momentum_buffer"] = state[f"momentum.{number}"].to(start.device)
            if f"waiting.{number}" in state:
                waiting.append(state[f"waiting.{number}"].to(start.device))
        self.waiting = waiting or None
