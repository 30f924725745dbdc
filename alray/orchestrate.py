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
from alray.device.devices import environment
from alray.errors import AlrayError, RunError
from alray.plan.costs import Costs
from alray.plan.plan import Plan
from alray.records import DepthAccuracy, Summary, read, write_json
from alray.report.make import make_report
from alray.report.summary import summarise
from alray.run.driver import Driver, Interrupts, Observer, Outcome
from alray.run.engines import Engine, engine, engine_name
from alray.run.folder import latest_manifest, make_run_dir, mark
from alray.run.job import Job
from alray.run.memory import machine_memory_bytes, require_memory
from alray.run.recorder import Recorder
from alray.run.resume import resumed_spec
from alray.spec.loading import dump_spec, load_spec
from alray.spec.step_ranges import require_steps
from alray.stage.assignment import Start, start_from
from alray.stage.checkpoint import step_folder
from alray.stage.weights_hash import weights_sha256
from alray.trained.export import ENDINGS, Exported, Format, export_route
from alray.trained.exported import ExportedRoute
from alray.trained.network import TrainedNetwork
from alray.trained.prediction import ClassPrediction
from alray.trained.route_costs import RouteCost, measure_routes
from alray.user_code import UserCode


@dataclass(frozen=True)
class Options:
    """How to run, as far as it does not change what comes out."""

    inline: bool = False
    address: str | None = None
    run_dir: Path | None = None
    allow_code: bool = False
    profile: tuple[range, ...] = ()
    """Mini-batches to trace with torch.profiler, counted from 1."""
    pages: bool = True
    """Whether the run ends with its HTML page, timeline and TensorBoard files; `alray report` makes them later."""


@dataclass(frozen=True)
class Evaluated:
    """A checkpoint, after `step` mini-batches: accuracy and cost of each route asked for, shallowest first."""

    step: int
    accuracies: list[DepthAccuracy]
    costs: list[RouteCost]


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
    engine_name(job.spec, inline=options.inline)  # raises, before there is a run folder, where it cannot run so
    require_steps(options.profile, done=0, total=job.total_steps)
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
    manifest = latest_manifest(run_dir)
    code = UserCode(run_dir / "code", allow_elsewhere=options.allow_code)
    job = Job.of(spec, code, trained=manifest is not None)
    _tell(job, observer)
    engine_name(job.spec, inline=options.inline)
    start = start_from(run_dir, manifest) if manifest is not None else Start()
    require_steps(options.profile, done=start.step, total=job.total_steps)
    _warn_of_another_device(job, manifest, observer)
    (run_dir / "spec.yaml").write_text(dump_spec(job.spec), encoding="utf-8")
    spent_s = max((record.time_s for record in read(run_dir / "records.jsonl")), default=0.0)
    return _run(job, run_dir, start, options, observer, interrupts, spent_s=spent_s)


def _load(spec_file: Path, overrides: list[str], allow_code: bool, observer: Observer) -> Job:
    loaded = load_spec(spec_file, overrides)
    for note in loaded.notes:
        observer.note(note)
    job = Job.of(loaded.spec, UserCode(loaded.file.resolve().parent, allow_elsewhere=allow_code))
    _tell(job, observer)
    return job


def _tell(job: Job, observer: Observer) -> None:
    """What one should know of a job before it runs."""
    for note in job.notes:
        observer.note(note)


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
    costs = job.costs(probe=True, one_process=options.inline)
    plan = job.plan(costs, one_process=options.inline)
    write_json(run_dir / "plan.json", plan.as_json())
    write_json(
        run_dir / "environment.json",
        {**surroundings, "engine": engine_name(job.spec, inline=options.inline), "command": sys.argv},
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
        with engine(job, inline=options.inline, address=options.address, run_token=token, note=observer.note) as made:
            plan = _on_devices(job, costs, plan, made, observer)
            write_json(run_dir / "plan.json", plan.as_json())
            observer.planned(plan)
            if start.step or spent_s:
                recorder.event("resumed", f"going on from mini-batch {start.step}", step=start.step)
            else:
                recorder.event("started", f"{plan.method}, {plan.schedule}, partition {list(plan.partition)}", step=0)
            driver = Driver(
                run_dir=run_dir,
                plan=plan,
                total_steps=job.total_steps,
                new_graph=made.graph,
                assign=lambda latest, begin: job.assignments(latest, run_dir, started_wall_s, begin, options.profile),
                replan=lambda before: _replan(job, costs, made, before, run_dir, observer),
                recorder=recorder,
                observer=observer,
                interrupts=interrupts,
                max_failures=job.spec.run.max_failures,
            )
            outcome = driver.run(start)
        if (run_dir / "profile").is_dir():
            observer.note(f"the traces in {run_dir / 'profile'} open in Perfetto")
    finally:
        recorder.close()
    return _report(job, driver.plan, run_dir, outcome, options, time.time() - started_wall_s)


def _on_devices(job: Job, costs: Costs, plan: Plan, made: Engine, observer: Observer) -> Plan:
    """The plan made anew for the devices that its stages are given, where they are not like this machine's."""
    found = made.find(plan, costs, observer.note)
    if found is None:
        return plan
    fitted = job.plan_for(costs, plan.stages, plan.replicas, found)
    if found.stage_speed:
        speeds = ", ".join(f"{speed:.2f}" for speed in found.stage_speed)
        observer.note(f"beside this machine, the devices of the stages have speeds of {speeds}")
    return fitted


def _replan(job: Job, costs: Costs, made: Engine, before: Plan, run_dir: Path, observer: Observer) -> Plan:
    """The plan for what is left of the cluster: fewer replicas or stages where a node went."""
    stages, replicas = made.room(before.stages, before.replicas)
    if stages == 0:
        raise RunError("no node is left that could hold a stage", mend="bring nodes back, then `alray resume` the run")
    as_before = (stages, replicas) == (before.stages, before.replicas)
    plan = before if as_before else job.plan_for(costs, stages, replicas)
    plan = _on_devices(job, costs, plan, made, observer)
    if replicas != before.replicas:
        observer.note(
            f"there is room for {replicas} of {before.replicas} replicas: "
            f"they take {list(plan.shares)} samples of each mini-batch from here on"
        )
    if stages != before.stages:
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
        engine=engine_name(job.spec, inline=options.inline),
        duration_s=duration_s,
        weights_sha256=sha256,
        parameters=sum(component.parameters for component in plan.costs.components),
        report=str(report),
    )
    write_json(run_dir / "summary.json", summary.model_dump(mode="json"))
    if options.pages:
        make_report(run_dir)
    return Finished(summary, report, outcome.error)


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
) -> Evaluated:
    """What a run's last checkpoint gives by the route of this depth, or by every one for None, and what that costs."""
    network = TrainedNetwork(run_dir, allow_code=allow_code)
    depths = network.depths if depth is None else (network.require_depth(depth),)
    accuracies = [accuracy for accuracy in network.evaluate(splits) if accuracy.depth in depths]
    return Evaluated(network.step, accuracies, measure_routes(network, depths))


def predict_run(run: Path, inputs: list[str], *, depth: int | None, allow_code: bool) -> list[ClassPrediction]:
    """Label and score of each input (see `TrainedNetwork.predict`), by the route of this depth (the deepest for None).

    run: a run folder, or a file of one exported route.
    """
    if run.is_file():
        return ExportedRoute(run, allow_code=allow_code).predict(inputs, depth)
    return TrainedNetwork(run, allow_code=allow_code).predict(inputs, depth)


def export_run(run_dir: Path, *, kind: Format, depth: int | None, output: Path | None, allow_code: bool) -> Exported:
    """Write a run's inference route of this depth (the deepest for None) to a file.

    output: the file; None for `export/route-<depth>` with the format's ending, in the run folder.
    """
    network = TrainedNetwork(run_dir, allow_code=allow_code)
    depth = network.require_depth(depth)
    file = output or run_dir / "export" / f"route-{depth}{ENDINGS[kind]}"
    return export_route(network, depth, kind, file)
