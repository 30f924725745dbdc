"""Cuts: what all stages do between two mini-batches - evaluate, write a checkpoint, stop.

Stage 0 decides them (`alray.runtime.stage.leader`) and sends them up after a mini-batch, so that every stage cuts at
the same one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from alray.core.errors import DiskFault
from alray.core.run_folder.records import DepthScores, EvaluationRecord, Standing
from alray.core.run_folder.store import ComponentFile, step_folder
from alray.core.storage.location import Location, sync_folder
from alray.core.system_errors import ran_out
from alray.data.batches import Batch
from alray.data.dataset import Dataset
from alray.models.component import Component
from alray.models.encoder import Tensors
from alray.models.task import Measured
from alray.runtime.channel.edge import Waiting
from alray.runtime.channel.message import CutFlag, Message, MessageKind
from alray.runtime.stage.assignment import Assignment
from alray.runtime.stage.checkpoint import take_snapshot, write_snapshot
from alray.runtime.stage.clock import Clock
from alray.runtime.stage.copies import Copies
from alray.runtime.stage.inference import Evaluator, Inference
from alray.runtime.stage.leader import Control, Leader
from alray.runtime.stage.ports import Ports
from alray.runtime.stage.replica_state import take_replica_state, write_replica_state
from alray.runtime.stage.replication import MeanWeights, Replication, holding
from alray.runtime.stage.stage import Stage
from alray.runtime.stage.telemetry import CheckpointPart, Telemetry


@dataclass
class Cuts:
    """One stage's part of every cut. Replica 0 decides and evaluates; every replica writes what it alone keeps.

    Of replicas that average weights, cuts evaluate and keep the mean, and with a moving average of the weights that
    one. Neither is put into training, so a cut does not change the run.

    Attributes:
        copies: None where components have no copies of others.
        emit: takes what the driver is to hear.
        inputs: an evaluation batch as the first component takes it.
        measured: as in `Inference`.
        before_checkpoint: is called before this stage's part of a checkpoint is written.
    """

    assignment: Assignment
    stage: Stage
    ports: Ports
    clock: Clock
    replication: Replication
    copies: Copies | None
    control: Control
    emit: Callable[[Telemetry], None]
    inputs: Callable[[Batch], Tensors]
    measured: Measured | None
    before_checkpoint: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._leader = Leader(self.assignment, self.control)
        self._writer = CheckpointWriter(self.assignment.checkpoints, self.emit, self.replication)
        self._told: set[str] = set()
        self.changes = self.assignment.start.standing.plateau.changes
        """How often the metric has changed the learning rate."""

    def decided(self, step: int) -> Waiting[int]:
        """Flags of the cut after mini-batch `step`, on stage 0. Call it before that mini-batch, and run it after."""
        return self.replication.decided(f"cut {step}", lambda: self._leader.cut_after(step))

    def over(self, step: int) -> bool:
        """Whether nothing is left to train after `step` mini-batches, with which this stage starts."""
        return self._leader.over(step)

    def lead(self, flags: int, data: Dataset, step: int) -> Waiting[bool]:
        """On stage 0: make the cut with these flags after mini-batch `step`. Returns whether the run stops here."""
        if not flags:
            return False
        evaluator = None
        if flags & CutFlag.EVALUATE and self.assignment.replica == 0:
            evaluator = Evaluator(
                data,
                self._leader.splits(step),
                depths=self.assignment.plan.costs.depths,
                measured=self.measured is not None,
            )
        cut = Message(MessageKind.CUT, step, flags=flags, count=len(evaluator) if evaluator else 0)
        yield from self._make(cut, evaluator)
        if flags & CutFlag.STOP:
            return True
        if not (flags & CutFlag.EVALUATE and self._leader.minds_evaluations):
            return False
        decide = partial(self._leader.cut_after_evaluation, step, flags)
        return (yield from self.lead((yield from self.replication.decided(f"second cut {step}", decide)), data, step))

    def follow(self, message: Message) -> Waiting[bool]:
        """On every other stage: do what stage 0 decided. Returns whether the run stops here."""
        yield from self._make(message, None)
        return bool(message.flags & CutFlag.STOP)

    def finish(self) -> None:
        """Wait for the checkpoint that is still being written."""
        self._writer.finish()

    def _make(self, cut: Message, evaluator: Evaluator | None) -> Waiting[None]:
        """Send the cut on, complete the mini-batch that is under way, then do this stage's part of the cut."""
        above = self.ports.up_to[0]
        if above is not None and self.assignment.stage < self.assignment.plan.stages - 1:
            yield from above.send(Message(MessageKind.CUT, cut.step, flags=cut.flags, count=cut.count))
        yield from self.stage.finish(self.ports, self.clock)
        components = self.stage.components
        with self.clock.pause("all_reduce"):
            means = yield from self.replication.mean_weights(cut.step)
        if cut.flags & CutFlag.EVALUATE:
            with self.clock.pause("evaluation"), holding(components, means), ExitStack() as shown:
                for component in components:
                    shown.enter_context(component.showing_average())
                yield from self._evaluate(cut, evaluator)
        self.changes += bool(cut.flags & CutFlag.RATE)
        if self.copies is not None and cut.flags & (CutFlag.CHECKPOINT | CutFlag.STOP):
            with self.clock.pause("checkpoint"):
                yield from self.copies.complete()
        # A run that was over when it was resumed keeps the checkpoint it began with: other replicas may still read it.
        if cut.flags & CutFlag.CHECKPOINT and cut.step > self.assignment.start.step:
            self.before_checkpoint()
            leads = self.assignment.stage == self.assignment.replica == 0
            with self.clock.pause("checkpoint"):
                self._writer.write(
                    components,
                    cut.step,
                    means,
                    final=bool(cut.flags & CutFlag.STOP),
                    standing=self._leader.standing if leads else None,
                )

    def _evaluate(self, cut: Message, evaluator: Evaluator | None) -> Waiting[None]:
        """This stage's part of the evaluation; stage 0, which has the evaluator, reports the record."""
        began_s = self.clock.now_s()
        inference = Inference(
            self.assignment.stage,
            self.assignment.plan.stages,
            self.assignment.plan.held(self.assignment.stage),
            ports=self.ports,
            clock=self.clock,
            evaluator=evaluator,
            inputs=self.inputs,
            measured=self.measured,
            step=cut.step,
            count=cut.count,
        )
        yield from inference.run(self.stage)
        if evaluator is None:
            return
        per_depth = evaluator.scores()
        whole = per_depth[-1] if per_depth else DepthScores(depth=len(self.assignment.plan.costs.components))
        record = EvaluationRecord(
            time_s=self.clock.now_s(),
            **self.assignment.position(cut.step),
            metric=self.assignment.spec.task.measures.name,
            train=whole.train,
            validation=whole.validation,
            test=whole.test,
            per_depth=per_depth,
            further=whole.further,
            duration_s=self.clock.now_s() - began_s,
        )
        self._leader.heard(record)
        self.emit(record)
        for line in evaluator.told(per_depth):
            if line not in self._told:
                self._told.add(line)
                self.emit(self.assignment.warning(line, cut.step))


@dataclass
class CheckpointWriter:
    """Writes snapshots in the background, one checkpoint at a time.

    Replica 0 writes weights and optimizers, which are the same on all; of replicas that average weights it writes the
    mean of the weights. Each replica writes what it alone keeps.

    Attributes:
        emit: is called with each part that is on disk.
    """

    checkpoints: Location
    emit: Callable[[CheckpointPart], None]
    replication: Replication

    def __post_init__(self) -> None:
        self._pending: Future[None] | None = None

    def write(
        self,
        components: Sequence[Component],
        step: int,
        means: MeanWeights,
        *,
        final: bool,
        standing: Standing | None = None,
    ) -> None:
        """Take snapshots now and write them in the background. Waits for the checkpoint before it.

        Args:
            means: as from `Replication.mean_weights`.
            standing: of the run's evaluations, for the manifest; from stage 0 of replica 0.
        """
        began = time.perf_counter()
        self.finish()
        replication = self.replication
        snapshots = [take_snapshot(component) for component in components]
        states = [take_replica_state(own, replication, apart=bool(means)) for own in snapshots]
        if means and replication.replica == 0:
            with holding(components, means):
                snapshots = [take_snapshot(component) for component in components]
        shares = replication.shares if replication.balances_shares else ()

        def write() -> None:
            folder = self.checkpoints / step_folder(step)
            files: list[ComponentFile] = []
            for snapshot, state in zip(snapshots, states, strict=True):
                if replication.replica == 0:
                    files += write_snapshot(snapshot, folder)
                files += write_replica_state(snapshot.index, state, replication, folder)
            if files:
                sync_folder(folder)  # before the driver hears of them, and writes the manifest
            parameters: tuple[tuple[int, str], ...] = ()
            # Between two means, replicas that average weights differ.
            if replication.count > 1 and not replication.averages_weights:
                parameters = tuple((snapshot.index, snapshot.parameters_sha256()) for snapshot in snapshots)
            took_s = time.perf_counter() - began
            self.emit(CheckpointPart(step, tuple(files), took_s, final, parameters, shares, standing))

        executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"checkpoint-{step}")
        self._pending = executor.submit(write)
        executor.shutdown(wait=False)  # the thread ends with what it writes

    def finish(self) -> None:
        """Wait until everything is written. Raises DiskFault where the disk refused it."""
        if self._pending is None:
            return
        try:
            self._pending.result()
        except OSError as error:
            known = ran_out(error)
            raise DiskFault(
                f"a checkpoint could not be written: {known.problems[0].message if known else error}",
                file=str(self.checkpoints),
                hint=known.problems[0].hint if known else "make the folder writable, then resume",
            ) from error
        self._pending = None
