"""`alray.prove`: the same first mini-batches by a plain loop of torch, on one stage, on several, and after a stop.

Every way trains from the same weights on the same samples. Its weights and buffers after some mini-batches are compared
with those of a reference, tensor by tensor: with a plain loop where backpropagation trains, and with one stage
otherwise. Pipelines of micro-batches have the plain loop with as many. A schedule with late gradients trains other
weights by its definition, so its reference is the same schedule on one stage.

Where a way differs from a plain loop, loops that do one thing wrong are tried: if one of them trains the weights of the
way, that thing is the reason.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import nn

from alray.api.calls import Overrides, checked, watched
from alray.api.objects import Taken, taken
from alray.config.loading.inputs import load_with_inputs
from alray.core.counting import counted
from alray.core.errors import DataError, PlanError, RequestError, SpecError
from alray.core.run_folder.store import latest_manifest
from alray.core.storage.location import Location, location_of
from alray.data.batches import TrainBatches
from alray.models.backpropagation import BackpropagationComponent
from alray.models.component import Component
from alray.models.imported.calls import scores_of
from alray.models.imported.part import Part
from alray.models.optimizers import recipe
from alray.models.route import Route, route_of
from alray.orchestrate import resume_run, run_spec
from alray.planning.schedules.schedule import Schedule
from alray.planning.schedules.table import SCHEDULES, default_schedule, schedules_for
from alray.report.folder import read_plan
from alray.runtime.device import devices
from alray.runtime.observer import Observer, StopRequests
from alray.runtime.options import Finished, Options
from alray.runtime.planner.opening import open_planner
from alray.runtime.stage.checkpoint import CheckpointFiles, load_component
from alray.runtime.stage.learning_rate import Rates
from alray.runtime.workload import Workload

MINI_BATCHES = 6
"""How many every way trains by default."""
_MICRO_BATCHES = 4
"""Of pipelines that cut mini-batches, where the spec names no number."""
_MOST_STAGES = 3
"""Stages are tried up to this number by default."""
_PARTS = 4
"""A model is cut into so many components where it can be: virtual stages need two on each of two stages."""
_COST = "{forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-4}"
"""Given costs: nothing is measured, and stages get equal numbers of components."""
_ONE_STAGE = (
    "pipeline.stages=1",
    "pipeline.schedule=auto",
    "pipeline.partition=auto",
    "pipeline.micro_batches=null",
    "pipeline.virtual_stages=null",
)
_FOR_ALL = (
    "replicas.count=1",
    "resources.device=cpu",
    "run.evaluate_every=null",
    "run.train=never",
    "run.stop_at=null",
    "run.trackers=[]",
    "run.checkpoint={keep: 2}",
)
"""Every way is one replica on the processor, and leaves out what does not train."""
_DRAWS = "the model draws random numbers, as dropout does, and alray draws them for each component from the seed"
_STATISTIC = re.compile(r"running_|num_batches_tracked")
_UNSEEN = Observer()
_PLAIN = ("sgd", "adam", "adamw", "torch")
"""Optimizers that are one of torch's for all parameters."""

Weights = dict[str, torch.Tensor]
"""Weights and buffers: for a user's model by their names in it, otherwise `component 3: f.0.weight`."""
Train = Callable[[int], Weights]
"""Trains so many mini-batches from the first weights, and returns the weights then."""
Verdict = Literal["equal", "differs", "does not fit"]
_LOOP = "plain loop"
"""So begin the names of plain loops."""
_NEAR = 0.01
"""A faulty loop explains a way if it is this near to it: as a share of how far the way is from the right loop."""


@dataclass(frozen=True)
class Way:
    """One way to train, and what came out.

    Attributes:
        name: such as "3 stages, 1f1b, 4 micro-batches".
        reference: the name of the way that it is compared with; None: it is one itself.
        weights_sha256: of all weights and buffers; None: it did not train.
        largest_difference: over all weights and buffers; 0.0 where all bits are equal.
        first: the first weight or buffer that differs.
        why: the reason, where it differs or does not fit.
    """

    name: str
    verdict: Verdict
    reference: str | None = None
    weights_sha256: str | None = None
    largest_difference: float | None = None
    first: str | None = None
    why: str | None = None


@dataclass(frozen=True)
class Proof:
    """What `prove` found.

    Attributes:
        mini_batches: so many were trained in every way.
    """

    mini_batches: int
    ways: tuple[Way, ...]

    @property
    def same(self) -> bool:
        """Whether every way that fits trains the weights of its reference to the bit."""
        compared = [way for way in self.ways if way.reference is not None]
        return bool(compared) and all(way.verdict != "differs" for way in compared)

    def as_json(self) -> dict[str, Any]:
        return {"same": self.same, **asdict(self)}

    def rows(self) -> list[tuple[str, str]]:
        """Each way with what came out, for a person."""
        return [(way.name, _told(way)) for way in self.ways]

    def __repr__(self) -> str:
        width = max(len(name) for name, _ in self.rows())
        return "\n".join(f"{name:{width}}  {text}" for name, text in self.rows())


def _told(way: Way) -> str:
    if way.verdict == "does not fit":
        return f"does not fit: {way.why}"
    if way.verdict == "differs":
        where = f", first at {way.first}" if way.first else ""
        size = "" if way.largest_difference is None else f" by up to {way.largest_difference:.3g}{where}"
        return f"DIFFERS from {way.reference}{size}: {way.why}"
    return f"{(way.weights_sha256 or '')[:12]}  {'reference' if way.reference is None else f'equal to {way.reference}'}"


@checked
def prove(
    of: Any,
    data: Any = None,
    overrides: Overrides = None,
    *,
    model: Any = None,
    mini_batches: int = MINI_BATCHES,
    stages: int | None = None,
    inline: bool = True,
    allow_code: bool = False,
    progress: bool = True,
) -> Proof:
    """Train the first mini-batches in every way that fits, and compare the weights.

    The ways: a plain loop of torch where backpropagation trains, one stage, every schedule of the method on several
    stages, and a stop with a resume on one stage. Each has the optimizer, the learning rate and the data of the spec.
    A spec that names a schedule is trained by this one alone.

    Where nothing says how large mini-batches are, and there are fewer samples than one has, they are smaller.

    Raises as `alray.run`.

    Args:
        of: a module of torch, which is trained by backpropagation unless an override names another method; or a spec,
            as for `alray.run`.
        data, overrides, model, allow_code: as for `alray.run`.
        mini_batches: so many are trained; at least 2.
        stages: the largest number of stages; None: 3, or as many as there are components.
        inline: run the stages in this process. Otherwise each is a process of Ray.
        progress: show it.
    """
    if callable(of):
        of, model = {"name": "proof", "method": "backpropagation", "run": {"epochs": 1}}, of
    with watched(progress) as (observer, interrupts):
        return prove_taken(
            taken(of, overrides, model=model, data=data),
            mini_batches=mini_batches,
            stages=stages,
            options=Options(inline=inline, allow_code=allow_code, pages=False),
            observer=observer,
            interrupts=interrupts,
        )


def prove_taken(
    found: Taken,
    *,
    mini_batches: int,
    stages: int | None,
    options: Options,
    observer: Observer,
    interrupts: StopRequests,
) -> Proof:
    """`prove`, with names in place of objects."""
    if mini_batches < 2:
        raise RequestError("a stop needs a mini-batch before it and one after it", key="mini_batches", hint="give 2")
    with _scratch() as folder:
        prover = _Prover(found, mini_batches, options, observer, interrupts, folder)
        return Proof(prover.steps, tuple(prover.ways(stages)))


@contextmanager
def _scratch() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="alray-proof-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Training(NamedTuple):
    """What decides which weights a way trains: the micro-batches, and how many updates its gradients are late."""

    micro_batches: int
    late: int


@dataclass(frozen=True)
class _Fault:
    """What a plain loop does wrong: nothing without arguments.

    Attributes:
        last_alone: of the micro-batches the last one alone has a gradient.
        old_gradients: those of the mini-batch before are added.
        clips_sum: the micro-batches' sum is clipped, in place of their mean.
        norms: groups of components that each have a norm of their own.
        stale: components that compute with their weights from before the last update.
        anew: the mini-batch before which all buffers become what they were at first.
    """

    last_alone: bool = False
    old_gradients: bool = False
    clips_sum: bool = False
    norms: Sequence[Sequence[int]] = ()
    stale: Sequence[int] = ()
    anew: int | None = None


_RIGHT = _Fault()


def _faults(stages: Sequence[Sequence[int]], step: int) -> dict[str, _Fault]:
    """Each fault by what it is in words.

    Args:
        stages: the components of each.
        step: the mini-batch after which weights differ. A stop was after half of so many.
    """
    stale = {
        f"stage {number} computes with its weights from before the last update": _Fault(stale=components)
        for number, components in enumerate(stages)
    }
    every = [index for components in stages for index in components]
    return {
        "the last micro-batch alone has a gradient": _Fault(last_alone=True),
        "gradients of the mini-batch before are added": _Fault(old_gradients=True),
        "the sum of the micro-batches is clipped, and not their mean": _Fault(clips_sum=True),
        "each stage clips by a norm of its own": _Fault(norms=stages),
        **stale,
        "all compute with the weights from before the last update": _Fault(stale=every),
        "buffers became what they were at first": _Fault(anew=step // 2 + 1),
    }


class _Prover:
    """Trains in one way after the other, and keeps the weights of the references."""

    def __init__(
        self,
        found: Taken,
        mini_batches: int,
        options: Options,
        observer: Observer,
        interrupts: StopRequests,
        folder: Path,
    ) -> None:
        self._source = found.spec
        self._options = replace(options, objects=found.objects)
        self._observer = observer
        self._interrupts = interrupts
        self._folder = folder
        self._runs = 0
        self._references: dict[_Training, tuple[str, Train, Weights]] = {}
        overrides = found.overrides
        try:
            self._workload = self._opened(overrides)
        except DataError as error:
            overrides = [*overrides, self._smaller(overrides, mini_batches, error)]
            self._workload = self._opened(overrides)
        components, model = len(self._workload.network), self._workload.spec.model
        cut = []
        if model.source is not None and model.cut is None and model.components != components:
            # The runs cut the model into so many, which need not be its natural ones.
            cut = [f"model.components={components}"]
            self._workload = self._opened(_merged(overrides, cut))
        self.steps = min(mini_batches, self._workload.total_steps)
        given = self._workload.spec.pipeline.micro_batches
        self._cuts = given if isinstance(given, int) else _MICRO_BATCHES
        costs = ", ".join([_COST] * components)
        self._overrides = _merged(overrides, [*_FOR_ALL, f"pipeline.costs=[{costs}]", *cut])

    def _smaller(self, overrides: Sequence[str], count: int, error: DataError) -> str:
        """The override for mini-batches of which an epoch has about so many, where nothing says how large they are, and
        all samples are fewer than one of the usual size. Raises any other error that was met."""
        if error.problems[0].key != "data.batch_size":
            raise error
        opened = self._opened(_merged(overrides, ["data.last_batch=keep"]))
        samples = len(opened.data.train)
        if "batch_size" in opened.spec.data.model_fields_set or samples < 2 * _MICRO_BATCHES:
            raise error
        return f"data.batch_size={max(samples // count, 2 * _MICRO_BATCHES) // _MICRO_BATCHES * _MICRO_BATCHES}"

    def _opened(self, overrides: Sequence[str]) -> Workload:
        loaded = load_with_inputs(
            self._source, overrides, allow_elsewhere=self._options.allow_code, objects=self._options.objects
        )
        self._observer.doing("opening the data and the model")
        with loaded.locations.locating():  # notes on a run, such as classes without a sample, change no proof
            return open_planner(loaded, self._options, _UNSEEN, most_stages=_PARTS).workload

    def ways(self, most_stages: int | None) -> Iterator[Way]:
        """Every way. The first one of those that train the same weights is the reference of the others."""
        spec = self._workload.spec
        local = spec.method.local_losses
        most = min(most_stages or _MOST_STAGES, len(self._workload.network))
        cuts = self._cuts
        if not local:
            missing = _not_in_a_plain_loop(self._workload)
            for count in (1, cuts):
                name = f"{_LOOP} of torch" if count == 1 else f"{_LOOP}, {count} micro-batches"
                if missing is None:
                    yield self._way(name, _Training(count, 0), partial(_plain_loop, self._workload, count))
                else:
                    yield Way(name, "does not fit", why=missing)
        asked = spec.pipeline.schedule
        schedules = schedules_for(local_losses=local) if asked == "auto" else [SCHEDULES[asked]]
        for stages in range(1, most + 1):
            for schedule in schedules:
                if _is_tried(schedule, stages):
                    count = cuts if schedule.cuts_mini_batches else 1
                    name = f"{counted(stages, 'stage')}, {schedule.name}"
                    run = partial(self._run, _layout(schedule, stages, count))
                    must_fit = "one stage" in schedule.default_on and stages == 1
                    yield self._way(name, _Training(count, schedule.gradient_delay), run, must_fit=must_fit)
        usual = default_schedule(local_losses=local, stages=most) if asked == "auto" else SCHEDULES[asked]
        count = cuts if usual.cuts_mini_batches else 1
        name = f"{counted(most, 'stage')}, resumed on 1"
        yield self._way(
            name, _Training(count, usual.gradient_delay), partial(self._resumed, _layout(usual, most, count))
        )

    def _way(self, name: str, training: _Training, train: Train, *, must_fit: bool = False) -> Way:
        """Train in one way, and compare its weights with those of its reference.

        Args:
            must_fit: raise the error of a spec that does not fit, because then nothing can be compared.
        """
        self._observer.doing(name)
        try:
            weights = train(self.steps)
        except (SpecError, PlanError) as error:
            if must_fit:
                raise
            return Way(name, "does not fit", why=error.problems[0].message)
        sha256 = _sha256(weights)
        if training not in self._references:
            self._references[training] = name, train, weights
            return Way(name, "equal", None, sha256, 0.0)
        reference, trains_right, expected = self._references[training]
        if not _apart(weights, expected):
            return Way(name, "equal", reference, sha256, 0.0)
        largest = max(_apart(weights, expected).values())
        self._observer.doing(f"{name}: where it parts from {reference}")
        for step in range(1, self.steps + 1):
            weights = train(step)
            apart = _apart(weights, trains_right(step))
            if apart:
                why = self._fault(training, step, weights, apart) if reference.startswith(_LOOP) else None
                return Way(name, "differs", reference, sha256, largest, *_told_apart(step, apart, expected, why))
        return Way(name, "differs", reference, sha256, largest, None, "it is not the same a second time")

    def _fault(self, training: _Training, step: int, weights: Weights, apart: Mapping[str, float]) -> str | None:
        """What a plain loop does wrong that trains the weights of the last run; None: nothing that is known.

        Args:
            step: the mini-batch after which they differ.
            apart: by how much.
        """
        stages = [each.components for each in read_plan(location_of(self._folder / f"run-{self._runs}")).stage_plans]
        loops = {
            told: partial(_plain_loop, self._workload, training.micro_batches, step, fault)
            for told, fault in _faults(stages, step).items()
        }
        for count in {1, self._cuts} - {training.micro_batches}:
            pieces = "the whole mini-batch" if count == 1 else f"{count} micro-batches, one by one"
            loops[f"sums and norms are over {pieces}"] = partial(_plain_loop, self._workload, count, step)
        near = _NEAR * max(apart.values())
        for told, train in loops.items():
            trained = train()
            if max(_apart(trained, {name: weights[name] for name in apart}).values(), default=0.0) <= near:
                return told
        return None

    def _run(self, keys: Sequence[str], steps: int) -> Weights:
        return self._weights(self._trained(keys, steps))

    def _resumed(self, keys: Sequence[str], steps: int) -> Weights:
        """Half of the mini-batches on several stages, and the others on one."""
        before = steps // 2
        if not before:
            return self._run(keys, steps)
        folder = self._trained(keys, before)
        options = replace(self._options, stop_after=steps)
        self._require(resume_run(folder, ["pipeline.stages=1"], options, _UNSEEN, self._interrupts, allow_change=False))
        return self._weights(folder)

    def _trained(self, keys: Sequence[str], steps: int) -> Location:
        """Train so many mini-batches, and return the run folder."""
        self._runs += 1
        folder = location_of(self._folder / f"run-{self._runs}")
        options = replace(self._options, run_dir=folder, stop_after=steps)
        self._require(run_spec(self._source, _merged(self._overrides, keys), options, _UNSEEN, self._interrupts))
        return folder

    def _require(self, finished: Finished) -> None:
        if finished.error is not None:
            raise finished.error
        if self._interrupts.count:
            raise KeyboardInterrupt

    def _weights(self, run_dir: Location) -> Weights:
        """Of the last checkpoint."""
        manifest = latest_manifest(run_dir)
        assert manifest is not None, "a run that stops writes a checkpoint"
        files = CheckpointFiles.of(run_dir, manifest)
        components = _components(self._workload)
        for component in components:
            load_component(component, files, optimizer=False)
        return _weights_of(components, _whole(self._workload, components))


def _apart(weights: Weights, expected: Weights) -> dict[str, float]:
    """The largest difference of each tensor that differs."""
    return {
        name: (weights[name].double() - value.double()).abs().max().item()
        for name, value in expected.items()
        if not torch.equal(weights[name], value)
    }


def _told_apart(step: int, apart: Mapping[str, float], every: Weights, why: str | None) -> tuple[str, str]:
    """The first tensor that differs, and what is known of the reason.

    Args:
        step: the first mini-batch after which some differ.
        why: what a loop does wrong that trains these weights.
    """
    first = f"`{next(iter(apart))}` after mini-batch {step}"
    size = f"{len(apart)} of {counted(len(every), 'tensor')}"
    if why is not None:
        return first, f"{size} differ, as in a loop where {why}"
    if all(_STATISTIC.search(name) for name in apart):
        return first, f"{size} differ, all of them running statistics: another mini-batch made them, or none"
    if step == 1:
        return first, f"{size} differ after one update: it has another gradient, from other samples or another norm"
    return first, f"{size} differ, and the update before was right: later ones have something of an earlier one"


def _is_tried(schedule: Schedule, stages: int) -> bool:
    """On one stage: what `auto` means there, and schedules that train other weights, which are their own reference."""
    if stages == 1:
        return "one stage" in schedule.default_on or schedule.gradient_delay > 0
    return not schedule.one_stage


def _layout(schedule: Schedule, stages: int, micro_batches: int) -> list[str]:
    """The overrides of a layout on devices."""
    cut = [f"pipeline.micro_batches={micro_batches}"] if schedule.cuts_mini_batches else []
    return _merged(_ONE_STAGE, [f"pipeline.stages={stages}", f"pipeline.schedule={schedule.name}", *cut])


def _merged(overrides: Sequence[str], later: Sequence[str]) -> list[str]:
    """Overrides, of which the later ones win."""
    return list({each.partition("=")[0].strip(): each for each in (*overrides, *later)}.values())


def _components(workload: Workload) -> list[Component]:
    """Every component with its first weights, on the processor."""
    return [workload.network.component(index, "cpu") for index in range(len(workload.network))]


def _whole(workload: Workload, components: Sequence[Component]) -> nn.Module | None:
    """The user's model with the weights of these components; None where they are alray's blocks."""
    route = route_of(components, len(components))
    parts = [part for part in (*route.f, route.turn) if isinstance(part, Part)]
    return workload.network.whole_model(parts) if parts else None


def _weights_of(components: Sequence[Component], whole: nn.Module | None) -> Weights:
    """All weights and buffers, of a user's model by its own names."""
    if whole is not None:
        return {name: value.detach().clone() for name, value in whole.state_dict().items()}
    return {
        f"component {component.index}: {name}": value.detach().clone()
        for component in components
        for name, value in component.weights().items()
    }


def _sha256(weights: Weights) -> str:
    found = hashlib.sha256()
    for name, value in weights.items():
        found.update(name.encode())
        found.update(value.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _not_in_a_plain_loop(workload: Workload) -> str | None:
    """What training by backpropagation has here that the plain loop does not; None: nothing."""
    spec, network = workload.spec, workload.network
    if any(facts.draws and not facts.own and facts.ends is None for facts in network.encoders):
        return _DRAWS
    if spec.optimizer.kind not in _PLAIN:
        return f"the plain loop has no optimizer `{spec.optimizer.kind}`"
    has_more = {
        "optimizer.accumulate": spec.optimizer.accumulate > 1,
        "optimizer.rate_factors": bool(spec.optimizer.rate_factors),
        "pipeline.messages": spec.pipeline.messages is not None,
        "run.precision": spec.run.precision == "bf16",
        "run.compile": spec.run.compile,
    }
    return next((f"the plain loop has no `{key}`" for key, has in has_more.items() if has), None)


def _plain_loop(workload: Workload, micro_batches: int, steps: int, fault: _Fault = _RIGHT) -> Weights:
    """Train as one writes it with torch alone, from the run's first weights on its mini-batches, at its rates.

    A user's model runs as a whole, by its own `forward`; blocks run one after the other. The gradient of a mini-batch
    is the mean over its micro-batches.

    Raises SpecError if the model draws random numbers.
    """
    spec, network = workload.spec, workload.network
    with devices.configured(spec.resources.threads, spec.run.deterministic, torch.device("cpu"), tf32="none"):
        components = _components(workload)
        whole = _whole(workload, components)
        route = route_of(components, len(components))
        model = route if whole is None else whole.to(network.dtype)
        model.train()
        last = components[-1]
        assert isinstance(last, BackpropagationComponent)
        learned = [each for each in model.parameters() if each.requires_grad]
        optimizer = _optimizer(workload, learned)
        rates = Rates(spec, workload.code)

        def clip(parameters: Sequence[nn.Parameter]) -> None:
            if spec.optimizer.clip_norm is not None:
                nn.utils.clip_grad_norm_(parameters, spec.optimizer.clip_norm, foreach=False)

        undrawn = torch.get_rng_state()
        first_buffers = _copied(model.buffers())
        stale = _learned(route, whole, fault.stale)
        older = _copied(stale)
        with TrainBatches(workload.data, seed=spec.seed, start_step=0, end_step=steps, workers=0) as batches:
            for number, batch in enumerate(batches, 1):
                newest = _copied(stale)
                _put(stale, older)
                older = newest
                if number == fault.anew:
                    _put(model.buffers(), first_buffers)
                if not fault.old_gradients:
                    optimizer.zero_grad()
                rate = rates.at(number, data=workload.facts, total_steps=workload.total_steps)
                for group in optimizer.param_groups:
                    group["lr"] = rate
                tensors = batch.with_labels(torch.device("cpu"), network.dtype)
                cut = {name: value.chunk(micro_batches) for name, value in tensors.items()}
                for part in range(micro_batches):
                    samples, labels = cut["s"][part], cut["labels"][part]
                    mask = cut["mask"][part] if "mask" in cut else None
                    if fault.last_alone:
                        optimizer.zero_grad()
                    scores = model(samples, mask) if whole is None else scores_of(whole, samples, mask)
                    last.loss(scores, labels).backward()
                _put(stale, newest)
                if fault.clips_sum:
                    clip(learned)
                if micro_batches > 1:
                    for each in learned:
                        if each.grad is not None:
                            each.grad.div_(micro_batches)
                for own in fault.norms:
                    clip(_learned(route, whole, own))
                if not fault.norms:
                    clip(learned)
                optimizer.step()
        if not torch.equal(torch.get_rng_state(), undrawn):
            raise SpecError(_DRAWS)
        return _weights_of(components, whole)


def _learned(route: Route, whole: nn.Module | None, components: Sequence[int]) -> list[nn.Parameter]:
    """The parameters of these components that learn: those of the user's model, if there is one."""
    modules = [route.f[index] for index in components]
    if len(route.f) - 1 in components:
        modules.append(route.turn)
    if whole is None:
        return [each for module in modules for each in module.parameters() if each.requires_grad]
    names = {name for module in modules for name in module.state_dict()}
    return [each for name, each in whole.named_parameters() if name in names and each.requires_grad]


def _copied(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    return [each.detach().clone() for each in tensors]


@torch.no_grad()
def _put(tensors: Iterable[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
    for each, value in zip(tensors, values, strict=True):
        each.copy_(value)


def _optimizer(workload: Workload, parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
    section = workload.spec.optimizer
    (chosen,) = recipe(section, workload.code).choose(section, parameters, {})
    groups = [
        {"params": [each for each in parameters if section.decays(each.ndim) == decays], "weight_decay": weight_decay}
        for decays, weight_decay in ((True, section.weight_decay), (False, 0.0))
    ]
    made: torch.optim.Optimizer = chosen.kind(
        [each for each in groups if each["params"]], lr=section.lr, **chosen.settings
    )
    return made
