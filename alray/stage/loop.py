"""The loop of one stage: receive, compute, send; and the cuts that travel with the mini-batches.

The loop is a generator that yields only where it cannot go on (see `alray.channel.edge`), so one process can run all
stages in turns, and a process of its own runs it to the end.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import nullcontext
from typing import Any

import torch

from alray.channel.message import CutFlag, Message, MessageKind
from alray.data.batches import Batch, TrainBatches
from alray.data.dataset import Data
from alray.device.memory_used import peak_memory_bytes
from alray.nn.component import Component
from alray.nn.encoder import Tensors
from alray.records import DepthAccuracy, EvaluationRecord
from alray.stage.action_list import action_list
from alray.stage.assignment import Assignment
from alray.stage.checkpoint import CheckpointWriter
from alray.stage.clock import Clock
from alray.stage.disturbance import slowdown
from alray.stage.evaluation import Evaluator
from alray.stage.inference import Inference
from alray.stage.leader import Control, Leader
from alray.stage.learning_rate import learning_rate
from alray.stage.losses import finite_values
from alray.stage.ports import Ports
from alray.stage.profiler import Profiler
from alray.stage.replication import Replication
from alray.stage.slowed import pass_time
from alray.stage.stage import ScheduledStage, Stage, SteppedStage
from alray.stage.telemetry import Losses, Telemetry

Turn = Generator[None, None, None]


class StageLoop:
    """Runs one stage from its start to the cut that stops it."""

    def __init__(
        self,
        assignment: Assignment,
        *,
        stage: Stage,
        device: torch.device,
        dtype: torch.dtype,
        links: Ports,
        control: Control,
        report: Callable[[Telemetry], None],
        baseline_bytes: int,
        measures_memory: bool,
        profiler: Profiler | None = None,
        replication: Replication | None = None,
    ) -> None:
        """report: takes what the driver is to hear, from this thread and from the checkpoint's.

        baseline_bytes: what the process held before the stage was built; measures_memory: whether the process is this
        stage's alone, so that its memory is the stage's; profiler: the process's, where some mini-batches are traced;
        replication: where there are several replicas.
        """
        self._assignment = assignment
        self._stage, self._device, self._dtype = stage, device, dtype
        self._links, self._control, self._report = links, control, report
        if isinstance(stage, ScheduledStage):
            stage.connect(links.wires)
        # Where a replica is slowed on purpose, that comes between B and the averaging.
        self._averages_in_backward = (
            replication is not None
            and not replication.averages_weights
            and assignment.spec.replicas.disturbance is None
            and isinstance(stage, SteppedStage)
        )
        if self._averages_in_backward:
            assert isinstance(stage, SteppedStage)
            stage.tell_of_gradients(self._start_averaging)
        self._baseline_bytes, self._measures_memory = baseline_bytes, measures_memory
        self._writer = CheckpointWriter(
            assignment.checkpoints, report, replica=assignment.replica, replication=replication
        )
        self._replication = replication
        # Seconds of computing, update excluded, until the epoch and until the mini-batch under way.
        self._epoch_began_s = self._step_began_s = 0.0
        self._actions = [] if assignment.pipelined else action_list(assignment.plan, assignment.stage)
        self.step = assignment.start.step
        self._profiler = profiler
        self.clock = Clock(started_wall_s=assignment.started_wall_s, start_step=self.step, profiled=assignment.profile)

    def run(self) -> Turn:
        """The whole run of this stage. Raises what goes wrong on it; ends after the cut that stops."""
        if self._assignment.stage == 0:
            yield from self._lead()
        else:
            yield from self._follow()
        if self.clock.steps_in_window:
            self._close_window()
        for end in self._links.senders:
            yield from end.flush()
        self._writer.finish()
        self.clock.activity = "finished"

    def _lead(self) -> Turn:
        """Stage 0: gives the mini-batches and decides the cuts."""
        assignment = self._assignment
        self.clock.activity = "data"  # however long it takes: the driver opened it too
        data = assignment.open_data()
        leader = Leader(
            assignment.spec.run,
            total_steps=assignment.total_steps,
            steps_per_epoch=assignment.data.steps_per_epoch,
            control=self._control,
        )
        if self.step >= assignment.total_steps:
            yield from self._decide(leader, data, leader.cut_after(self.step))
            return
        while self.step < assignment.total_steps:
            end = self._shares_hold_until()
            batches = TrainBatches(
                data,
                seed=assignment.spec.seed,
                start_step=self.step,
                end_step=end,
                workers=assignment.spec.data.workers,
                shares=self._replication.shares if self._replication else (),
                replica=assignment.replica,
            )
            with batches:
                while self.step < end:
                    with self.clock.measure("data", f"data {self.step}", self.step + 1):
                        batch = next(batches)
                        tensors = self._to_device(batch) | {"labels": batch.labels.to(self._device)}
                    cut = self._cut_is_decided(leader, batch.step + 1)
                    yield from self._train(batch.step + 1, tensors, None)
                    flags = yield from cut
                    if (yield from self._decide(leader, data, flags)):
                        return

    def _shares_hold_until(self) -> int:
        """Mini-batches until replicas may take other shares: to the end of the epoch where they are dealt anew."""
        total, per_epoch = self._assignment.total_steps, self._assignment.data.steps_per_epoch
        if self._replication is None or not self._replication.deals_shares:
            return total
        return min(total, (self.step // per_epoch + 1) * per_epoch)

    def _cut_is_decided(self, leader: Leader, step: int) -> Generator[None, None, int]:
        """Flags of the cut after mini-batch `step`, known once the generator that is returned has run.

        Replica 0 decides for all of them, before the mini-batch, so that the others need not wait for its word.
        """
        replication = self._replication
        if replication is None:
            return self._decided_alone(leader, step)
        if replication.replica == 0:
            replication.announce(f"cut {step}", leader.cut_after(step))
            if step > self._assignment.start.step + replication.lag:
                replication.forget(f"cut {step - replication.lag}")
        return replication.heard(f"cut {step}")

    def _decided_alone(self, leader: Leader, step: int) -> Generator[None, None, int]:
        yield from ()
        return leader.cut_after(step)

    def _decide(self, leader: Leader, data: Data, flags: int) -> Generator[None, None, bool]:
        """Send a cut and do this stage's part of it; whether the run stops here."""
        if not flags:
            return False
        evaluator = None
        if flags & CutFlag.EVALUATE and self._assignment.replica == 0:
            evaluator = Evaluator(data, leader.splits(flags), depths=self._assignment.plan.costs.depths)
        cut = Message(MessageKind.CUT, self.step, flags=flags, count=len(evaluator) if evaluator else 0)
        evaluation = yield from self._cut(cut, evaluator)
        if flags & CutFlag.STOP:
            return True
        reached = evaluation is not None and leader.reached(evaluation)
        if self._replication is not None and flags & CutFlag.EVALUATE and leader.stops_early:
            self._replication.announce(f"reached {self.step}", int(reached))
            reached = bool((yield from self._replication.heard(f"reached {self.step}")))
        if reached:
            everything = CutFlag.EVALUATE | CutFlag.CHECKPOINT | CutFlag.STOP
            return (yield from self._decide(leader, data, everything))
        return False

    def _follow(self) -> Turn:
        """Every other stage: does what comes, in the order it comes."""
        assert self._links.from_below is not None
        stop = False
        while not stop:
            with self.clock.measure("receive_wait", "receive_wait", self.step + 1):
                message = yield from self._links.from_below.receive()
            if message.kind is MessageKind.TRAIN:
                yield from self._train(message.step, message.tensors, message)
            else:
                flags = message.flags
                self._links.from_below.release(message)
                yield from self._cut(message, None)
                stop = bool(flags & CutFlag.STOP)

    def _train(self, step: int, tensors: Tensors, message: Message | None) -> Turn:
        """One mini-batch; `message` is what brought `tensors`, None on stage 0."""
        profiled = (
            self._profiler.mini_batch(step, self._stage.components, self.clock) if self._profiler else nullcontext()
        )
        self._step_began_s = self.clock.by_samples_s
        with profiled:
            if isinstance(self._stage, ScheduledStage):
                yield from self._mini_batch_in_one_call(self._stage, step, tensors, message)
            else:
                assert isinstance(self._stage, SteppedStage)
                yield from self._mini_batch_by_actions(self._stage, step, tensors, message)
        yield from self._average_weights(step)
        self.step = step
        self.clock.step_done()
        yield from self._deal_shares()
        if self.clock.window_due(step):
            self._close_window()
        yield  # in turns: the others go on here

    def _mini_batch_in_one_call(
        self, stage: ScheduledStage, step: int, tensors: Tensors, message: Message | None
    ) -> Turn:
        """Labels and mask go up, so that cuts keep their place between mini-batches; the rest is the stage's."""
        clock, links = self.clock, self._links
        if message is not None and links.from_below is not None:
            tensors = {name: value.clone() for name, value in tensors.items()}
            links.from_below.release(message)
        if links.to_above is not None:
            with clock.measure("send_wait", "send_wait", step):
                goes_up: Tensors = {name: tensors[name] for name in ("labels", "mask") if name in tensors}
                yield from links.to_above.send(Message(MessageKind.TRAIN, step, goes_up))
        losses = stage.train(tensors, step, clock)
        lr, label_lr = self._rates(step)
        self._take_losses(step, losses, lr)
        yield from self._replicate(step)
        with clock.measure("U", f"{self._assignment.stage}U{step - 1}", step):
            stage.update(lr, label_lr)

    def _mini_batch_by_actions(self, stage: SteppedStage, step: int, tensors: Tensors, message: Message | None) -> Turn:
        """The schedule's list of actions; the message's buffer is given back after U.

        Samples go before labels, on the edge too: the stage above can begin with them, and neither the label chain nor
        the losses are on the way of a mini-batch through all stages.
        """
        clock, links = self.clock, self._links
        passed_on: Tensors = {}
        labels: Tensors | None = None
        for number, (kind, before, behind) in enumerate(self._actions, start=1):
            text = f"{before}{step - 1}{behind}"
            if kind == "F":
                with clock.measure("F", text, step):
                    passed_on = stage.encoder_forward(tensors, step)
            elif kind == "B":
                if labels is None:
                    yield from self._complete(message, step)
                with clock.measure("B", text, step):
                    if labels is None:
                        labels = stage.label_forward(tensors)
                    losses = stage.backward()
                    if losses:
                        self._take_losses(step, losses, self._rates(step)[0])
            elif kind == "U":
                yield from self._replicate(step)
                with clock.measure("U", text, step):
                    stage.update(*self._rates(step))
                if message is not None and links.from_below is not None:
                    links.from_below.release(message)
            elif kind == "S" and links.to_above is not None:
                if labels is None:
                    with clock.measure("send_wait", "send_wait", step):
                        yield from links.to_above.begin(Message(MessageKind.TRAIN, step, passed_on))
                    yield from self._complete(message, step)
                    with clock.measure("B", f"{self._assignment.stage}B{step - 1}", step):
                        labels = stage.label_forward(tensors)
                with clock.measure("send_wait", "send_wait", step):
                    yield from links.to_above.send(Message(MessageKind.TRAIN, step, passed_on | labels))
            elif kind == "W" and links.barrier is not None:
                with clock.measure("barrier", "receive_wait", step):
                    # Behind the last action a stage waits for its next message, and stage 0 is the first to go on.
                    last = number == len(self._actions)
                    yield from links.barrier.gather() if last else links.barrier.wait()

    def _complete(self, message: Message | None, step: int) -> Turn:
        """Wait for the labels that belong to the samples of a mini-batch."""
        if message is not None and self._links.from_below is not None:
            with self.clock.measure("receive_wait", "receive_wait", step):
                yield from self._links.from_below.complete(message)

    def _replicate(self, step: int) -> Turn:
        """Between B and U: be slowed where the spec says so, and wait for the average of all gradients."""
        if self._assignment.spec.replicas.disturbance is not None:
            yield from self._be_slowed(step)
        if self._replication is None or self._replication.averages_weights:
            return
        if not self._averages_in_backward:
            for component in self._stage.components:
                self._start_averaging(component)
        with self.clock.measure("all_reduce", f"all_reduce {step - 1}", step):
            yield from self._replication.finish()

    def _start_averaging(self, component: Component) -> None:
        """Average its gradients of the mini-batch under way over the replicas, while the stage goes on."""
        assert self._replication is not None
        self._replication.start(component, self._samples(self.step + 1))

    def _average_weights(self, step: int) -> Turn:
        """After U, where replicas train apart and now and then take the mean of their weights."""
        if self._replication is None or not self._replication.averages_weights:
            return
        with self.clock.measure("all_reduce", f"average {step - 1}", step):
            yield from self._replication.average_weights(step)

    def _be_slowed(self, step: int) -> Turn:
        """As if the device were slower by the factor that `replicas.disturbance` gives for this replica and epoch."""
        spec, replica = self._assignment.spec, self._assignment.replica
        epoch = (step - 1) // self._assignment.data.steps_per_epoch
        factor = slowdown(spec.replicas.disturbance, replica, epoch, seed=spec.seed)
        computed_s = self.clock.by_samples_s - self._step_began_s
        with self.clock.measure("B", "disturbance", step):
            yield from pass_time((factor - 1.0) * computed_s)

    def _deal_shares(self) -> Turn:
        """After an epoch, where shares follow the speed of the replicas.

        An update takes as long whatever the share, so it would only blur by how much shares have to change.
        """
        replication, per_epoch = self._replication, self._assignment.data.steps_per_epoch
        if replication is None or not replication.deals_shares or self.step % per_epoch:
            return
        computed_s = self.clock.by_samples_s - self._epoch_began_s
        with self.clock.measure("all_reduce", f"shares {self.step}", self.step):
            yield from replication.deal(self.step // per_epoch, computed_s)
        self._epoch_began_s = self.clock.by_samples_s

    def _samples(self, step: int) -> int:
        """Samples of a mini-batch, over all replicas."""
        facts, batch_size = self._assignment.data, self._assignment.spec.data.batch_size
        return facts.samples(step, batch_size) - facts.samples(step - 1, batch_size)

    def _own_samples(self, step: int) -> int:
        """Samples of a mini-batch that this replica took."""
        samples = self._samples(step)
        return samples if self._replication is None else self._replication.own_samples(samples)

    def _rates(self, step: int) -> tuple[float, float]:
        """Learning rates of encoders and of the label chain for a mini-batch."""
        optimizer = self._assignment.spec.optimizer
        lr = self._rate(optimizer.lr, step)
        return lr, lr if optimizer.label_lr is None else self._rate(optimizer.label_lr, step)

    def _rate(self, base: float, step: int) -> float:
        assignment = self._assignment
        return learning_rate(
            base,
            assignment.spec.lr_schedule,
            step - 1,
            steps_per_epoch=assignment.data.steps_per_epoch,
            total_steps=assignment.total_steps,
            batch_size=assignment.spec.data.batch_size,
            accumulate=assignment.spec.optimizer.accumulate,
        )

    def _take_losses(self, step: int, losses: dict[int, Tensors], lr: float) -> None:
        """Report the losses of a mini-batch; raises NonFiniteLoss before the update that would spoil the weights."""
        values = finite_values(losses, step)
        self._report(Losses(step, values, lr, self.clock.now_s(), self._own_samples(step)))

    def _cut(self, message: Message, evaluator: Evaluator | None) -> Generator[None, None, EvaluationRecord | None]:
        """Do what a cut says, after sending it on."""
        if self._links.to_above is not None:
            yield from self._links.to_above.send(
                Message(MessageKind.CUT, message.step, flags=message.flags, count=message.count)
            )
        record = None
        if message.flags & CutFlag.EVALUATE:
            with self.clock.pause("evaluation"):
                record = yield from self._evaluate(message.count, evaluator)
        if message.flags & CutFlag.CHECKPOINT:
            with self.clock.pause("checkpoint"):
                self._writer.write(self._stage.components, self.step, final=bool(message.flags & CutFlag.STOP))
        return record

    def _evaluate(self, count: int, evaluator: Evaluator | None) -> Generator[None, None, EvaluationRecord | None]:
        """This stage's part of `count` evaluation batches; the record, on stage 0."""
        began_s = self.clock.now_s()
        inference = Inference(
            self._assignment.stage,
            self._assignment.plan.stages,
            links=self._links,
            clock=self.clock,
            evaluator=evaluator,
            to_device=self._to_device,
            step=self.step,
            count=count,
        )
        yield from inference.run(self._stage)
        if evaluator is None:
            return None
        return self._evaluation_record(evaluator.accuracies(), self.clock.now_s() - began_s)

    def _evaluation_record(self, per_depth: list[DepthAccuracy], duration_s: float) -> EvaluationRecord:
        whole = per_depth[-1] if per_depth else DepthAccuracy(depth=len(self._assignment.plan.costs.components))
        record = EvaluationRecord(
            **self._place(),
            train=whole.train,
            validation=whole.validation,
            test=whole.test,
            per_depth=per_depth,
            duration_s=duration_s,
        )
        self._report(record)
        return record

    def _place(self) -> dict[str, Any]:
        facts = self._assignment.data
        return {
            "time_s": self.clock.now_s(),
            "step": self.step,
            "epoch": self.step / facts.steps_per_epoch,
            "samples": facts.samples(self.step, self._assignment.spec.data.batch_size),
        }

    def _close_window(self) -> None:
        place = self._place()
        del place["time_s"]
        memory = peak_memory_bytes(self._device, self._baseline_bytes) if self._measures_memory else None
        self._report(
            self.clock.close_window(
                stage=self._assignment.stage,
                replica=self._assignment.replica,
                bytes_sent=self._bytes_sent(),
                peak_memory_bytes=memory,
                among_replicas=self._replication.account() if self._replication is not None else None,
                **place,
            )
        )

    def _bytes_sent(self) -> dict[str, int]:
        """By the loop's edges, and by the stage itself."""
        total = self._links.bytes_sent()
        for edge, count in self._stage.bytes_sent().items():
            total[edge] = total.get(edge, 0) + count
        return total

    def _to_device(self, batch: Batch) -> Tensors:
        return batch.inputs(self._device, self._dtype)
