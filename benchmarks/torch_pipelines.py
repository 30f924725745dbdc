"""The same pipelines by torch.distributed.pipelining: the control of alray's executor.

torch orders forwards, backwards and messages. The components, the optimizers, the draws and the edges of one host are
alray's, so that two trainings differ in who executes the schedule alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, schedules

from alray.models.backpropagation import BackpropagationComponent
from alray.models.encoder import Tensors
from alray.models.network import Network
from alray.planning.prediction.plan import Plan
from alray.runtime.channel.edge import Receiver, Sender
from alray.runtime.channel.message import Message, MessageKind
from alray.runtime.stage.work.backpropagation import draw_purpose, losses_of, through

CLASSES = {
    "naive": "ScheduleGPipe",
    "gpipe": "ScheduleGPipe",
    "1f1b": "Schedule1F1B",
    "interleaved_1f1b": "ScheduleInterleaved1F1B",
    "zero_bubble": "ScheduleInterleavedZeroBubble",
    "zb_v": "ScheduleZBVZeroBubble",
    "dualpipe_v": "ScheduleDualPipeV",
}
_SEVERAL = ("interleaved_1f1b", "zero_bubble", "zb_v", "dualpipe_v")


class TorchPipeline:
    """One stage, whose mini-batches torch's schedule computes."""

    def __init__(
        self,
        plan: Plan,
        stage: int,
        components: Sequence[BackpropagationComponent],
        network: Network,
        edge_pairs: Mapping[int, EdgePair],
    ) -> None:
        self._components = list(components)
        self._micro_batches = plan.micro_batches
        held = {component.index: component for component in components}
        runs = plan.stage_plans[stage].runs
        parts = [_Part([held[index] for index in run], plan.micro_batches) for run in runs]
        self._parts = parts
        samples = plan.costs.batch_size // plan.micro_batches
        ends = [
            _End(part, virtual, plan, network, samples, edge_pairs)
            for virtual, part in zip(plan.held(stage), parts, strict=True)
        ]
        self._schedule = getattr(schedules, CLASSES[plan.schedule])(
            ends if plan.schedule in _SEVERAL else ends[0],
            n_microbatches=plan.micro_batches,
            loss_fn=lambda output, _: output,
            scale_grads=True,
        )

    def mini_batch(self, incoming: Tensors, step: int, lr: float) -> None:
        """Train on one mini-batch; every stage gets its labels and mask, the first one its samples too."""
        cut = {name: value.chunk(self._micro_batches) for name, value in incoming.items()}
        for part in self._parts:
            part.step = step
            part.along = [
                {name: values[number] for name, values in cut.items()} for number in range(len(cut["labels"]))
            ]
        for component in self._components:
            for optimizer in component.optimizers().values():
                optimizer.zero_grad()
        first = self._components[0].index == 0
        self._schedule.step(
            arg_mbs=[(s,) for s in cut["s"]] if first else None,
            target_mbs=[None] * self._micro_batches,
            losses=[],
            return_outputs=False,
        )
        for component in self._components:
            for optimizer in component.optimizers().values():
                optimizer.step(lr)


class _Part(nn.Module):
    """One virtual stage, one micro-batch at a time."""

    def __init__(self, components: list[BackpropagationComponent], micro_batches: int) -> None:
        super().__init__()
        self.held = components
        self.modules_held = nn.ModuleList(components)
        self._micro_batches = micro_batches
        self.step, self.micro_batch = 0, 0
        self.along: list[Tensors] = []

    def forward(self, s: torch.Tensor) -> torch.Tensor:
        """The input of the next virtual stage, or the loss."""
        incoming = self.along[self.micro_batch] | {"s": s}
        outgoing, scores = through(self.held, incoming, *draw_purpose(self.step, self.micro_batch, self._micro_batches))
        if scores:
            return losses_of(self.held, scores, incoming["labels"])[self.held[-1].index]
        s = outgoing["s"]
        return s.clone() if s._is_view() else s


class _End(PipelineStage):
    """A virtual stage as torch sees it."""

    def __init__(
        self, part: _Part, number: int, plan: Plan, network: Network, samples: int, edge_pairs: Mapping[int, EdgePair]
    ) -> None:
        first, last = network.encoders[part.held[0].index], network.encoders[part.held[-1].index]
        takes, gives = first.input.empty(samples, "meta"), last.output.empty(samples, "meta").requires_grad_()
        if part.held[-1].head is not None:
            gives = torch.empty((), dtype=network.dtype, device="meta", requires_grad=True)
        super().__init__(
            part,
            number,
            plan.stages * plan.virtual_stages,
            torch.device("cpu"),
            input_args=takes.requires_grad_() if number > 0 else takes,
            output_args=gives,
        )
        self._part = part
        self._edge_pairs = edge_pairs

    def forward_one_chunk(self, fwd_chunk_id: int, *arguments: Any, **named: Any) -> Any:
        self._part.micro_batch = fwd_chunk_id
        return super().forward_one_chunk(fwd_chunk_id, *arguments, **named)

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        return self._over_edges(super().get_fwd_send_ops(fwd_chunk_id), "send")

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        return self._over_edges(super().get_bwd_send_ops(bwd_chunk_id), "send")

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        return self._over_edges(super().get_fwd_recv_ops(fwd_chunk_id), "receive")

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        return self._over_edges(super().get_bwd_recv_ops(bwd_chunk_id), "receive")

    def _over_edges(self, operations: list[dist.P2POp], name: str) -> list[dist.P2POp]:
        # torch calls `op` with the tensor and the peer, and waits for what it returns.
        for operation in operations:
            operation.op = cast(Any, getattr(self._edge_pairs[operation.peer], name))
        return operations


class EdgePair:
    """Both directions between two neighbours, as torch's `isend` and `irecv`."""

    def __init__(self, sender: Sender, receiver: Receiver) -> None:
        self._sender = sender
        self._receiver = receiver
        self._expected: deque[_Arrival] = deque()

    def send(self, tensor: torch.Tensor, **_: Any) -> _Departure:
        """Send a tensor."""
        _done(self._sender.send(Message(MessageKind.TRAIN, 0, {"s": tensor.detach()})))
        return _Departure()

    def receive(self, tensor: torch.Tensor, **_: Any) -> _Arrival:
        """Expect the next tensor. It is in `tensor` after `wait` of the returned object."""
        arrival = _Arrival(self, tensor)
        self._expected.append(arrival)
        return arrival

    def take_until(self, arrival: _Arrival) -> None:
        """Receive the expected tensors in order, up to and including this one."""
        while arrival in self._expected:
            first = self._expected.popleft()
            message = _done(self._receiver.receive())
            with torch.no_grad():
                first.tensor.copy_(message.tensors["s"])
            self._receiver.release(message)


class _Arrival:
    def __init__(self, edges: EdgePair, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self._edges = edges

    def wait(self) -> bool:
        self._edges.take_until(self)
        return True


class _Departure:
    def wait(self) -> bool:
        return True


def _done(waiting: Any) -> Any:
    """The result of an operation of an edge between processes, which blocks and never yields."""
    try:
        next(waiting)
    except StopIteration as ended:
        return ended.value
    raise AssertionError("an edge between processes never yields")
