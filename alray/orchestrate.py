"""A spec becomes a report: spec.yaml -> Spec -> Plan -> Graph -> Run -> Report. This is the first file to open.

Ray starts in the background while this process imports torch: whatever needs torch is imported inside functions.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from alray.config.loading.inputs import load_with_inputs, packages_of
from alray.config.loading.load import SpecSource
from alray.config.loading.step_ranges import require_steps
from alray.config.sections.grammar import marked
from alray.config.sections.own_code import OwnClass
from alray.core.counting import counted
from alray.core.run_folder.records import model_of, write_json
from alray.core.run_folder.store import make_run_dir, remove_partial, require_new, require_run_dir, writing_to
from alray.core.storage.location import Location, remove_file
from alray.core.storage.lock import locked
from alray.report.trackers.follow import watched
from alray.report.trackers.make import make_trackers
from alray.runtime.options import Finished, Options
from alray.runtime.planner.opening import open_planner
from alray.runtime.planner.stage_devices import device_notes
from alray.runtime.runner.engines import Engine, begin_engine

if TYPE_CHECKING:
    from alray.planning.prediction.costs import Costs
    from alray.planning.prediction.plan import Plan
    from alray.report.trackers.tracker import Tracker
    from alray.runtime.graph.graph import Graph
    from alray.runtime.observer import Observer, StopRequests
    from alray.runtime.planner.planning import Planner
    from alray.runtime.runner.resume import Resumed
    from alray.runtime.workload import Workload


def plan_spec(
    source: SpecSource, overrides: list[str], *, probe: bool, options: Options, observer: Observer
) -> tuple[Workload, Plan]:
    """Plan a spec without running it, and without its data if their sizes are known.

    Args:
        probe: measure the components instead of estimating them.
    """
    loaded = load_with_inputs(
        source, overrides, allow_elsewhere=options.allow_code, without_data=True, objects=options.objects
    )
    with loaded.locations.locating():
        planner = open_planner(loaded, options, observer, without_data=True)
        for line in device_notes(loaded.spec):
            observer.note(line)
        return planner.workload, planner.plan(planner.costs(probe=probe), note=observer.note)


def probe_spec(
    source: SpecSource, overrides: list[str], *, options: Options, observer: Observer
) -> tuple[Workload, Costs]:
    """Measure the components of a spec on this machine, for plans elsewhere."""
    here = [*overrides, "machines=null", "pipeline.costs=null"]
    loaded = load_with_inputs(source, here, allow_elsewhere=options.allow_code, objects=options.objects)
    with loaded.locations.locating():
        planner = open_planner(loaded, options, observer, most_stages=loaded.spec.pipeline.stages)
        observer.doing("measuring the components")
        return planner.workload, planner.costs_for_others(observer.note)


def run_spec(
    source: SpecSource, overrides: list[str], options: Options, observer: Observer, interrupts: StopRequests
) -> Finished:
    """Run a spec from its beginning, in a new run folder."""
    code, objects = (None, options.objects) if options.code is None else (options.code.root, options.code.objects)
    loaded = load_with_inputs(source, overrides, code=code, allow_elsewhere=options.allow_code, objects=objects)
    require_new(options.run_dir)
    with (
        loaded.locations.locating(),
        closing(begin_engine(loaded.spec, options, observer.note)) as engine,
    ):
        planner = open_planner(loaded, options, observer, before_data=engine.require_not_failed)
        require_steps(options.profile, done=0, total=planner.workload.total_steps)
        trackers = make_trackers(planner.workload.spec, planner.workload.code)
        run_dir = make_run_dir(loaded.spec.name, options.run_dir)
        with locked(run_dir, observer.note), writing_to(run_dir):
            references = [reference for _, reference, _ in marked(planner.workload.spec, OwnClass)]
            planner.workload.code.copy_used(references, run_dir)
            return _run(planner, trackers, run_dir, None, engine, options, observer, interrupts)


def resume_run(
    run_dir: Location,
    overrides: list[str],
    options: Options,
    observer: Observer,
    interrupts: StopRequests,
    *,
    allow_change: bool,
) -> Finished:
    """Go on with a run from its last checkpoint, on the same stages or on others. A finished run is left as it is."""
    from alray.runtime.runner.resume import Resumed

    with locked(require_run_dir(run_dir), observer.note):
        resumed = Resumed.open(run_dir, overrides, allow_change=allow_change)
        resumed.require_longer()
        code = options.code or resumed.code(allow=options.allow_code, objects=options.objects, note=observer.note)
        with (
            resumed.locations.locating(),
            closing(begin_engine(resumed.spec, options, observer.note)) as engine,
        ):
            from alray.runtime.planner.planning import Planner  # takes a moment, in which the cluster may refuse

            engine.require_not_failed()
            observer.doing("opening the data")
            # A change that is allowed may decide how samples are standardised: then by the training split, as at first.
            of_run = options if allow_change else replace(options, standardised_as=resumed.run_dir)
            planner = Planner.open(resumed.spec, code, of_run, note=observer.note, trained=resumed.trained)
            if not allow_change:
                planner.workload.require_same_model(model_of(resumed.run_dir), "this run", observer.note)
            require_steps(options.profile, done=resumed.start.step, total=planner.workload.total_steps)
            if summary := resumed.finished(planner.workload, observer.note):
                return Finished(summary, None)
            resumed.require_whole_checkpoint(planner.workload.network, observer.note)
            trackers = make_trackers(resumed.spec, code)
            with writing_to(resumed.run_dir):
                return _run(planner, trackers, resumed.run_dir, resumed, engine, options, observer, interrupts)


def _run(
    planner: Planner,
    trackers: dict[str, Tracker],
    run_dir: Location,
    resumed: Resumed | None,
    engine: Engine,
    options: Options,
    observer: Observer,
    interrupts: StopRequests,
) -> Finished:
    from alray.report.make import PAGE, make_report
    from alray.report.summary import write_summary
    from alray.runtime.device.devices import environment
    from alray.runtime.probe.other_programs import Machine
    from alray.runtime.runner.driver import Driver, assignments
    from alray.runtime.runner.provenance import describe_run, describe_stages
    from alray.runtime.runner.recorder import Recorder
    from alray.runtime.stage.assignment import Start

    workload = planner.workload
    spec = planner.workload.spec
    surroundings = {
        **environment(workload.device),
        "engine": engine.name,
        "brought_by": packages_of(spec),
    }
    describe = partial(describe_run, run_dir, workload, surroundings, options.command)
    if resumed is None:
        describe()
    engine.mark_run_dir(run_dir)
    remove_partial(run_dir)
    resumed = resumed and resumed.at_last()
    start, spent_s = (resumed.start, resumed.spent_s) if resumed else (Start(), 0.0)
    observer.doing("measuring the components")
    costs = planner.costs(probe=True, wait_until_quiet=engine.wait_until_ready, kept=options.kept_costs)
    plan = planner.plan(costs, engine=engine, note=observer.note)
    if resumed is None:
        write_json(run_dir / "plan.json", plan.as_json())
    begun_s = time.time() - spent_s
    with (
        watched(run_dir, spec, trackers, pages=options.pages, study=options.study, note=observer.note) as watch,
        Recorder(
            run_dir,
            facts=workload.facts,
            batch_size=spec.data.batch_size,
            keep=spec.run.checkpoint.keep if spec.run.checkpoint else 1,
            environment=surroundings,
            started_wall_s=begun_s,
            observers=[observer.record, watch],
            token=engine.run_token,
        ) as recorder,
    ):
        plan = planner.fitted(plan, costs, engine, observer.note)
        observer.planned(plan)
        observer.starting(run_dir)
        observer.doing("starting the stages")
        if resumed is not None:  # until here the run is as it was, whatever went wrong
            done = counted(start.step, "mini-batch")
            changes = resumed.changes(workload.facts.identity)
            describe(changes=[f"{change}, after {done}" for change in changes])
            remove_file(run_dir / "summary.json")
        untold = [resumed] if resumed else []

        def started(graph: Graph) -> None:
            """Tell of the stages. The driver of a run on a cluster may have neither their device nor their torch."""
            observer.started(graph)
            if stages := graph.environment:
                surroundings.update(stages)  # the recorder writes them to manifests
                describe_stages(run_dir, surroundings)
            while untold:
                for note in untold.pop().notes(plan, surroundings, on_cpu=spec.resources.resolved_device == "cpu"):
                    observer.note(note)

        on_these_processors = workload.device.type == "cpu" and not engine.attaches and options.study is None
        recorder.began(plan, start, again=start.step > 0 or spent_s > 0)
        driver = Driver(
            run_dir,
            plan,
            total_steps=workload.total_steps,
            max_failures=spec.run.max_failures,
            new_graph=engine.graph,
            assign=lambda plan, start: assignments(workload, plan, start, run_dir, begun_s, options),
            replan=lambda before: planner.replanned(before, costs, engine, observer.note),
            recorder=recorder,
            observer=observer,
            interrupts=interrupts,
            stop_after=options.stop_after,
            started=started,
            machine=Machine() if on_these_processors else None,
        )
        outcome = driver.run(start)
    engine.close()
    if (run_dir / "profile").is_dir():
        observer.note(f"the traces in {run_dir / 'profile'} open in Perfetto")
    summary = write_summary(
        run_dir,
        workload,
        driver.plan,
        engine.name,
        outcome.status,
        outcome.step,
        duration_s=time.time() - begun_s,
        page=run_dir / PAGE if options.pages else None,
    )
    if options.pages:
        make_report(run_dir)
    return Finished(summary, outcome.error, outcome.lost)
