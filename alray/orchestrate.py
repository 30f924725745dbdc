"""spec.yaml -> Spec -> Plan -> Graph -> Run -> Report: this line as code. It is the first file to open."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from alray.device.devices import environment
from alray.errors import AlrayError
from alray.plan.plan import Plan
from alray.records import Summary, write_json
from alray.report.make import make_report, pages_of
from alray.report.summary import write_summary
from alray.run.driver import Driver, Interrupts, Observer, assignments
from alray.run.engines import engine, engine_name
from alray.run.planning import Planner
from alray.run.provenance import describe_run
from alray.run.recorder import recording
from alray.run.resume import Resumed
from alray.spec.loading import load_spec
from alray.spec.step_ranges import require_steps
from alray.stage.assignment import Start
from alray.stage.workload import Workload
from alray.store import make_run_dir, mark, writing_to
from alray.user_code import UserCode


@dataclass(frozen=True)
class Options:
    """How to run; nothing here changes what is computed."""

    inline: bool = False  # run every stage in this process, without Ray
    address: str | None = None  # the Ray cluster to attach to; None: start one for this run
    run_dir: Path | None = None  # None: runs/<name>-<time>
    allow_code: bool = False  # load the user's classes from outside the spec's folder too
    profile: tuple[range, ...] = ()  # mini-batches to trace with torch.profiler, counted from 1
    pages: bool = True  # end with the HTML page, timeline and TensorBoard files; `alray report` makes them later
    study: Path | None = None  # a trial of this study: stages run in the placement group it has, costs are kept here


@dataclass(frozen=True)
class Finished:
    """A run that ended. `error` is None unless it failed."""

    summary: Summary
    error: AlrayError | None


def plan_spec(
    spec_file: Path, overrides: list[str], *, probe: bool, allow_code: bool, observer: Observer
) -> tuple[Workload, Plan]:
    """Plan a spec without running it. probe: measure the components instead of estimating them."""
    planner = _load(spec_file, overrides, allow_code, observer)
    return planner.workload, planner.plan(planner.costs(probe=probe))


def run_spec(
    spec_file: Path, overrides: list[str], options: Options, observer: Observer, interrupts: Interrupts
) -> Finished:
    """Run a spec from its beginning, in a new run folder."""
    planner = _load(spec_file, overrides, options.allow_code, observer)
    workload = planner.workload
    engine_name(workload.spec, inline=options.inline)  # refuses what cannot run, before there is a run folder
    require_steps(options.profile, done=0, total=workload.total_steps)
    run_dir = make_run_dir(workload.spec.name, options.run_dir)
    workload.code.copy_used(run_dir / "code")
    with writing_to(run_dir):
        return _run(planner, run_dir, None, options, observer, interrupts)


def resume_run(
    run_dir: Path,
    overrides: list[str],
    options: Options,
    observer: Observer,
    interrupts: Interrupts,
    *,
    allow_change: bool,
) -> Finished:
    """Go on with a run from its last checkpoint, on the same stages or on others. A finished run is left as it is."""
    resumed = Resumed.open(run_dir, overrides, allow_change=allow_change)
    code = UserCode(resumed.run_dir / "code", allow_elsewhere=options.allow_code)
    planner = Planner.open(resumed.spec, code, note=observer.note, trained=resumed.manifest is not None)
    engine_name(planner.workload.spec, inline=options.inline)
    require_steps(options.profile, done=resumed.start.step, total=planner.workload.total_steps)
    if summary := resumed.finished(planner.workload.total_steps, observer.note):
        return Finished(summary, None)
    with writing_to(resumed.run_dir):
        return _run(planner, resumed.run_dir, resumed, options, observer, interrupts)


def _load(spec_file: Path, overrides: list[str], allow_code: bool, observer: Observer) -> Planner:
    loaded = load_spec(spec_file, overrides)
    for note in loaded.notes:
        observer.note(note)
    code = UserCode(loaded.file.resolve().parent, allow_elsewhere=allow_code)
    return Planner.open(loaded.spec, code, note=observer.note)


def _run(
    planner: Planner,
    run_dir: Path,
    resumed: Resumed | None,
    options: Options,
    observer: Observer,
    interrupts: Interrupts,
) -> Finished:
    inline, workload, spec = options.inline, planner.workload, planner.workload.spec
    start, spent_s = (resumed.start, resumed.spent_s) if resumed else (Start(), 0.0)
    name, surroundings = engine_name(spec, inline=inline), environment(workload.device)
    describe_run(run_dir, workload, {**surroundings, "engine": name})
    token = mark(run_dir)
    costs = planner.costs(probe=True, one_process=inline, study=options.study)
    plan = planner.plan(costs, one_process=inline)
    write_json(run_dir / "plan.json", plan.as_json())
    begun_s = time.time() - spent_s
    with (
        pages_of(run_dir, wanted=options.pages) as pages,
        recording(run_dir, workload, {**surroundings, "engine": name}, begun_s, [observer.record, *pages]) as recorder,
        engine(workload, token, observer.note, inline=inline, address=options.address, study=options.study) as made,
    ):
        plan = planner.fitted(plan, costs, made, observer.note)
        observer.planned(plan)
        for note in resumed.notes(plan, surroundings, on_cpu=workload.device.type == "cpu") if resumed else ():
            observer.note(note)
        recorder.began(plan, start.step, again=start.step > 0 or spent_s > 0)
        driver = Driver(
            run_dir,
            plan,
            total_steps=workload.total_steps,
            max_failures=spec.run.max_failures,
            new_graph=made.graph,
            assign=lambda plan, start: assignments(workload, plan, start, run_dir, begun_s, options.profile),
            replan=lambda before: planner.replanned(before, costs, made, observer.note),
            recorder=recorder,
            observer=observer,
            interrupts=interrupts,
        )
        outcome = driver.run(start)
    if (run_dir / "profile").is_dir():
        observer.note(f"the traces in {run_dir / 'profile'} open in Perfetto")
    page = run_dir / "report.html" if options.pages else None
    summary = write_summary(
        run_dir, workload, driver.plan, outcome.status, name, duration_s=time.time() - begun_s, page=page
    )
    if page is not None:
        make_report(run_dir)
    return Finished(summary, outcome.error)
