"""The loop of one stage: it gives mini-batches to the stage in order, and makes the cuts between them.

The loop is a generator that yields only where it has to wait (see `alray.runtime.channel.edge`). So one process can run
all stages in turns. Where each stage has its own process, that process runs the loop to the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch

from alray.data.batches import Batch, TrainBatches
from alray.data.dataset import Dataset
from alray.models.encoder import Tensors
from alray.runtime.channel.edge import Waiting
from alray.runtime.channel.message import MessageKind
from alray.runtime.stage.assignment import Assignment
from alray.runtime.stage.clock import Clock
from alray.runtime.stage.copies import Copies
from alray.runtime.stage.cuts import Cuts
from alray.runtime.stage.learning_rate import Rates
from alray.runtime.stage.ports import Ports
from alray.runtime.stage.profiler import Profiler
from alray.runtime.stage.replication import Replication
from alray.runtime.stage.stage import MiniBatch, Stage
from alray.runtime.stage.telemetry import Losses, Telemetry


@dataclass
class StageLoop:
    """Runs one stage from its start to the cut that stops it. `alray.runtime.stage.assemble` makes one.

    Attributes:
        copies: None where components have no copies of others.
        emit: takes what the driver is to hear.
        open_data, feed: of stage 0, see `alray.runtime.stage.assemble`.
        dtype: in which the network computes.
        pinned: whether its mini-batches lie in pinned memory.
        peak_memory_bytes: of this stage so far, None where it is not measured.
    """

    assignment: Assignment
    stage: Stage
    ports: Ports
    cuts: Cuts
    copies: Copies | None
    clock: Clock
    replication: Replication
    emit: Callable[[Telemetry], None]
    feed: Callable[[Iterable[Batch]], Iterator[tuple[Batch, Tensors]]]
    dtype: torch.dtype
    pinned: bool
    open_data: Callable[[], Dataset]
    peak_memory_bytes: Callable[[], int | None]
    profiler: Profiler

    def __post_init__(self) -> None:
        self._rates = Rates(self.assignment.spec, self.assignment.code)
        self._epoch_began_s = 0.0  # `clock.by_samples_s` at the beginning of the epoch
        self._recorded: dict[str, int] = {}  # bytes sent, by the last record
        self._data: Dataset | None = None  # of stage 0, once it is open
        self._batches: TrainBatches | None = None  # while it waits for one of them
        self.cuts.before_checkpoint = self._record_rest
        self.step = self.assignment.start.step  # mini-batches completed

    def run(self) -> Waiting[None]:
        """The whole run of this stage. Raises what goes wrong on it; ends after the cut that stops."""
        if self.copies is not None and self.assignment.start.files is None:
            yield from self.copies.begin()
        yield from self._lead() if self.assignment.stage == 0 else self._follow()
        self._record_rest()
        for end in self.ports.senders:
            yield from end.flush()
        self.cuts.finish()
        self.clock.activity = "finished"

    def _lead(self) -> Waiting[None]:
        """Stage 0 reads the mini-batches and decides the cuts."""
        self.clock.activity = "opening"  # it may take long, as the driver knows, which opened the data too
        data = self._data = self.open_data()
        total = self.assignment.total_steps
        stopped = self.cuts.over(self.step) and (yield from self._cut(self.cuts.decided(self.step), data))
        while not stopped and self.step < total:
            end = self._shares_hold_until()
            batches = TrainBatches(
                data,
                seed=self.assignment.spec.seed,
                start_step=self.step,
                end_step=end,
                workers=self.assignment.spec.data.workers,
                dtype=self.dtype,
                shares=self.replication.shares,
                replica=self.replication.replica,
                pinned=self.pinned,
            )
            with batches:
                fed = self.feed(batches)
                self.clock.first_time = True  # workers start
                while not stopped and self.step < end:
                    self._batches = batches
                    with self.clock.measure("data", f"data {self.step}", self.step + 1):
                        batch, tensors = next(fed)
                    self._batches = None
                    decided = self.cuts.decided(batch.step + 1)
                    yield from self._train(batch.step + 1, tensors)
                    stopped = yield from self._cut(decided, data)

    @property
    def awaited(self) -> str:
        """The sample that stage 0 reads, or the mini-batch that it waits for, as another thread sees it; "": none."""
        data, batches = self._data, self._batches
        if data is None or data.reading:
            return "" if data is None else data.reading
        return "" if batches is None else batches.awaited

    def _cut(self, decided: Waiting[int], data: Dataset) -> Waiting[bool]:
        """The cut after the mini-batch just completed, if there is one; whether the run stops here."""
        flags = yield from decided
        return (yield from self.cuts.lead(flags, data, self.step))

    def _shares_hold_until(self) -> int:
        """The mini-batch after which replicas may take other shares: the last of the epoch, where shares change."""
        total, per_epoch = self.assignment.total_steps, self.assignment.data.steps_per_epoch
        if not self.replication.balances_shares:
            return total
        return min(total, (self.step // per_epoch + 1) * per_epoch)

    def _follow(self) -> Waiting[None]:
        """Every other stage does what comes, in the order it comes."""
        below = self.ports.up_from[0]
        assert below is not None, "every stage but the first has one below"
        stopped = False
        while not stopped:
            with self.clock.measure("receive_wait", "receive_wait", self.step + 1):
                message = yield from below.first()
            if message.kind is MessageKind.TRAIN:
                yield from self._train(message.step, {})
            else:
                message = yield from below.take(message.kind, message.step)
                below.release(message)
                stopped = yield from self.cuts.follow(message)

    def _train(self, step: int, tensors: Tensors) -> Waiting[None]:
        """One mini-batch.

        Args:
            tensors: the input of the first component on stage 0, nothing on the others.
        """
        assignment = self.assignment
        lr = self._rates.at(step, data=assignment.data, total_steps=assignment.total_steps, changes=self.cuts.changes)
        samples = assignment.samples(step)
        batch = MiniBatch(step, lr, samples, tensors)
        with self.profiler.mini_batch(step, self.clock):
            losses = yield from self.stage.mini_batch(batch, self.ports, self.clock)
        self.emit(Losses(step, losses, lr, self.clock.now_s(), self.replication.own_samples(samples)))
        if self.replication.averages_weights:
            with self.clock.measure("all_reduce", f"average {step - 1}", step):
                yield from self.replication.average_weights(step)
        if self.copies is not None:
            yield from self.copies.after(step)
        self.step = step
        self.clock.step_done()
        yield from self._balance_shares()
        if self.clock.window_due(step):
            self._close_window()
        yield  # in turns: the other stages run here

    def _balance_shares(self) -> Waiting[None]:
        """After an epoch, where shares follow the speed of the replicas.

        Only time that grows with the samples counts. An update takes as long whatever the share is.
        """
        per_epoch = self.assignment.data.steps_per_epoch
        if not self.replication.balances_shares or self.step % per_epoch:
            return
        computed_s = self.clock.by_samples_s - self._epoch_began_s
        with self.clock.measure("all_reduce", f"shares {self.step}", self.step):
            yield from self.replication.balance(self.step // per_epoch, computed_s)
        self._epoch_began_s = self.clock.by_samples_s

    def _record_rest(self) -> None:
        """Emit a record of what the records before do not have: before a checkpoint, so that none of the work that it
        keeps is missing if this process is killed later, and at the end."""
        if self.clock.steps_in_window or self.ports.bytes_sent() != self._recorded:
            self._close_window()

    def _uncompressed_bytes(self, sent: dict[str, int]) -> dict[str, int] | None:
        """What was sent, by edge, as it would be without compression; None where there is none."""
        if self.assignment.spec.pipeline.messages is None:
            return None
        whole = dict(sent)
        for own, run in enumerate(self.stage.work.runs):
            components = self.stage.work.components[run]
            up = self.ports.up_to[own], components[-1].sends.get("up")
            down = self.ports.down_to[own], components[0].sends.get("down")
            for outlet, passing in (up, down):
                if outlet is not None and passing is not None and outlet.edge in whole:
                    whole[outlet.edge] += passing.saved_bytes
        return whole

    def _close_window(self) -> None:
        """Emit the record of the mini-batches since the last one."""
        self._recorded = sent = self.ports.bytes_sent()
        record = self.clock.close_window(
            stage=self.assignment.stage,
            replica=self.assignment.replica,
            bytes_sent=sent,
            uncompressed_bytes=self._uncompressed_bytes(sent),
            peak_memory_bytes=self.peak_memory_bytes(),
            **self.replication.account(),
            **self.assignment.position(self.step),
        )
        if self.assignment.stage < self.assignment.plan.stages - 1:
            record.step_times_s = []  # a mini-batch is completed on the last stage
        below = self.ports.up_from[0]
        if below is not None and not self.assignment.pipelined:
            record.queued_messages = below.waiting()
        self.emit(record)
