"""Recomputation before the gradient arrives, and after: bits and step time.

    python -m benchmarks.recomputation [CASE...]

Each case has one process for a stage, which trains two copies of its components on the same mini-batches, in turns of a
block: by the lists of the schedule, in which C stands before the receive of the gradient, and by lists in which it
stands behind it, as if it were a part of B. A ratio compares the two blocks of one turn. At the end both copies must
have the same weights.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from alray.data.batches import TrainBatches
from alray.device import devices
from alray.loading.load import load_spec
from alray.options import Options
from alray.planner.planning import Planner
from alray.runner.driver import assignments
from alray.schedules.actions import Action
from alray.stage.assemble import network_for, work_of
from alray.stage.assignment import Start
from alray.stage.clock import Clock
from alray.stage.ports import MessageSizes
from alray.stage.stage import MiniBatch, Stage
from alray.user_code import UserCode
from benchmarks.engines import BP, HERE, LAPTOP, Edges, ports_of
from benchmarks.runs import write_results

PAIRS, BLOCK = 7, 6
LAYER = "model.components.0.block=python:sleeping_blocks.SleepingLayer"
SLEEPING = (BP, LAYER, "data.batch_size=32", "model.components.0.rows=4")
CASES = {
    "4 sleeping": (HERE / "sleeping.yaml", (*SLEEPING, "model.components.0.repeat=4", "pipeline.stages=4"), 8),
    "8 sleeping": (HERE / "sleeping.yaml", (*SLEEPING, "model.components.0.repeat=8", "pipeline.stages=8"), 16),
    "equal_components": (LAPTOP / "equal_components.yaml", (BP, "pipeline.stages=2"), 4),
    "eight": (HERE / "eight.yaml", (BP, "pipeline.stages=2"), 4),
}
SCHEDULES = ("1f1b", "gpipe", "zero_bubble")


def cases() -> Iterator[tuple[str, str, list[str]]]:
    """Name, spec and overrides of each."""
    for name, (spec, overrides, micro_batches) in CASES.items():
        for schedule in SCHEDULES:
            more = [f"pipeline.schedule={schedule}", f"pipeline.micro_batches={micro_batches}"]
            more.append("pipeline.activation_checkpointing=true")
            yield f"{name}, {schedule}, {micro_batches}", str(spec), [*overrides, *more]


def after_the_gradient(actions: Sequence[Action]) -> list[Action]:
    """The list in which C follows the receive of the gradient."""
    listed = list(actions)
    for place in range(len(listed) - 1):
        if listed[place].kind == "C" and listed[place + 1].kind == "R":
            listed[place], listed[place + 1] = listed[place + 1], listed[place]
    return listed


def measure(spec: str, overrides: list[str]) -> dict[str, Any]:
    """Step times of both lists, block by block, and whether they ended in the same weights."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        stages = load_spec(Path(spec), overrides).spec.pipeline.stages
        processes = [context.Process(target=_stage, args=(rank, spec, overrides, folder)) for rank in range(stages)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        found = [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(stages)]
    ratios = [before / after for before, after in zip(found[-1]["before_s"], found[-1]["after_s"], strict=True)]
    return {
        "before_s": found[-1]["before_s"],
        "after_s": found[-1]["after_s"],
        "ratio": median(ratios),
        "ratios": ratios,
        "same_bits": all(each["same"] for each in found),
    }


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
    own = plan.stage_plans[rank]
    ports = ports_of(plan, rank, MessageSizes(assignment, network), Edges(store, rank))
    actions = plan.actions(rank)
    stages = {}
    for name, listed in (("before", list(actions)), ("after", after_the_gradient(actions))):
        work = work_of(
            [network.component(index, "cpu") for index in own.components],
            runs=[len(run) for run in own.runs],
            micro_batches=plan.micro_batches,
            splits=any(action.kind == "I" for action in actions),
        )
        stages[name] = Stage(work, listed, micro_batches=plan.micro_batches)
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
    times: dict[str, list[float]] = {"before": [], "after": []}
    steps = {"before": 0, "after": 0}
    for number in range(PAIRS + 1):
        for name in ("before", "after") if number % 2 else ("after", "before"):
            dist.barrier()
            began = time.perf_counter()
            for incoming in given:
                steps[name] += 1
                batch = MiniBatch(steps[name], 1e-3, 1e-3, plan.costs.batch_size, incoming if rank == 0 else {})
                for _ in stages[name].mini_batch(batch, ports, clock):
                    pass
                clock.step_done()
            dist.barrier()
            times[name].append((time.perf_counter() - began) / len(given))
    same = all(
        torch.equal(left, right)
        for one, other in zip(stages["before"].components, stages["after"].components, strict=True)
        for left, right in zip(one.weights().values(), other.weights().values(), strict=True)
    )
    result = {"before_s": times["before"][1:], "after_s": times["after"][1:], "same": same}
    (Path(folder) / f"{rank}.json").write_text(json.dumps(result))
    dist.barrier()
    dist.destroy_process_group()


def main(wanted: list[str]) -> None:
    found = {}
    for name, spec, overrides in cases():
        if not wanted or any(name.startswith(each) for each in wanted):
            shown = found[name] = measure(spec, overrides)
            print(  # noqa: T201
                f"{name}: {1e3 * median(shown['before_s']):.2f} ms, after the gradient "
                f"{1e3 * median(shown['after_s']):.2f} ms, ratio {shown['ratio']:.3f} "
                f"({min(shown['ratios']):.3f} to {max(shown['ratios']):.3f}), "
                f"{'same bits' if shown['same_bits'] else 'OTHER BITS'}",
                flush=True,
            )
    write_results("recomputation", found)


if __name__ == "__main__":
    main(sys.argv[1:])
