"""A stage of a backpropagation pipeline: torch.distributed.pipelining orders its work and moves s and gradients.

Each mini-batch is one call, which runs torch's schedule on this stage. Its computations have the order that the
schedule's file in `alray.schedules` lists; a test compares the two. Messages are laid out once, from shapes that are
known, so no stage asks another what to expect. Tensors travel over alray's own edges where the stage has one (see
`alray.channel.edge_kind`), and otherwise through host memory, over gloo. Two stages may share one GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, schedules

from alray.channel.edge import Waiting
from alray.channel.message import Message, MessageKind
from alray.channel.point_to_point import lost_neighbour
from alray.channel.wire import Wire
from alray.device.out_of_memory import is_out_of_memory
from alray.errors import AlrayError, StageError
from alray.nn.component import backward_of
from alray.nn.encoder import Tensors
from alray.nn.methods.backpropagation import BackpropagationComponent
from alray.nn.network import Network
from alray.prediction.plan import Plan
from alray.randomness.generators import seed_all
from alray.schedules.actions import Action, ActionKind
from alray.schedules.table import SCHEDULES
from alray.stage.clock import Clock
from alray.stage.disturbance import Slowdown
from alray.stage.ports import Ports
from alray.stage.replication import Replication
from alray.stage.stages.backpropagation import class_scores, draw_purpose, step_optimizers, through, zero_gradients
from alray.stage.stages.stage import LossValues, MiniBatch, Stage, finite_values
from alray.user_code import FAULTS_OF_USER_CODE

_HOST = torch.device("cpu")


@dataclass
class _Shared:
    """The facts about the current mini-batch, which all virtual stages of a stage share."""

    micro_batches: int
    step: int = 0
    labels: tuple[torch.Tensor, ...] = ()  # of each micro-batch, on the last stage
    masks: tuple[torch.Tensor, ...] = ()  # of each micro-batch of text
    clock: Clock | None = None


class _Fault(BaseException):
    """An error that a computation raised, wrapped so that it gets out of torch's schedule.

    Not an Exception: on those a schedule first waits for what it has sent, and neighbours that wait for this stage may
    never take it.
    """

    def __init__(self, raised: Exception) -> None:
        super().__init__()
        self.raised = raised


@contextmanager
def _without_torch() -> Iterator[None]:
    """Inside, raise the errors of components unchanged: torch makes them the cause of an error of its own."""
    try:
        yield
    except FAULTS_OF_USER_CODE as error:
        cause = error.__cause__
        if isinstance(error, AlrayError) or not isinstance(cause, Exception):
            raise
        raise cause from cause.__cause__


class PipelinedStage(Stage):
    """The components of one stage, in one separate run for each virtual stage."""

    routes_come_down = False

    def __init__(
        self,
        plan: Plan,
        stage: int,
        components: Sequence[BackpropagationComponent],
        replication: Replication,
        slowdown: Slowdown | None = None,
        *,
        network: Network,
        device: torch.device,
        batch_size: int,
        wires: Mapping[int, Wire],
        recompute: bool = False,
    ) -> None:
        """
        Args:
            components: those of `plan.stage_plans[stage]`, in its order.
            recompute: whether they keep their inputs only.
            wires: edges to other stages, by their number. To a stage that is not among them, messages go over the
                default process group, in which every stage has one rank.
        """
        super().__init__(components, replication, slowdown)
        self._plan = plan
        self._stage = stage
        self._device = device
        self._chain = list(components)
        self.virtual_stages = plan.virtual_stages
        self._batch = _Shared(plan.micro_batches)
        held = {component.index: component for component in components}
        self._parts = [
            _VirtualStage([held[index] for index in run], network, self._batch, device, recompute)
            for run in plan.stage_plans[stage].runs
        ]
        samples = batch_size // plan.micro_batches
        # gloo takes tensors in host memory only; an edge of alray takes them as they are.
        host = any(peer not in wires for peer in plan.pipeline_peers(stage))
        outside = _HOST if host else device
        self._ends = [
            _End(part, stage + number * plan.stages, plan, network, samples, self._batch, wires, outside)
            for number, part in enumerate(self._parts)
        ]
        schedule = SCHEDULES[plan.schedule]
        assert schedule.torch_class is not None, "a pipeline names the class that runs it"
        self._schedule = getattr(schedules, schedule.torch_class)(
            self._ends if schedule.has_virtual_stages else self._ends[0],
            n_microbatches=plan.micro_batches,
            # A part that ends in the loss gives it as its output; scaling makes it that of the whole mini-batch.
            loss_fn=lambda output, _: output,
            scale_grads=True,
        )

    @property
    def holds_loss(self) -> bool:
        """Whether this stage holds the last component."""
        return self._parts[-1].ends_in_loss

    @property
    def _averages_in_backward(self) -> bool:
        """No: gradients are complete, and scaled, when torch's schedule is at its end."""
        return False

    def mini_batch(self, batch: MiniBatch, ports: Ports, clock: Clock) -> Waiting[LossValues]:
        """Send labels and mask up, so that cuts stay between the same mini-batches; then run torch's schedule."""
        began_s = clock.by_samples_s
        step = batch.step
        incoming = batch.incoming
        if batch.message is not None and ports.from_below is not None:
            incoming = {name: value.clone() for name, value in incoming.items()}
            ports.from_below.release(batch.message)
        if ports.to_above is not None:
            with clock.measure("send_wait", "send_wait", step):
                goes_up: Tensors = {name: incoming[name] for name in ("labels", "mask") if name in incoming}
                yield from ports.to_above.send(Message(MessageKind.TRAIN, step, goes_up))
        losses = finite_values(self.train(incoming, step, clock), step)
        yield from self._average_gradients(self.components, batch, clock, began_s)
        with clock.measure("U", f"{self._stage}U{step - 1}", step):
            self.update(batch.lr)
        return losses

    def train(self, incoming: Tensors, step: int, clock: Clock) -> Mapping[int, Tensors]:
        """F and B of all micro-batches. Returns the mean loss where the last component is here.

        Args:
            incoming: labels, and the mask of text; on stage 0 the samples too.

        Raises:
            ChannelError: where a neighbour is gone, and what a component's own code raised.
        """
        shared = self._batch
        shared.step = step
        shared.clock = clock
        shared.labels = incoming["labels"].chunk(shared.micro_batches) if self.holds_loss else ()
        shared.masks = incoming["mask"].chunk(shared.micro_batches) if "mask" in incoming else ()
        samples = incoming.get("s")
        zero_gradients(self._chain)
        losses: list[torch.Tensor] = []
        try:
            with clock.between("receive_wait"):
                self._schedule.step(
                    arg_mbs=[(s,) for s in samples.chunk(shared.micro_batches)] if samples is not None else None,
                    target_mbs=[None] * shared.micro_batches,
                    losses=losses,
                    return_outputs=False,
                )
        except _Fault as fault:
            raise fault.raised from fault.raised.__cause__
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            raise lost_neighbour(f"of stage {self._stage} in the pipeline", error) from error
        if not self.holds_loss:
            return {}
        return {
            self._chain[-1].index: {self._chain[-1].loss_name: torch.stack([loss.detach() for loss in losses]).mean()}
        }

    def bytes_sent(self) -> dict[str, int]:
        """Bytes of outputs and gradients sent so far, by edge."""
        total: dict[str, int] = {}
        for end in self._ends:
            for peer, count in end.bytes_to.items():
                edge = f"{self._stage}->{peer}"
                total[edge] = total.get(edge, 0) + count
        return total

    def update(self, lr: float) -> None:
        """U: one step of the optimizers of every component."""
        step_optimizers(self._chain, lr)

    @torch.no_grad()
    def infer_up(self, incoming: Tensors, step: int, batch: int, own: int = 0) -> tuple[Tensors, list[torch.Tensor]]:
        """E: the last virtual stage has the class scores `[N, classes]`."""
        part = self._parts[own]
        if part.ends_in_loss:
            return {}, [class_scores(part.held, incoming, step, "evaluation", batch)]
        return through(part.held, incoming, step, "evaluation", batch), []

    @torch.no_grad()
    def infer_down(self, routes: list[torch.Tensor], own: int = 0) -> list[torch.Tensor]:
        return routes


class _VirtualStage(nn.Module):
    """One virtual stage: a run of components, one micro-batch at a time."""

    def __init__(
        self,
        components: list[BackpropagationComponent],
        network: Network,
        batch: _Shared,
        device: torch.device,
        recompute: bool,
    ) -> None:
        super().__init__()
        self.held = components
        self._recompute = recompute
        self.modules_held = nn.ModuleList(components)
        self.ends_in_loss = components[-1].head is not None
        self.takes_mask = "mask" in network.encoders[components[0].index].takes_along
        self.micro_batch = 0
        self.gives: torch.Size | None = None
        self._batch = batch
        self._device = device
        self.outside = device
        """Where tensors are when they leave this stage."""

    def forward(self, s: torch.Tensor) -> torch.Tensor:
        """Return the input of the next virtual stage, or the loss of the micro-batch."""
        batch = self._batch
        purpose = draw_purpose(batch.step, self.micro_batch, batch.micro_batches)
        incoming = {"s": s.to(self._device)}
        if self.takes_mask:
            incoming["mask"] = batch.masks[self.micro_batch]
        if self.ends_in_loss:
            labels = batch.labels[self.micro_batch]
            scores = class_scores(self.held, incoming, *purpose, recompute=self._recompute)
            return self.held[-1].loss(scores, labels)
        s = through(self.held, incoming, *purpose, recompute=self._recompute)["s"].to(self.outside)
        if s.shape != self.gives:  # gloo would end the neighbour's process
            raise StageError(
                f"components {self.held[0].index} to {self.held[-1].index} gave {tuple(s.shape)} for a micro-batch, "
                f"the edge was laid out for {tuple(self.gives or ())}",
                hint="the shape of a block's output must be fixed, and the same as on the meta device",
            )
        if not s.requires_grad:
            return s.detach().requires_grad_()  # a gradient comes for whatever was sent
        # torch detaches what it sent in place, which it refuses for a view, such as what a user's block may give.
        return s.clone() if s._is_view() else s

    def seed_weight_gradients(self, micro_batch: int) -> None:
        """Before the second part of a split backward pass, in which a user's block may draw once more."""
        batch = self._batch
        if any(component.f.own for component in self.held):
            purpose = draw_purpose(batch.step, micro_batch, batch.micro_batches)
            first = self.held[0]
            seed_all(self._device, first.f.seed, "draw", first.index, *first.f.purpose(*purpose), "weights")


class _End(PipelineStage):
    """A virtual stage as torch sees it, its computations measured and its bytes counted.

    Every virtual stage but the first one's input asks for a gradient, whether or not a component below learns: torch's
    split backward finds the weights on the way from that input, and would miss those of a stage without.
    """

    def __init__(
        self,
        part: _VirtualStage,
        number: int,
        plan: Plan,
        network: Network,
        samples: int,
        batch: _Shared,
        wires: Mapping[int, Wire],
        outside: torch.device,
    ) -> None:
        """
        Args:
            number: of the virtual stage, of `plan.stages * plan.virtual_stages`.
            samples: in a micro-batch.
            outside: where tensors are between two stages.
        """
        first, last = network.encoders[part.held[0].index], network.encoders[part.held[-1].index]
        takes, gives = first.input.empty(samples, "meta"), last.output.empty(samples, "meta").requires_grad_()
        if part.ends_in_loss:
            gives = torch.empty((), dtype=network.dtype, device="meta", requires_grad=True)
        super().__init__(
            part,
            number,
            plan.stages * plan.virtual_stages,
            outside,
            input_args=takes.requires_grad_() if number > 0 else takes,
            output_args=gives,
        )
        part.gives = gives.shape
        part.outside = outside
        self.bytes_to: dict[int, int] = {}
        self._part = part
        self._batch = batch
        self._wires = wires

    def forward_one_chunk(self, fwd_chunk_id: int, *arguments: Any, **named: Any) -> Any:
        self._part.micro_batch = fwd_chunk_id
        return self._measured("F", fwd_chunk_id, super().forward_one_chunk, arguments, named)

    def backward_one_chunk(self, bwd_chunk_id: int, *arguments: Any, **named: Any) -> None:
        kind: ActionKind = "B" if named.get("full_backward", True) else "I"
        self._measured(kind, bwd_chunk_id, super().backward_one_chunk, arguments, named)

    def backward_weight_one_chunk(self, bwd_chunk_id: int, *arguments: Any, **named: Any) -> None:
        self._measured("G", bwd_chunk_id, super().backward_weight_one_chunk, arguments, named)

    def _measured(self, kind: ActionKind, micro_batch: int, compute: Any, arguments: Any, named: Any) -> Any:
        clock, step = self._batch.clock, self._batch.step
        assert clock is not None, "the schedule runs in `train` only"
        text = str(Action(self.stage_index, kind, step - 1, micro_batch))
        if kind == "G":  # torch runs parts of a block's backward pass once more
            self._part.seed_weight_gradients(micro_batch)
        naming = nullcontext() if kind == "F" else backward_of(self._part.held)
        try:
            with clock.measure("F" if kind == "F" else "B", text, step), naming, _without_torch():
                return compute(micro_batch, *arguments, **named)
        except FAULTS_OF_USER_CODE as error:
            raise _Fault(error) from None

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        return self._sends(super().get_fwd_send_ops(fwd_chunk_id))

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        return self._sends(super().get_bwd_send_ops(bwd_chunk_id))

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        return self._receives(super().get_fwd_recv_ops(fwd_chunk_id))

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        return self._receives(super().get_bwd_recv_ops(bwd_chunk_id))

    def _sends(self, operations: list[dist.P2POp]) -> list[dist.P2POp]:
        for operation in operations:
            self.bytes_to[operation.peer] = self.bytes_to.get(operation.peer, 0) + operation.tensor.nbytes
            if operation.peer in self._wires:
                operation.op = cast(Any, self._wires[operation.peer].send)
        return operations

    def _receives(self, operations: list[dist.P2POp]) -> list[dist.P2POp]:
        # torch calls `op` with the tensor and the peer, and waits for what it returns.
        for operation in operations:
            if operation.peer in self._wires:
                operation.op = cast(Any, self._wires[operation.peer].receive)
        return operations
