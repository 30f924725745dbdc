"""Pipelines of backpropagation by alray's executor, and by torch.distributed.pipelining: bits and step time.

    python -m benchmarks.engines [SPEC...]

Each case has one process for a stage, in which both engines train a copy of the same components on the same
mini-batches, in turns of a block. A ratio compares the two blocks of one turn. At the end both must have the same
weights. alray's executor keeps its clock, as in a run.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch
import torch.distributed as dist

from alray.channel.inbox import Inbox
from alray.channel.message import packed_bytes
from alray.channel.shared_memory import SharedMemoryReceiver, SharedMemorySender, SlotRing
from alray.data.batches import TrainBatches
from alray.device import devices
from alray.loading.load import load_spec
from alray.options import Options
from alray.planner.planning import Planner
from alray.prediction.plan import Plan
from alray.prediction.program import Program
from alray.prediction.simulate import simulate
from alray.run_folder.records import Span
from alray.runner.driver import assignments
from alray.schedules.actions import ActionKind, parse
from alray.schedules.durations import Durations
from alray.schedules.table import SCHEDULES as TABLE
from alray.spec.models import Spec
from alray.stage.assemble import chain_of, network_for, work_of
from alray.stage.assignment import Start
from alray.stage.clock import Clock
from alray.stage.ports import MessageSizes, Ports, Stream
from alray.stage.stage import MiniBatch, Stage
from alray.user_code import UserCode
from benchmarks.runs import write_results
from benchmarks.torch_pipelines import TorchPipeline, Wire

HERE = Path(__file__).parent
LAPTOP = HERE.parent / "specs" / "laptop"
PAIRS, BLOCK = 7, 6
BP = "method={kind: backpropagation}"
TINY = ("model.components=[{block: linear, width: 32, repeat: 8}]", "data.batch_size=64")
CASES = {
    "equal_components": (LAPTOP / "equal_components.yaml", (BP, "pipeline.stages=2"), (4, 8, 16)),
    "eight": (HERE / "eight.yaml", (BP, "pipeline.stages=2"), (4, 8, 16)),
    "tiny layers": (
        LAPTOP / "equal_components.yaml",
        (BP, *TINY, "pipeline.stages=2"),
        (4, 8, 16),
    ),
    "8 sleeping": (HERE / "sleeping.yaml", (BP, "model.components.0.repeat=8", "pipeline.stages=8"), (16,)),
    "16 sleeping": (HERE / "sleeping.yaml", (BP, "pipeline.stages=16"), (16,)),
}
SCHEDULES = ("1f1b", "gpipe", "interleaved_1f1b", "zero_bubble", "zb_v", "dualpipe_v")


def cases() -> Iterator[tuple[str, str, list[str]]]:
    """Name, spec and overrides of each."""
    for name, (spec, overrides, counts) in CASES.items():
        for schedule in SCHEDULES:
            if "sleeping" in name and schedule in ("interleaved_1f1b", "zb_v", "dualpipe_v"):
                continue  # a component for each stage
            for micro_batches in counts:
                more = [f"pipeline.schedule={schedule}", f"pipeline.micro_batches={micro_batches}"]
                yield f"{name}, {schedule}, {micro_batches}", str(spec), [*overrides, *more]


def measure(spec: str, overrides: list[str]) -> dict[str, Any]:
    """Step times of both engines, block by block, and whether they ended in the same weights."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        stages = load_spec(Path(spec), overrides).spec.pipeline.stages
        processes = [context.Process(target=_stage, args=(rank, spec, overrides, folder)) for rank in range(stages)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        found = [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(stages)]
    loaded = load_spec(Path(spec), overrides).spec
    computed = {(kind, virtual): seconds for each in found for kind, virtual, seconds in each["computed_s"]}
    ideal_s = _ideal_s(loaded, computed)
    ratios = [own / torchs for own, torchs in zip(found[-1]["alray_s"], found[-1]["torch_s"], strict=True)]
    return {
        "alray_s": found[-1]["alray_s"],
        "torch_s": found[-1]["torch_s"],
        "ratio": median(ratios),
        "ratios": ratios,
        "same_bits": all(each["same"] for each in found),
        "ideal_s": ideal_s,
        "over_ideal": median(found[-1]["alray_s"]) / ideal_s,
    }


def _ideal_s(spec: Spec, computed: Mapping[tuple[ActionKind, int], float]) -> float:
    """The step time of the lists if messages took no time.

    Args:
        computed: the mean seconds of each kind of computation in each virtual stage, as alray's stages measured them.
    """
    pipeline, schedule = spec.pipeline, TABLE[spec.schedule]
    virtual = range(pipeline.stages * spec.virtual_stages)

    def seconds(kind: ActionKind) -> list[float]:
        return [computed.get((kind, number), 0.0) for number in virtual]

    program = Program.of_schedule(
        schedule.name, pipeline.stages, 8, micro_batches=pipeline.micro_batches, virtual_stages=spec.virtual_stages
    )
    durations = Durations(
        forward_s=seconds("F"),
        backward_s=seconds("B"),
        update_s=seconds("U"),
        input_gradient_s=seconds("I"),
        weight_gradient_s=seconds("G"),
    )
    return simulate(program, durations, in_flight=1).step_time_s


def _computed(spans: Iterable[Span]) -> list[tuple[ActionKind, int, float]]:
    """Kind, virtual stage and mean seconds of the computations of a stage, without the first block."""
    found: dict[tuple[ActionKind, int], list[float]] = {}
    for span in spans:
        if "receive" in span.action or "send" in span.action:
            continue
        action = parse(span.action)
        if action.batch >= BLOCK:
            found.setdefault((action.kind, action.stage), []).append(span.end_s - span.start_s)
    return [(kind, virtual, fmean(seconds)) for (kind, virtual), seconds in found.items()]


def _stage(rank: int, spec: str, overrides: list[str], folder: str) -> None:
    """One process of a case."""
    loaded = load_spec(Path(spec), [*overrides, "run={steps: 1000, evaluate_every: null, checkpoint: null}"])
    planner = Planner.open(loaded.spec, UserCode(Path(spec).resolve().parent, allow_elsewhere=False))
    plan = planner.plan(planner.costs(probe=False))
    (assignment, *_) = assignments(planner.workload, plan, Start(), Path(folder), time.time(), Options())[rank:]
    store = dist.FileStore(f"{folder}/store", plan.stages)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=plan.stages)
    devices.configure(loaded.spec.resources.threads, loaded.spec.run.deterministic, planner.workload.device)
    network = network_for(assignment)
    indices = plan.stage_plans[rank].components
    mine, theirs = ([network.component(index, "cpu") for index in indices] for _ in range(2))
    sizes = MessageSizes(assignment, network)
    edges = Edges(store, rank)
    ports = ports_of(plan, rank, sizes, edges)
    actions = plan.actions(rank)
    work = work_of(
        mine,
        runs=[len(run) for run in plan.stage_plans[rank].runs],
        micro_batches=plan.micro_batches,
        splits=any(action.kind == "I" for action in actions),
    )
    stage = Stage(work, actions, micro_batches=plan.micro_batches)
    control = TorchPipeline(plan, rank, chain_of(theirs), network, _wires(plan, rank, sizes, edges))
    clock = Clock(started_wall_s=time.time(), start_step=0)
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
    times: dict[str, list[float]] = {"alray": [], "torch": []}
    lr, step = 1e-3, {"alray": 0, "torch": 0}

    def block(engine: str) -> None:
        dist.barrier()
        began = time.perf_counter()
        for incoming in given:
            step[engine] += 1
            if engine == "torch":
                control.mini_batch(incoming, step[engine], lr)
                continue
            batch = MiniBatch(step[engine], lr, lr, plan.costs.batch_size, incoming if rank == 0 else {})
            for _ in stage.mini_batch(batch, ports, clock):
                pass
            clock.step_done()
        dist.barrier()
        times[engine].append((time.perf_counter() - began) / len(given))

    for number in range(PAIRS + 1):
        for engine in ("alray", "torch") if number % 2 else ("torch", "alray"):
            block(engine)
    record = clock.close_window(
        stage=rank, step=step["alray"], epoch=0.0, samples=0, replica=0, bytes_sent={}, peak_memory_bytes=None
    )
    same = all(
        torch.equal(left, right)
        for one, other in zip(mine, theirs, strict=True)
        for left, right in zip(one.weights().values(), other.weights().values(), strict=True)
    )
    result = {
        "alray_s": times["alray"][1:],
        "torch_s": times["torch"][1:],
        "same": same,
        "computed_s": _computed(record.spans),
    }
    (Path(folder) / f"{rank}.json").write_text(json.dumps(result))
    dist.barrier()
    dist.destroy_process_group()


class Edges:
    """Opens edges of shared memory, sender by sender."""

    def __init__(self, store: dist.Store, rank: int) -> None:
        self._store = store
        self._rank = rank

    def sender(self, peer: int, name: str, capacity_bytes: int, waiting: int) -> SharedMemorySender:
        sender = SharedMemorySender(
            edge=f"{self._rank}->{peer}", capacity_bytes=capacity_bytes, in_flight=waiting, timeout_s=120.0
        )
        self._store.set(f"{name} {self._rank}->{peer}", sender.ring.as_text())
        return sender

    def receiver(self, peer: int, name: str) -> SharedMemoryReceiver:
        edge = f"{peer}->{self._rank}"
        ring = SlotRing.of_text(self._store.get(f"{name} {edge}").decode())
        return SharedMemoryReceiver(edge=edge, ring=ring, device=torch.device("cpu"), timeout_s=120.0)


def ports_of(plan: Plan, rank: int, sizes: MessageSizes, edges: Edges) -> Ports:
    senders: dict[tuple[Stream, int], Any] = {}
    inboxes: dict[tuple[Stream, int], Inbox] = {}
    between = plan.edges_between()
    for lower, upper in between:
        if rank == upper:
            waiting = plan.waiting(upper, lower, down=True)
            senders["down", lower] = edges.sender(lower, "down", sizes.down(upper), waiting)
        if rank == lower:
            waiting = plan.waiting(lower, upper, down=False)
            senders["up", upper] = edges.sender(upper, "up", sizes.up(lower), waiting)
    for lower, upper in between:
        if rank == upper:
            inboxes["up", lower] = Inbox(edges.receiver(lower, "up"))
        if rank == lower:
            inboxes["down", upper] = Inbox(edges.receiver(upper, "down"))
    return Ports.of(plan, rank, senders=senders, inboxes=inboxes, barrier=None)


def _wires(plan: Plan, rank: int, sizes: MessageSizes, edges: Edges) -> dict[int, Wire]:
    """Edges with room for every micro-batch, both ways, as torch's schedules want them."""
    peers = sorted({other for pair in plan.edges_between() for other in pair if rank in pair} - {rank})
    largest = max(encoder.output.sample_bytes for encoder in sizes.network.encoders)
    capacity = packed_bytes([largest * plan.costs.batch_size // plan.micro_batches])
    room = 2 * plan.micro_batches * plan.virtual_stages
    senders = {peer: edges.sender(peer, "wire", capacity, room) for peer in peers}
    return {peer: Wire(sender, edges.receiver(peer, "wire")) for peer, sender in senders.items()}


def main(wanted: list[str]) -> None:
    found = {}
    for name, spec, overrides in cases():
        if not wanted or any(name.startswith(each) for each in wanted):
            found[name] = measure(spec, overrides)
            shown = found[name]
            print(  # noqa: T201
                f"{name}: {1e3 * median(shown['alray_s']):.2f} ms, torch {1e3 * median(shown['torch_s']):.2f} ms, "
                f"ratio {shown['ratio']:.2f} ({min(shown['ratios']):.2f} to {max(shown['ratios']):.2f}), "
                f"{shown['over_ideal']:.2f} of the ideal, "
                f"{'same bits' if shown['same_bits'] else 'OTHER BITS'}",
                flush=True,
            )
    write_results("engines", found)


if __name__ == "__main__":
    main(sys.argv[1:])
