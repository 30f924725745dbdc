"""Two engines train copies of one pipeline's components in the same processes, in turns of a block of mini-batches.

A ratio compares the two blocks of one turn. At the end both copies must have the same weights.
"""

from __future__ import annotations

import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch
import torch.distributed as dist

from alray.config.loading.load import load_spec
from alray.config.sections.spec import Spec
from alray.config.user_code import UserCode
from alray.core.run_folder.records import Span
from alray.data.batches import TrainBatches
from alray.models.component import Component
from alray.models.encoder import Tensors
from alray.models.network import Network
from alray.planning.prediction.plan import Plan
from alray.planning.prediction.program import Program
from alray.planning.prediction.simulate import unhindered_steps
from alray.planning.schedules.actions import COMPUTE, Action, ActionKind, parse
from alray.planning.schedules.durations import Durations
from alray.planning.schedules.recomputation import schedule_with
from alray.runtime.channel.inbox import Inbox
from alray.runtime.channel.shared_memory import SharedMemoryReceiver, SharedMemorySender, SlotRing
from alray.runtime.device import devices
from alray.runtime.options import Options
from alray.runtime.planner.planning import Planner
from alray.runtime.runner.driver import assignments
from alray.runtime.stage.assemble import network_for, stage_of
from alray.runtime.stage.assignment import Start
from alray.runtime.stage.clock import Clock
from alray.runtime.stage.ports import MessageSizes, Ports, Stream
from alray.runtime.stage.stage import MiniBatch

PAIRS, BLOCK = 7, 6
LR = 1e-3

Engine = Callable[[Tensors, int], None]
"""Trains on a mini-batch with this number, counted from 1."""


@dataclass(frozen=True)
class Place:
    """One process of the pipeline: what the engines share there."""

    plan: Plan
    stage: int
    network: Network
    sizes: MessageSizes
    edges: Edges
    ports: Ports
    clock: Clock

    def executed(self, components: Sequence[Component], actions: Sequence[Action] | None = None) -> Engine:
        """alray's executor, with the lists of the plan or with these. It keeps its clock, as in a run."""
        stage = stage_of(self.plan, self.stage, components, actions=actions)

        def train(incoming: Tensors, step: int) -> None:
            given = incoming if self.stage == 0 else {}
            for _ in stage.mini_batch(MiniBatch(step, LR, self.plan.costs.batch_size, given), self.ports, self.clock):
                pass
            self.clock.step_done()

        return train


Make = Callable[[Place, Sequence[Component]], Engine]
"""Makes an engine for these components. It is a function of a module, because processes take it along by its name."""


def measure(spec: Path, overrides: Sequence[str], first: Make, second: Make) -> dict[str, Any]:
    """The step times of both engines in seconds, pair by pair, their ratios, and whether the weights are the same.

    `ideal_s` is the step of the lists, with the computing that the stages of alray measured, if messages took no time.
    """
    context = multiprocessing.get_context("spawn")
    loaded = load_spec(spec, list(overrides)).spec
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            context.Process(target=_run, args=(stage, spec, list(overrides), folder, (first, second)))
            for stage in range(loaded.pipeline.stages)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        found = [json.loads((Path(folder) / f"{stage}.json").read_text()) for stage in range(len(processes))]
    last = found[-1]["seconds"]
    computed = {(kind, virtual): seconds for each in found for kind, virtual, seconds in each["computed"]}
    return {
        "seconds": last,
        "ratios": [own / other for own, other in zip(*last, strict=True)],
        "same_bits": all(each["same"] for each in found),
        "ideal_s": _ideal_s(loaded, found[0]["micro_batches"], computed),
    }


def told(name: str, case: Mapping[str, Any], other: str) -> str:
    """A line about a case.

    Args:
        other: names the second engine.
    """
    own_s, other_s = (median(seconds) for seconds in case["seconds"])
    ratios = case["ratios"]
    return (
        f"{name}: {1e3 * own_s:.2f} ms, {other} {1e3 * other_s:.2f} ms, ratio {median(ratios):.3f} "
        f"({min(ratios):.3f} to {max(ratios):.3f}), {own_s / case['ideal_s']:.2f} of the ideal, "
        f"{'same bits' if case['same_bits'] else 'OTHER BITS'}"
    )


def _run(number: int, spec: Path, overrides: list[str], folder: str, makes: tuple[Make, Make]) -> None:
    """One process of a case."""
    loaded = load_spec(spec, [*overrides, "run={steps: 1000, evaluate_every: null, checkpoint: null}"])
    planner = Planner.open(loaded.spec, UserCode(spec.resolve().parent, allow_elsewhere=False))
    plan = planner.plan(planner.costs(probe=False))
    assignment = assignments(planner.workload, plan, Start(), Path(folder), time.time(), Options())[number]
    store = dist.FileStore(f"{folder}/store", plan.stages)
    dist.init_process_group("gloo", store=store, rank=number, world_size=plan.stages)
    devices.configure(loaded.spec.resources.threads, loaded.spec.run.deterministic, planner.workload.device)
    network = network_for(assignment)
    sizes, edges = MessageSizes(assignment, network), Edges(store, number)
    clock = Clock(started_wall_s=time.time(), start_step=0)
    place = Place(plan, number, network, sizes, edges, _ports(plan, number, sizes, edges), clock)
    copies = [[network.component(index, "cpu") for index in plan.stage_plans[number].components] for _ in makes]
    engines = [make(place, copy) for make, copy in zip(makes, copies, strict=True)]
    batches = TrainBatches(
        planner.workload.data,
        seed=loaded.spec.seed,
        start_step=0,
        end_step=BLOCK,
        workers=0,
        shares=[plan.costs.batch_size],
    )
    with batches:
        given = [batch.inputs(torch.device("cpu"), network.dtype) | {"labels": batch.labels} for batch in batches]
    seconds: list[list[float]] = [[], []]
    for pair in range(PAIRS + 1):  # the first one is not counted
        for which in (0, 1) if pair % 2 else (1, 0):
            dist.barrier()
            began = time.perf_counter()
            for place_in_block, incoming in enumerate(given):
                engines[which](incoming, pair * BLOCK + place_in_block + 1)
            dist.barrier()
            seconds[which].append((time.perf_counter() - began) / len(given))
    record = clock.close_window(
        stage=number, step=0, epoch=0.0, samples=0, replica=0, bytes_sent={}, peak_memory_bytes=None
    )
    same = all(
        torch.equal(left, right)
        for one, other in zip(*copies, strict=True)
        for left, right in zip(one.weights().values(), other.weights().values(), strict=True)
    )
    result = {
        "seconds": [each[1:] for each in seconds],
        "same": same,
        "computed": _computed(record.spans),
        "micro_batches": plan.micro_batches,
    }
    (Path(folder) / f"{number}.json").write_text(json.dumps(result))
    dist.barrier()
    dist.destroy_process_group()


def _computed(spans: Iterable[Span]) -> list[tuple[ActionKind, int, float]]:
    """Kind, virtual stage and mean seconds of the computations of a stage, without the first block."""
    found: dict[tuple[ActionKind, int], list[float]] = {}
    for span in spans:
        if span.action[0].isdigit():  # waits have words
            action = parse(span.action)
            if action.batch >= BLOCK and action.kind in COMPUTE:
                found.setdefault((action.kind, action.stage), []).append(span.end_s - span.start_s)
    return [(kind, virtual, fmean(seconds)) for (kind, virtual), seconds in found.items()]


def _ideal_s(spec: Spec, micro_batches: int, computed: Mapping[tuple[ActionKind, int], float]) -> float:
    virtual = range(spec.pipeline.stages * spec.virtual_stages)
    durations = Durations({kind: [computed.get((kind, number), 0.0) for number in virtual] for kind in COMPUTE})
    program = Program.of_schedule(
        schedule_with(spec.schedule, recomputes=spec.pipeline.activation_checkpointing),
        spec.pipeline.stages,
        8,
        micro_batches=micro_batches,
        virtual_stages=spec.virtual_stages,
    )
    return float(unhindered_steps(program, durations)[0])


class Edges:
    """Opens edges of shared memory, sender by sender."""

    def __init__(self, store: dist.Store, stage: int) -> None:
        self._store = store
        self._stage = stage

    def sender(self, peer: int, name: str, capacity_bytes: int, waiting: int) -> SharedMemorySender:
        sender = SharedMemorySender(
            edge=f"{self._stage}->{peer}", capacity_bytes=capacity_bytes, in_flight=waiting, timeout_s=120.0
        )
        self._store.set(f"{name} {self._stage}->{peer}", sender.ring.as_text())
        return sender

    def receiver(self, peer: int, name: str) -> SharedMemoryReceiver:
        edge = f"{peer}->{self._stage}"
        ring = SlotRing.of_text(self._store.get(f"{name} {edge}").decode())
        return SharedMemoryReceiver(edge=edge, ring=ring, device=torch.device("cpu"), timeout_s=120.0)


def _ports(plan: Plan, stage: int, sizes: MessageSizes, edges: Edges) -> Ports:
    senders: dict[tuple[Stream, int], Any] = {}
    inboxes: dict[tuple[Stream, int], Inbox] = {}
    between = plan.edges_between()
    for lower, upper in between:
        if stage == upper:
            waiting = plan.waiting(upper, lower, down=True)
            senders["down", lower] = edges.sender(lower, "down", sizes.down(upper), waiting)
        if stage == lower:
            waiting = plan.waiting(lower, upper, down=False)
            senders["up", upper] = edges.sender(upper, "up", sizes.up(lower), waiting)
    for lower, upper in between:
        if stage == upper:
            inboxes["up", lower] = Inbox(edges.receiver(lower, "up"))
        if stage == lower:
            inboxes["down", upper] = Inbox(edges.receiver(upper, "down"))
    return Ports.of(plan, stage, senders=senders, inboxes=inboxes, barrier=None)
