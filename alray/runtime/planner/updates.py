"""How many updates a run makes, and at which rate: a run that makes none learns nothing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from alray.config.sections.kind import Begin, MiniBatches, parts_of
from alray.config.sections.paths import key_text
from alray.config.sections.replicas import FixedDisturbance
from alray.config.sections.run import Checkpoint, RunSection
from alray.config.sections.spec import Spec
from alray.core.counting import counted
from alray.core.errors import PlanError
from alray.models.component import trainable
from alray.runtime.stage.learning_rate import Rates
from alray.runtime.workload import DataFacts, Workload


def require_an_update(workload: Workload) -> None:
    """Raise PlanError if no parameter is trained, if the run is shorter than an update, or if the rate of every update
    is 0."""
    network = workload.network
    if not any(trainable(network.component(index, "meta")) for index in range(len(network))):
        raise PlanError(
            "the run would learn nothing: no parameter of the network is trained, all have `requires_grad=False`",
            key="model",
            hint="leave some out of model.freeze, or let them require a gradient",
        )
    together, total = workload.spec.optimizer.accumulate, workload.total_steps
    if total < together:
        raise PlanError(
            f"the run would make no update: one takes {counted(together, 'mini-batch')}, "
            f"and the run has {counted(total, 'mini-batch')}",
            key="optimizer.accumulate",
            hint=f"set it to at most {total}, or make the run longer",
        )
    rates = Rates(workload.spec, workload.code)
    updates = range(together, total + 1, together)
    if not any(rates.at(step, data=workload.facts, total_steps=total) > 0.0 for step in updates):
        which = "its only update" if len(updates) == 1 else f"all of its {len(updates)} updates"
        raise PlanError(
            f"the run would learn nothing: the learning rate is 0 in {which}",
            key="lr_schedule",
            hint="let the rate be above 0 at some mini-batch, or make the run longer",
        )


def notes_on_length(workload: Workload) -> Iterator[str]:
    """Sentences on what the end of the run leaves out: the mini-batches that make no update, and what would begin
    later."""
    together, total = workload.spec.optimizer.accumulate, workload.total_steps
    if rest := total % together:
        yield (
            f"the last {counted(rest, 'mini-batch')} of {total} make no update, because one takes {together} "
            f"(optimizer.accumulate); the checkpoint keeps their gradients for a resume that makes the run longer"
        )
    mini_batches = partial(workload.facts.mini_batches, batch_size=workload.spec.data.batch_size)
    of_parts = (
        (f"{key_text(path)}.{key}", first, what)
        for path, part in parts_of(workload.spec)
        for key, first, what in part.begins(mini_batches)
    )
    told = set[str]()
    for key, first, what in (*of_parts, *_begins(workload.spec, workload.facts, mini_batches)):
        if first > total and key not in told:
            told.add(key)
            yield f"the first mini-batch {what} is {first}, and the run ends with {total} ({key})"


def _begins(spec: Spec, data: DataFacts, mini_batches: MiniBatches) -> Iterator[Begin]:
    """As `PartSection.begins`, of what is no part. What seconds say is not known, and defaults are not told."""
    run = spec.run
    saves = None if run.checkpoint is None else run.checkpoint.every
    if saves is not None and saves.unit != "s" and saves != Checkpoint().every:
        yield "run.checkpoint.every", mini_batches(saves), "that a checkpoint follows"
    if run.evaluate_every is not None and run.evaluate_every.unit != "s":
        every = mini_batches(run.evaluate_every)
        if run.evaluate_every != RunSection().evaluate_every:
            yield "run.evaluate_every", every, "that an evaluation follows"
        if run.stop_at is not None and run.stop_at.bounded:
            yield "run.stop_at", every + 1, "that its bound can spare"
        if run.stop_at is not None and run.stop_at.patience is not None:
            yield "run.stop_at.patience", every * (1 + run.stop_at.patience) + 1, "that its patience can spare"
    replicas = spec.replicas
    if replicas.count > 1 and replicas.synchronise != "every_step":
        meets = replicas.synchronise.num_steps + replicas.synchronise.delay
        yield "replicas.synchronise.average_every", meets, "after which replicas meet"
    if isinstance(replicas.disturbance, FixedDisturbance):
        first = (replicas.disturbance.epochs[0] - 1) * data.steps_per_epoch + 1
        yield "replicas.disturbance.epochs", first, "of a slowed replica"
