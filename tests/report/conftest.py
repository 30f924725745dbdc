"""Builds run folders out of records made in a test, which reaches these functions by the fixture `given`."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from alray.cli.main import execute
from alray.core.run_folder.records import (
    DepthScores,
    EngineName,
    EvaluationRecord,
    EventRecord,
    PlanRecord,
    Record,
    Span,
    StageRecord,
    StepRecord,
    Summary,
    Writer,
)
from alray.planning.prediction.costs import ComponentCosts, Costs
from alray.planning.prediction.plan import EdgePlan, Memory, Plan, StagePlan

if TYPE_CHECKING:
    from playwright.sync_api import Browser

BATCH = 64
PER_EPOCH = 10
SPEC = "name: example  # <b> & so on\nseed: 0\ntask: {kind: classification}\n"
REAL = """\
name: small
seed: 5
data: {source: synthetic, shape: [2, 8, 8], classes: 4, samples: 200, batch_size: 8}
model:
  components:
    - {block: vgg, channels: [4]}
    - {block: vgg, channels: [6], pool: true}
optimizer: {kind: adam, lr: 1.0e-2}
pipeline:
  stages: 2
  costs: [{forward_s: 1e-3, backward_s: 2e-3, update_s: 1e-3}, {forward_s: 1e-3, backward_s: 2e-3, update_s: 1e-3}]
run: {epochs: 2}
"""


@pytest.fixture(scope="session")
def given() -> ModuleType:
    return sys.modules[__name__]


@pytest.fixture(scope="session")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a real run in one process, on two stages."""
    folder = tmp_path_factory.mktemp("real")
    (folder / "small.yaml").write_text(REAL)
    assert execute(["run", str(folder / "small.yaml"), "--inline", "--output", str(folder / "run")]) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    api = pytest.importorskip("playwright.sync_api", reason="there is no playwright: pip install -e '.[dev]'")
    with api.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


def example_plan(partition: Sequence[int] = (1, 1), *, schedule: str = "streamed", method: str = "") -> Plan:
    """A plan with F 1 ms, B 2 ms, U 1 ms a component; prediction and bound are the largest stage's."""
    count = sum(partition)
    component = ComponentCosts(
        name="vgg [32]",
        forward_s=0.001,
        backward_s=0.002,
        update_s=0.001,
        infer_s=0.001,
        route_s=0.0005,
        parameters=1000,
        parameter_bytes=4000,
        gradient_bytes=4000,
        optimizer_bytes=8000,
        activation_bytes=50_000,
        output_bytes=20_000,
        infer_bytes=20_000,
        route_bytes=1000,
        output_shape=(32, 16, 16),
    )
    costs = Costs("probe", "a processor", 1, BATCH, (component,) * count)
    stages = []
    first = 0
    for stage, size in enumerate(partition):
        memory = Memory(4000 * size, 4000 * size, 8000 * size, 50_000 * size, 100_000, 12_000 * size)
        last = first + size - 1
        stages.append(StagePlan(stage, first, last, 0.001 * size, 0.002 * size, 0.001 * size, memory))
        first += size
    slowest = 0.004 * max(partition)
    return Plan(
        method=method or "associated_learning",
        schedule=schedule,
        stages=len(partition),
        replicas=1,
        partition=tuple(partition),
        in_flight=4,
        steps_per_epoch=PER_EPOCH,
        total_steps=40,
        stage_plans=tuple(stages),
        edges=tuple(EdgePlan(f"{edge}->{edge + 1}", 20_000) for edge in range(len(partition) - 1)),
        costs=costs,
        cores=2,
        predicted_step_time_s=slowest,
        predicted_bubble=1 - 0.004 * count / (slowest * len(partition)),
        bound_s=slowest,
        limited_by="stage 0 and stage 1 are equally slow",
        evaluation_s=0.1,
        deadline_s=15.0,
    )


def with_virtual_stages(plan: Plan) -> Plan:
    """The plan of partition [2, 2] with two virtual stages of one component each on a stage, and four micro-batches."""
    stages = [dataclasses.replace(own, chunks=((own.stage,) * 2, (own.stage + 2,) * 2)) for own in plan.stage_plans]
    return dataclasses.replace(
        plan, partition=(1, 1, 1, 1), stage_plans=tuple(stages), micro_batches=4, virtual_stages=2
    )


def at(step: int, time_s: float) -> dict[str, float]:
    """The fields every record has."""
    return {"time_s": time_s, "step": step, "epoch": step / PER_EPOCH, "samples": step * BATCH}


def event(kind: str, step: int, time_s: float, message: str = "", stage: int | None = None) -> EventRecord:
    date = datetime.fromtimestamp(time_s, UTC).isoformat()
    return EventRecord(**at(step, time_s), event=kind, message=message or kind, stage=stage, date=date)


def planned(plan: Plan, step: int, time_s: float, engine: EngineName | None = None) -> PlanRecord:
    return PlanRecord(**at(step, time_s), plan=json.loads(json.dumps(plan.as_json())), engine=engine)


def step(number: int, time_s: float, losses: dict[int, dict[str, float]] | None = None) -> StepRecord:
    given = losses if losses is not None else {0: {"associated": 1 / number, "autoencoder": 2 / number}}
    return StepRecord(**at(number, time_s), losses=given, lr=1e-3)


def staged(
    number: int,
    time_s: float,
    stage: int,
    *,
    steps: int = 10,
    warm_up: bool = False,
    step_times_s: Sequence[float] = (0.005,) * 10,
    after_cut: Sequence[int] = (),
    waits: tuple[float, float, float] = (0.001, 0.006, 0.003),
    bytes_sent: dict[str, int] | None = None,
    peak: int | None = 1_000_000,
    spans: Sequence[Span] = (),
    replica: int = 0,
) -> StageRecord:
    """F 1 ms, B 2 ms and U 1 ms a mini-batch; `waits` are send, receive and idle, in all."""
    taken_s = {"forward_s": 0.001, "backward_s": 0.002, "update_s": 0.001}
    return StageRecord(
        **at(number, time_s),
        stage=stage,
        replica=replica,
        steps=steps,
        warm_up=warm_up,
        **{name: seconds * steps for name, seconds in taken_s.items()},
        compute_s=0.004 * steps,
        send_wait_s=waits[0],
        receive_wait_s=waits[1],
        idle_s=waits[2],
        evaluation_s=0.0,
        step_times_s=list(step_times_s),
        after_cut=list(after_cut),
        after_cut_s={name: seconds * len(after_cut) for name, seconds in taken_s.items()},
        bytes_sent=bytes_sent or {},
        peak_memory_bytes=peak,
        spans=list(spans),
    )


def evaluated(number: int, time_s: float, validation: float | None, test: float | None) -> EvaluationRecord:
    depths = [
        DepthScores(depth=1, validation=0.5, test=0.4),
        DepthScores(depth=2, validation=validation, test=test),
    ]
    return EvaluationRecord(
        **at(number, time_s), train=0.99, validation=validation, test=test, per_depth=depths, duration_s=0.1
    )


def traced(stage: int, batches: Sequence[int], start_s: float) -> list[Span]:
    """A stage's streamed mini-batches of 4 ms, one after another; each stage begins 1 ms after the last."""
    spans = []
    at_s = start_s + 0.001 * stage
    for batch in batches:
        if stage:
            spans.append(Span(action="receive_wait", start_s=at_s - 0.0005, end_s=at_s))
        for kind, seconds in (("F", 0.001), ("B", 0.0015), ("U", 0.001)):
            spans.append(Span(action=f"{stage}{kind}{batch}", start_s=at_s, end_s=at_s + seconds))
            at_s += seconds
        at_s += 0.0005
    return spans


def example_records(plan: Plan, epochs: int = 4, *, evaluate: bool = True) -> list[Record]:
    """A run of some epochs without any failure, 5 ms a mini-batch, the first epoch being warm-up."""
    records: list[Record] = [event("started", 0, 0.0), planned(plan, 0, 0.01)]
    names = ("associated", "autoencoder") if plan.method == "associated_learning" else ("cross_entropy",)
    components = range(sum(plan.partition)) if len(names) > 1 else [sum(plan.partition) - 1]
    for epoch in range(epochs):
        start_s = 1.0 + epoch * 0.15
        for number in range(epoch * PER_EPOCH + 1, (epoch + 1) * PER_EPOCH + 1):
            losses = {
                component: {name: 2.0 * (component + 1) / (number + place) for place, name in enumerate(names)}
                for component in components
            }
            records.append(step(number, start_s + 0.005 * (number - epoch * PER_EPOCH), losses))
        done = (epoch + 1) * PER_EPOCH
        for stage in range(plan.stages):
            first = epoch * PER_EPOCH
            spans = traced(stage, range(first, first + 5), start_s) if epoch < 2 else []
            sent = {f"{stage}->{stage + 1}": 20_000 * done} if stage < plan.stages - 1 else {}
            records.append(staged(done, start_s + 0.05, stage, warm_up=epoch == 0, bytes_sent=sent, spans=spans))
        if evaluate:
            share = round(0.95 - 0.15 / (1 + epoch), 2)
            records.append(evaluated(done, start_s + 0.1, share, round(share - 0.01, 2)))
    return records


def write_run(
    folder: Path,
    plan: Plan,
    records: Sequence[Record],
    *,
    summary: Summary | None = None,
    environment: bool = True,
) -> Path:
    """Write the folder as a run leaves it before its report is made."""
    folder.mkdir(parents=True)
    (folder / "spec.yaml").write_text(SPEC)
    (folder / "plan.json").write_text(json.dumps(plan.as_json()))
    if environment:
        found = {"given": {}, "spec_sha256": [], "python": "3.11.7", "machine": {"cores": 2}, "gpus": []}
        (folder / "environment.json").write_text(json.dumps(found))
    writer = Writer(folder / "records.jsonl")
    for record in records:
        writer.write(record)
    writer.close()
    if summary is not None:
        (folder / "summary.json").write_text(summary.model_dump_json())
    return folder
