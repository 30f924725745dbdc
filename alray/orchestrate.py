"""A spec becomes a report: the line of the whole project, and the first file to open.

spec.yaml -> Spec -> Plan -> Graph -> Run -> Report
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alray import __version__
from alray.errors import AlrayError, RunError
from alray.plan.costs import Costs
from alray.plan.plan import Plan
from alray.records import DepthAccuracy, Summary, read, write_json
from alray.report.make import make_report
from alray.report.summary import summarise
from alray.run.driver import Driver, Interrupts, Observer, Outcome
from alray.run.engines import Engine, engine
from alray.run.folder import latest_manifest, make_run_dir, mark
from alray.run.inference import Prediction, TrainedNetwork
from alray.run.job import Job
from alray.run.memory import machine_memory_bytes, require_memory
from alray.run.recorder import Recorder
from alray.run.resume import resumed_spec
from alray.spec.loading import dump_spec, load_spec
from alray.stage.assignment import Start, start_from
from alray.stage.checkpoint import step_folder
from alray.stage.device import environment
from alray.stage.user_code import UserCode
from alray.stage.weights_hash import weights_sha256


@dataclass(frozen=True)
class Options:
    """How to run, as far as it does not change what comes out."""

    inline: bool = False
    address: str | None = None
    run_dir: Path | None = None
    allow_code: bool = False


@dataclass(frozen=True)
class Finished:
    """A run that ended, however it did."""

    summary: Summary
    report: Path
    error: AlrayError | None


def plan_spec(
    spec_file: Path, overrides: list[str], *, probe: bool, allow_code: bool, observer: Observer
) -> tuple[Job, Plan]:
    """What would run where, without running it."""
    job = _load(spec_file, overrides, allow_code, observer)
    return job, job.plan(job.costs(probe=probe))


def run_spec(
    spec_file: Path, overrides: list[str], options: Options, observer: Observer, interrupts: Interrupts
) -> Finished:
    """Run a spec from its beginning, in a run folder of its own."""
    job = _load(spec_file, overrides, options.allow_code, observer)
    run_dir = make_run_dir(job.spec.name, options.run_dir)
    (run_dir / "spec.yaml").write_text(dump_spec(job.spec), encoding="utf-8")
    job.code.copy_used(run_dir / "code")
    return _run(job, run_dir, Start(), options, observer, interrupts, spent_s=0.0)


def resume_run(
    run_dir: Path,
    overrides: list[str],
    options: Options,
    observer: Observer,
    interrupts: Interrupts,
    *,
    allow_change: bool,
) -> Finished:
    """Go on with a run from its last checkpoint, perhaps on other stages."""
    run_dir, spec = resumed_spec(run_dir, overrides, allow_change=allow_change)
    job = Job.of(spec, UserCode(run_dir / "code", allow_elsewhere=options.allow_code))
    manifest = latest_manifest(run_dir)
    start = start_from(run_dir, manifest) if manifest is not None else Start()
    _warn_of_another_device(job, manifest, observer)
    (run_dir / "spec.yaml").write_text(dump_spec(spec), encoding="utf-8")
    spent_s = max((record.time_s for record in read(run_dir / "records.jsonl")), default=0.0)
    return _run(job, run_dir, start, options, observer, interrupts, spent_s=spent_s)


def _load(spec_file: Path, overrides: list[str], allow_code: bool, observer: Observer) -> Job:
    loaded = load_spec(spec_file, overrides)
    for note in loaded.notes:
        observer.note(note)
    return Job.of(loaded.spec, UserCode(loaded.file.resolve().parent, allow_elsewhere=allow_code))


def _run(
    job: Job,
    run_dir: Path,
    start: Start,
    options: Options,
    observer: Observer,
    interrupts: Interrupts,
    *,
    spent_s: float,
) -> Finished:
    token = mark(run_dir)
    surroundings = environment(job.device)
    if job.device.type == "cpu":
        require_memory(job.network, machine_memory_bytes())
    costs = job.costs(probe=True)
    plan = job.plan(costs, one_process=options.inline)
    observer.planned(plan)
    write_json(run_dir / "plan.json", plan.as_json())
    write_json(
        run_dir / "environment.json",
        {**surroundings, "engine": "inline" if options.inline else "ray", "command": sys.argv},
    )
    started_wall_s = time.time() - spent_s
    recorder = Recorder(
        run_dir,
        facts=job.facts,
        batch_size=job.spec.data.batch_size,
        keep=job.spec.run.checkpoint.keep if job.spec.run.checkpoint else 1,
        environment=surroundings,
        started_wall_s=started_wall_s,
        observe=observer.record,
    )
    try:
        if start.step or spent_s:
            recorder.event("resumed", f"going on from mini-batch {start.step}", step=start.step)
        else:
            recorder.event("started", f"{plan.method}, {plan.schedule}, partition {list(plan.partition)}", step=0)
        with engine(job, inline=options.inline, address=options.address, run_token=token, note=observer.note) as made:
            driver = Driver(
                run_dir=run_dir,
                plan=plan,
                total_steps=job.total_steps,
                new_graph=made.graph,
                assign=lambda latest, begin: job.assignments(latest, run_dir, started_wall_s, begin),
                replan=lambda before: _replan(job, costs, made, before, run_dir, observer),
                recorder=recorder,
                observer=observer,
                interrupts=interrupts,
                max_failures=job.spec.run.max_failures,
            )
            outcome = driver.run(start)
    finally:
        recorder.close()
    return _report(job, driver.plan, run_dir, outcome, options, time.time() - started_wall_s)


def _replan(job: Job, costs: Costs, made: Engine, before: Plan, run_dir: Path, observer: Observer) -> Plan:
    """The plan for what is left of the cluster: fewer stages where a node went."""
    stages = made.most_stages(before.stages)
    if stages == before.stages:
        return before
    if stages == 0:
        raise RunError("no node is left that could hold a stage", mend="bring nodes back, then `alray resume` the run")
    plan = job.plan_for(costs, stages)
    observer.note(
        f"there is room for {stages} of {before.stages} stages: partition {list(plan.partition)} from here on"
    )
    write_json(run_dir / "plan.json", plan.as_json())
    return plan


def _report(job: Job, plan: Plan, run_dir: Path, outcome: Outcome, options: Options, duration_s: float) -> Finished:
    manifest = latest_manifest(run_dir)
    sha256 = None
    if outcome.status != "failed" and manifest is not None:
        sha256 = weights_sha256(run_dir / "checkpoints" / step_folder(manifest["step"]), len(job.network))
    report = run_dir / "report.html"
    summary = summarise(
        list(read(run_dir / "records.jsonl")),
        plan,
        version=__version__,
        name=job.spec.name,
        status=outcome.status,
        run_dir=str(run_dir),
        seed=job.spec.seed,
        threads=job.spec.resources.threads,
        engine="inline" if options.inline else "ray",
        duration_s=duration_s,
        weights_sha256=sha256,
        parameters=sum(component.parameters for component in plan.costs.components),
        report=str(report),
    )
    write_json(run_dir / "summary.json", summary.model_dump(mode="json"))
    return Finished(summary, make_report(run_dir), outcome.error)


def _warn_of_another_device(job: Job, manifest: dict[str, Any] | None, observer: Observer) -> None:
    """Bits are promised on the same kind of device only; the run goes on all the same."""
    if manifest is None:
        return
    before, now = manifest["environment"], environment(job.device)
    changed = [
        f"{key} was {before.get(key)}, is {now[key]}" for key in ("device", "torch") if before.get(key) != now[key]
    ]
    if changed:
        observer.note(f"the weights will not be bit-equal to those of an unbroken run: {'; '.join(changed)}")


def evaluate_run(
    run_dir: Path, *, depth: int | None, allow_code: bool, splits: tuple[str, ...] = ("validation", "test")
) -> tuple[int, list[DepthAccuracy]]:
    """Accuracy of a run's last checkpoint by the route of this depth, or by every route for None; and its step."""
    network = TrainedNetwork(run_dir, allow_code=allow_code)
    accuracies = network.evaluate(splits)
    if depth is not None:
        network.require_depth(depth)
        accuracies = [accuracy for accuracy in accuracies if accuracy.depth == depth]
    return network.step, accuracies


def predict_run(run_dir: Path, inputs: list[Path], *, depth: int | None, allow_code: bool) -> list[Prediction]:
    """Label and score of each input file, by the route of this depth (the deepest for None)."""
    return TrainedNetwork(run_dir, allow_code=allow_code).predict(inputs, depth)
