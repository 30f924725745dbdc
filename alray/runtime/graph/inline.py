"""The graph in one process, without Ray: the same plan and the same loops take turns."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from typing import IO, Any

import torch
import torch.distributed as dist

from alray.core import accelerator
from alray.core.randomness.one_at_a_time import others_let_in
from alray.core.storage.appended import opened_log
from alray.planning.prediction.plan import Plan
from alray.runtime.channel.edge import Sender
from alray.runtime.channel.in_process import Queue, TurnBarrier
from alray.runtime.channel.inbox import Inbox
from alray.runtime.device import devices
from alray.runtime.device.memory_used import memory_baseline
from alray.runtime.device.out_of_memory import clear_frames
from alray.runtime.graph.graph import Graph, Outbox, status_of
from alray.runtime.rendezvous.groups import replica_group
from alray.runtime.stage.assemble import assemble_loop, clock_for, network_for
from alray.runtime.stage.assignment import Assignment
from alray.runtime.stage.leader import Control
from alray.runtime.stage.loop import StageLoop
from alray.runtime.stage.ports import WAITING_COPIES, Ports, Stream
from alray.runtime.stage.profiler import Profiler, prepare_recording
from alray.runtime.stage.replication import ReplicaPeers
from alray.runtime.stage.telemetry import StageStatus

_GROUP_S = 30 * 24 * 3600.0
"""Replicas in one process cannot lose each other, and wait as long as the first one evaluates or its user debugs it."""
_ASK_AGAIN_S = 0.4
"""After so many seconds a pause that has not begun is asked whether it is still wanted."""
_TOLD_S = 5.0
"""A wait for what an earlier run computes is told after so many seconds."""
_left: list[Future[None]] = []
"""Of graphs of this process that were closed while they computed. Such a one ends its turn and restores torch's
settings before another one computes."""


class InlineGraph(Graph):
    """Stages take turns on one thread: each runs until it has to wait for another one."""

    ends_what_hangs = False  # a thread cannot be ended, and shares torch's random numbers with the next one

    def __init__(self, *, alone: bool = False) -> None:
        """
        Args:
            alone: this process does nothing but this run.
        """
        self._alone = alone
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="alray-inline")
        self._control = Control()
        self._abandoned = False
        self._outcome: Future[None] = Future()
        self._assignments: Sequence[Assignment] = ()
        self._loops: list[StageLoop] = []
        self._outboxes: list[Outbox] = []
        self._received: list[int] = []  # reports of each stage that the driver has
        self._turn_of = 0
        self._driver = 0
        self._device = torch.device("cpu")
        self._computing = threading.Lock()  # the stages hold it, but between two turns
        self._next = threading.Lock()  # who holds it computes next: a pause would wait for ever for a free moment

    def start(self, assignments: Sequence[Assignment]) -> None:
        self._assignments = assignments
        self._driver = threading.get_ident()
        self._outboxes = [Outbox() for _ in assignments]
        self._received = [0] * len(assignments)
        if assignments[0].profile:
            prepare_recording()
        self._outcome = self._executor.submit(self._run)

    def poll(self, timeout_s: float) -> list[StageStatus]:
        wait([self._outcome], timeout=timeout_s)
        statuses = []
        for index, (assignment, outbox) in enumerate(zip(self._assignments, self._outboxes, strict=True)):
            loop = self._loops[index] if index < len(self._loops) else None
            # An error of the one thread is that of the stage whose turn it was.
            mine = self._outcome
            if mine.done() and mine.exception() is not None and index != self._turn_of:
                mine = Future()
            statuses.append(status_of(assignment, loop, outbox, mine, received=self._received[index]))
            self._received[index] += len(statuses[-1].reports)
        return statuses

    @contextmanager
    def paused(self, unless: Callable[[], bool]) -> Iterator[None]:
        with self._next:
            began = False
            while not began and not unless():
                began = self._computing.acquire(timeout=_ASK_AGAIN_S)
            try:
                yield
            finally:
                if began:
                    try:
                        wait(_left)  # of a run of the callback
                    finally:  # a third Ctrl-C may end the wait
                        self._computing.release()

    def request_stop(self) -> None:
        self._control.stop_requested = True

    def close(self) -> None:
        self._abandoned = True
        ended = self._outcome.done()
        self._executor.shutdown(wait=ended, cancel_futures=True)
        if self._outcome.running():
            _left.append(self._outcome)
            self._outcome.add_done_callback(_left.remove)
        whole = ended and self._outcome.exception() is None
        with accelerator.using(self._device):  # this thread may have none, as that of a trial
            # It is called at once if that has ended.
            self._outcome.add_done_callback(partial(self._let_go, whole=whole))

    def _let_go(self, outcome: Future[None], *, whole: bool) -> None:
        """Let go of the stages, of which nobody hears any more.

        Where they have not come to their end, a replica may wait for a sum with another one, in a thread that this
        process would wait for before it ends. It waits no longer once the group of the other one is gone.

        Args:
            whole: whether all stages have come to their end.
        """
        self._loops = []  # with them go weights, groups and rings
        if not outcome.cancelled():
            clear_frames(outcome.exception())  # with them what was being computed
        self._outcome = Future()
        if not whole or accelerator.available() is not None:
            gc.collect()
            accelerator.free_unused_memory(after_failure=not whole)  # another process may need the memory of the GPU

    def _run(self) -> None:
        first = self._assignments[0]
        with ExitStack() as stack:
            stack.enter_context(self._computing)
            if wait(_left, timeout=_TOLD_S).not_done:
                warning = "an earlier run of this process still computes, and this one waits for its turn to end"
                self._outboxes[0].put(first.warning(warning))
            wait(_left)
            # What a user's code prints goes to the log, as where each stage is a process.
            file, outbox = first.run_dir / "logs" / "stage-0.log", self._outboxes[0]
            descriptor = stack.enter_context(opened_log(file, lambda fault: outbox.put(first.warning(fault))))
            log = os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
            stack.enter_context(log)
            stack.enter_context(redirect_stdout(_OfStages(log, sys.stdout, self._driver)))
            stack.enter_context(redirect_stderr(_OfStages(log, sys.stderr, self._driver)))
            device = self._device = _device_of(first)
            resources = first.spec.resources
            stack.enter_context(
                devices.configured(resources.threads, first.spec.run.deterministic, device, resources.tf32)
            )
            every = len(self._assignments)
            profiler = Profiler(first.profile, first.trace, stages=every, device=device)
            self._build(stack.enter_context(closing(profiler)))
            self._take_turns()

    def _build(self, profiler: Profiler) -> None:
        network = network_for(self._assignments[0])
        plan = self._assignments[0].plan
        copying = network.method.copy_every is not None
        ports = [end for _ in range(plan.replicas) for end in _ports(plan, copying=copying)]
        peers = self._peers()
        one_stage = len(self._assignments) == 1
        for index, assignment in enumerate(self._assignments):
            self._turn_of = index
            device = _device_of(assignment)
            self._loops.append(
                assemble_loop(
                    assignment,
                    network=network,
                    device=device,
                    ports=ports[index],
                    clock=clock_for(assignment, device),
                    control=self._control,
                    emit=self._outboxes[index].put,
                    replicas=peers[index],
                    profiler=profiler,
                    # Only the allocator of a GPU tells the memory of a stage from what else its process has.
                    baseline_bytes=memory_baseline(device)
                    if one_stage and (self._alone or accelerator.is_accelerator(device))
                    else None,
                )
            )

    def _peers(self) -> Sequence[ReplicaPeers | None]:
        """How each stage of each replica reaches the others; None for one replica.

        Sums go through the same code as between processes, so that they have the same bits.
        """
        every = len(self._assignments)
        if self._assignments[0].plan.replicas == 1:
            return [None] * every
        store = dist.HashStore()
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        with ThreadPoolExecutor(max_workers=every) as meeting:
            met = [meeting.submit(replica_group, store, assignment, _GROUP_S) for assignment in self._assignments]
            return [ReplicaPeers(one.result(), store, _GROUP_S, in_turns=True) for one in met]

    def _take_turns(self) -> None:
        turns = {stage: loop.run() for stage, loop in enumerate(self._loops)}
        while turns and not self._abandoned:
            for stage in list(turns):
                self._turn_of = stage
                if next(turns[stage], _ENDED) is _ENDED:
                    del turns[stage]
                self._let_pause()

    def _let_pause(self) -> None:
        """Let a pause begin that waits for the end of this turn, and wait until it has ended. Other threads
        that compute with alray, such as an evaluation, do so now, too."""
        with others_let_in():
            self._computing.release()
            with self._next:
                self._computing.acquire()


_ENDED = object()


class _OfStages:
    """A standard stream of this process, as which the stages have their log, and the thread of the driver what it had
    before: callbacks of the user print there."""

    def __init__(self, log: IO[str], before: IO[str], driver: int) -> None:
        """
        Args:
            driver: the number of its thread.
        """
        self._log, self._before, self._driver = log, before, driver

    def __getattr__(self, name: str) -> Any:
        return getattr(self._before if threading.get_ident() == self._driver else self._log, name)


def _device_of(assignment: Assignment) -> torch.device:
    """All stages of one process compute on the same CPU or GPU: on the GPU if any asks for one."""
    return devices.pick(assignment.spec.resources.resolved_device)


def _ports(plan: Plan, *, copying: bool) -> list[Ports]:
    """The ports of every stage of one replica.

    Args:
        copying: whether copies go from the last stage to all others.
    """
    last = plan.stages - 1
    senders: list[dict[tuple[Stream, int], Sender]] = [{} for _ in range(plan.stages)]
    inboxes: list[dict[tuple[Stream, int], Inbox]] = [{} for _ in range(plan.stages)]
    for lower, upper in plan.edges_between():
        up = senders[lower]["up", upper] = Queue(f"{lower}->{upper}", plan.waiting(lower, upper, down=False))
        inboxes[upper]["up", lower] = Inbox(up)
        down = senders[upper]["down", lower] = Queue(f"{upper}->{lower}", plan.waiting(upper, lower, down=True))
        inboxes[lower]["down", upper] = Inbox(down)
    barrier = TurnBarrier(plan.stages) if last > 0 else None
    copies = [Queue(f"{last}->{stage}", WAITING_COPIES) for stage in range(last)] if copying else []
    return [
        Ports.of(
            plan,
            stage,
            senders=senders[stage],
            inboxes=inboxes[stage],
            barrier=barrier,
            copies=copies[stage] if stage < len(copies) else None,
            copies_below=copies if stage == last else (),
        )
        for stage in range(plan.stages)
    ]
