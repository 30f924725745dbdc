"""Checks that look at more than one key: one function each. It gives the key, what is wrong, and the hint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import get_args

from alray.config.sections.data import SOURCES
from alray.config.sections.kind import Finding, parts_of
from alray.config.sections.method import METHODS
from alray.config.sections.own_code import OwnCode
from alray.config.sections.resources import ACCELERATORS
from alray.config.sections.run import LENGTHS
from alray.config.sections.section import listed
from alray.config.sections.spec import Spec
from alray.config.sections.task import DEFAULT as DEFAULT_TASK
from alray.core.counting import counted
from alray.planning.schedules.micro_batches import Fault, batch_size_fault, micro_batch_norm_fault
from alray.planning.schedules.partition_rules import partition_faults, stage_faults
from alray.planning.schedules.placement import round_robin
from alray.planning.schedules.schedule import kinds_of
from alray.planning.schedules.table import SCHEDULES, default_schedule, schedules_for

Check = Callable[[Spec], Iterator[Finding]]
TOO_FEW_SAMPLES_HINT = "use a data.batch_size that is a multiple of the stages, or fewer stages"
"""The hint where no number of micro-batches suits both the samples and the stages."""


def parts_suit_the_spec(spec: Spec) -> Iterator[Finding]:
    """The faults that each part of the spec finds: its keys do not fit each other, or the rest of the spec."""
    for path, part in parts_of(spec):
        yield from part.faults(spec, path)


def partition_adds_up(spec: Spec) -> Iterator[Finding]:
    """A partition that is a list has one number for each stage, and the numbers add up to all components."""
    pipeline, components = spec.pipeline, spec.num_components
    if components is not None and not isinstance(pipeline.partition, str):
        found = partition_faults(pipeline.partition, components, pipeline.stages, spec.virtual_stages)
        for key, message, hint in found:
            yield ("pipeline", key), message, hint


def stages_have_components(spec: Spec) -> Iterator[Finding]:
    """Every stage, and every virtual stage, has at least one component."""
    components = spec.num_components
    if components is not None and isinstance(spec.pipeline.partition, str):
        for key, message, hint in stage_faults(components, spec.pipeline.stages, spec.virtual_stages):
            yield ("pipeline", key), message, hint


def components_lie_in_turns(spec: Spec) -> Iterator[Finding]:
    """With cyclic placement all stages have the same number of components, and each component is a virtual stage."""
    pipeline, components = spec.pipeline, spec.num_components
    if pipeline.partition != "cyclic":
        return
    if components is None:
        yield (
            ("pipeline", "partition"),
            "cyclic placement needs a known number of components, and the model decides it",
            "give model.components as a number, or model.cut",
        )
        return
    if pipeline.stages > components:
        return
    each, left = divmod(components, pipeline.stages)
    if left:
        yield (
            ("pipeline", "partition"),
            f"cyclic placement gives every stage as many components, but {components} are no multiple of "
            f"{counted(pipeline.stages, 'stage')}",
            "use another number of stages or components, or give a partition and pipeline.virtual_stages",
        )
    elif pipeline.virtual_stages not in (None, each):
        yield (
            ("pipeline", "virtual_stages"),
            f"{counted(components, 'component')} round-robin on {counted(pipeline.stages, 'stage')} are {each} virtual "
            f"stages each, got {pipeline.virtual_stages}",
            "leave it out, or give another partition",
        )
    elif spec.schedule_suits and (fault := SCHEDULES[spec.schedule].virtual_stages_fault(each)) is not None:
        yield ("pipeline", "partition"), f"cyclic placement: {fault[0]}", "choose a schedule with virtual stages"
    elif spec.schedule_suits and SCHEDULES[spec.schedule].place is not round_robin:
        yield (
            ("pipeline", "partition"),
            f"cyclic placement lays components in turns, and `{spec.schedule_name}` lays them in the shape of a V",
            "set it to uniform, or choose a schedule that lays them in turns",
        )


def schedule_suits_method(spec: Spec) -> Iterator[Finding]:
    """Some schedules are for local losses, the others for backpropagation."""
    if not spec.schedule_suits:
        known = schedules_for(local_losses=spec.method.local_losses)
        yield (
            ("pipeline", "schedule"),
            f"`{spec.schedule_name}` is not a schedule for {spec.method.kind}",
            f"choose {listed(['auto', *(schedule.name for schedule in known)])}",
        )


def one_stage_schedules_have_one_stage(spec: Spec) -> Iterator[Finding]:
    """A schedule without a pipeline runs on one stage."""
    if spec.schedule_suits and SCHEDULES[spec.schedule].one_stage and spec.pipeline.stages > 1:
        others = schedules_for(local_losses=spec.method.local_losses)
        yield (
            ("pipeline", "stages"),
            f"the schedule `{spec.schedule_name}` runs on one stage, got {spec.pipeline.stages}",
            "set pipeline.stages to 1, or choose the schedule "
            f"{listed([schedule.name for schedule in others if not schedule.one_stage])}",
        )


def micro_batches_suit_schedule(spec: Spec) -> Iterator[Finding]:
    """The schedule can run with this number of micro-batches and of virtual stages."""
    if not spec.schedule_suits:
        return
    faults = {
        "stages": SCHEDULES[spec.schedule].stages_fault(spec.pipeline.stages),
        "micro_batches": _micro_batches_fault(spec),
        "virtual_stages": SCHEDULES[spec.schedule].virtual_stages_fault(spec.virtual_stages),
    }
    if spec.pipeline.partition == "cyclic":
        del faults["virtual_stages"]  # `components_lie_in_turns` has it
    for key, fault in faults.items():
        if fault is not None:
            yield ("pipeline", key), *fault


def _micro_batches_fault(spec: Spec) -> Fault | None:
    schedule = SCHEDULES[spec.schedule]
    stages = spec.pipeline.stages
    share = spec.data.batch_size // spec.replicas.count
    if spec.pipeline.micro_batches != "auto":
        return schedule.micro_batches_fault(stages, spec.micro_batches)
    if not schedule.cuts_mini_batches:
        return f"`{spec.schedule_name}` does not cut mini-batches, got auto", "leave it out"
    if schedule.possible_micro_batches(stages, share):
        return None
    what = "a mini-batch" if spec.replicas.count == 1 else "a replica's share"
    return (
        f"`{spec.schedule_name}` on {counted(stages, 'stage')} cannot cut {what} of {counted(share, 'sample')} into "
        "equal micro-batches, one per stage or more",
        TOO_FEW_SAMPLES_HINT,
    )


def micro_batches_divide_the_batch(spec: Spec) -> Iterator[Finding]:
    """Micro-batches are equal: the schedules work with tensors of one shape."""
    if spec.pipeline.micro_batches == "auto":
        return
    fault = batch_size_fault(spec.data.batch_size, spec.micro_batches)
    if fault is not None and spec.is_pipeline:
        message, hint = fault
        layout = SCHEDULES[spec.schedule].only_layout
        if layout is not None:
            message += f", as {spec.schedule_name} lists"
            hint = f"use a data.batch_size that {layout.micro_batches} divides"
        elif spec.pipeline.micro_batches is None:
            message += " (2 per stage, the default)"
            share = spec.data.batch_size // spec.replicas.count
            if not SCHEDULES[spec.schedule].possible_micro_batches(spec.pipeline.stages, share):
                hint = TOO_FEW_SAMPLES_HINT
        yield ("pipeline", "micro_batches"), message, hint


def pipelines_drop_the_last_batch(spec: Spec) -> Iterator[Finding]:
    """The messages between stages of backpropagation have one shape, fixed at the start."""
    if spec.is_pipeline and spec.data.last_batch == "keep":
        yield (
            ("data", "last_batch"),
            f"the schedule `{spec.schedule_name}` needs mini-batches of one size, and an epoch's last one may be "
            "smaller",
            f"leave it at drop, or choose the schedule {default_schedule(local_losses=False, stages=1).name}",
        )


def micro_batches_leave_norms_alone(spec: Spec) -> Iterator[Finding]:
    """Batch normalisation, as in blocks of images, would take its statistics over a micro-batch."""
    if spec.pipeline.micro_batch_norm == "accept" or not spec.is_pipeline or spec.micro_batches == 1:
        return  # on one stage `auto` may also turn out to be 1
    for index, entry in enumerate(spec.model.blocks):
        if entry.normalises_batches:
            message, hint = micro_batch_norm_fault(f"block `{entry.block}`", spec.micro_batches)
            yield ("model", "components", index, "block"), message, hint
            return


def mixed_labels_are_shares_of_classes(spec: Spec) -> Iterator[Finding]:
    """A mixed sample belongs to two classes. Only a cross-entropy or a code of all classes can learn that."""
    if spec.data.mix is None:
        return
    if spec.task.kind != DEFAULT_TASK:
        yield ("data", "mix"), f"it mixes classes, and the task is {spec.task.kind}", "leave it out"
    elif not spec.method.takes_shares:
        knowing = [kind for kind, section in METHODS.sections.items() if section.takes_shares]
        yield (
            ("data", "mix"),
            f"{spec.method.kind} needs one class for each sample",
            f"leave it out, or choose {listed(knowing)}",
        )


def losses_weigh_classes(spec: Spec) -> Iterator[Finding]:
    """Weights of classes need one class for each sample, and losses that are those of the task."""
    if spec.task.weights_of_classes is None:
        return
    here = ("task", "class_weights")
    if not spec.method.weighs_classes:
        knowing = [kind for kind, section in METHODS.sections.items() if section.weighs_classes]
        message = f"the losses of {spec.method.kind} have no weights of classes"
        yield here, message, f"leave it out, or choose the method {listed(knowing)}"
    elif spec.data.mix is not None:
        yield (
            here,
            "a mixed sample has no single class, whose weight it could have",
            "leave it out, or leave out data.mix",
        )


def method_knows_task(spec: Spec) -> Iterator[Finding]:
    """Some methods learn classes only. The class of a user's method says itself what it learns."""
    task, method = spec.task.kind, spec.method
    if spec.task.like not in method.known_tasks():
        knowing = [kind for kind, section in METHODS.sections.items() if spec.task.like in section.known_tasks()]
        yield (
            ("method", "kind"),
            f"{method.kind} does not know the task {task}, only {listed(method.known_tasks(), 'and')}",
            f"choose {listed(knowing)}",
        )
    if task == DEFAULT_TASK:
        return
    if not isinstance(method, OwnCode) and getattr(method, "label_smoothing", None):
        yield (
            ("method", "label_smoothing"),
            f"it spreads a class over the others, and the task is {task}",
            "leave it out",
        )


def source_has_labels_of_task(spec: Spec) -> Iterator[Finding]:
    """Many sources have classes only. A user's task checks later whether it takes the labels."""
    data, task = spec.data, spec.task.kind
    fits = data.suits(spec.task)
    if not fits or (task != DEFAULT_TASK and getattr(data, "text", None) is not None):
        what = data.source if not fits else "text"
        others = [kind for kind, section in SOURCES.sections.items() if section.suits(spec.task)]
        yield (
            ("data", "source"),
            f"{what} has classes, and no labels for the task {task}",
            f"choose {listed(others)}, or write your own source",
        )
    if task == DEFAULT_TASK and not isinstance(data, OwnCode) and getattr(data, "label_columns", None) is not None:
        yield (
            ("data", "label_columns"),
            "classification has one column of classes",
            "set label_column instead, or the task: multi_label or regression",
        )


def messages_suit_the_rest(spec: Spec) -> Iterator[Finding]:
    """Gradients travel in backpropagation alone."""
    messages = spec.pipeline.messages
    if messages is not None and messages.gradients is not None and spec.method.local_losses:
        yield (
            ("pipeline", "messages", "gradients"),
            f"by {spec.method.kind} no gradient travels between components",
            "leave it out",
        )


def scaled_rates_have_a_reference(spec: Spec) -> Iterator[Finding]:
    """To scale a learning rate with the batch size, the batch size must be known for which the rate was chosen."""
    schedule = spec.lr_schedule
    if schedule.scale_with_batch != "none" and schedule.reference_batch_size is None:
        yield (
            ("lr_schedule", "scale_with_batch"),
            f"`{schedule.scale_with_batch}` needs the batch size that the rates of the optimizer are meant for",
            "set lr_schedule.reference_batch_size",
        )


def one_cost_per_component(spec: Spec) -> Iterator[Finding]:
    """If the spec gives costs, there is one for each component, `repeat` counted."""
    costs, components = spec.pipeline.costs, spec.num_components
    if isinstance(costs, tuple) and components is not None and len(costs) != components:
        yield (
            ("pipeline", "costs"),
            f"{counted(len(costs), 'cost')}, but the model has {counted(components, 'component')}",
            "give one per component, with `repeat` counted",
        )


def one_bundle_per_stage(spec: Spec) -> Iterator[Finding]:
    """If resources are a list, it has one entry for each stage."""
    bundles, stages = spec.resources.per_stage, spec.pipeline.stages
    if not isinstance(bundles, dict) and len(bundles) != stages:
        yield (
            ("resources", "per_stage"),
            f"{counted(len(bundles), 'entry', 'entries')} for {counted(stages, 'stage')}",
            "give one per stage, or one section for all of them",
        )


def stages_on_gpus_ask_for_one(spec: Spec) -> Iterator[Finding]:
    """A stage on a GPU must request one, or Ray may reserve it for another stage."""
    if spec.resources.device in ("auto", "cpu"):
        return
    # One where all are alike: how many stages a network can have is not known yet, and a spec may ask for any number.
    name = spec.resources.device.upper()
    name = name if name in ACCELERATORS else "GPU"
    for stage, bundle in enumerate(spec.resources.bundles(1)):
        if name not in bundle:
            yield (
                ("resources", "device"),
                f"stage {stage} is to compute on {spec.resources.device}, but asks for no {name}",
                f"add {name}: 1 to resources.per_stage, or choose cpu",
            )
            return


def imported_models_are_not_compiled(spec: Spec) -> Iterator[Finding]:
    """A part of such a model ends the model's `forward` by an exception."""
    if spec.run.compile and spec.model.source is not None:
        yield (
            ("run", "compile"),
            "an imported model cannot be compiled: each stage runs its `forward` up to the end of its part, and a "
            "compiler takes whole functions",
            "set it to false",
        )


def only_whole_backwards_are_compiled(spec: Spec) -> Iterator[Finding]:
    """A schedule that splits a backward pass splits each layer, and a compiled block has no separate layers."""
    if spec.run.compile and spec.schedule_suits and "I" in kinds_of(SCHEDULES[spec.schedule], spec.pipeline.stages):
        yield (
            ("run", "compile"),
            f"the schedule `{spec.schedule_name}` splits each backward pass in two, which is not possible with it",
            "set it to false, or choose another schedule",
        )


def pipelines_recompute(spec: Spec) -> Iterator[Finding]:
    """Recomputation needs micro-batches: only then does a stage hold the activations of several forward passes."""
    # On one stage `auto` does not cut, and the key changes nothing.
    chosen = spec.pipeline.schedule != "auto" or spec.method.local_losses
    if (
        spec.pipeline.activation_checkpointing
        and chosen
        and spec.schedule_suits
        and not SCHEDULES[spec.schedule].cuts_mini_batches
    ):
        yield (
            ("pipeline", "activation_checkpointing"),
            f"the schedule `{spec.schedule_name}` does not cut mini-batches, so a stage keeps one of them at a time",
            "leave it out",
        )


def run_has_one_length(spec: Spec) -> Iterator[Finding]:
    """Exactly one key says how long to train."""
    given = [key for key in LENGTHS if getattr(spec.run, key) is not None]
    if not given:
        yield ("run",), "the length of the run is missing", f"add {listed(LENGTHS)}"
    elif len(given) > 1:
        yield ("run",), f"{listed(given, 'and')} each set the length of the run", "keep one of them"


def stop_says_when(spec: Spec) -> Iterator[Finding]:
    """A run stops above a bound, below one, or when patience ends."""
    stop = spec.run.stop_at
    if stop is None:
        return
    if stop.above is not None and stop.below is not None:
        yield ("run", "stop_at"), "`above` and `below` are given, but the metric has one bound", "remove one of them"
    if stop.above is None and stop.below is None and stop.patience is None:
        yield ("run", "stop_at"), "it does not say when to stop", "add, for example, `above: 0.95` or `patience: 5`"
    metric = spec.task.measures
    if stop.metric_name not in (None, metric.name):
        others = type(spec.task).model_fields.get("metric")
        instead = f", or set task.metric to {stop.metric_name}"
        possible = others is not None and stop.metric_name in get_args(others.annotation)
        yield (
            ("run", "stop_at", "metric"),
            f"the metric of the task {spec.task.kind} is {metric.name}, got `{stop.metric}`",
            f"write {stop.split}_{metric.name}{instead if possible else ''}",
        )
    elif metric.share:
        for key in ("above", "below"):
            bound = getattr(stop, key)
            if bound is not None and not 0 <= bound <= 1:
                message = f"expected a number of 0 to 1, as the {metric.title} is, got {bound:g}"
                yield ("run", "stop_at", key), message, "write a share, such as 0.95"


def stop_metric_is_measured(spec: Spec) -> Iterator[Finding]:
    """A run can only stop by what its evaluations measure."""
    stop = spec.run.stop_at
    if stop is None:
        return
    if spec.run.evaluate_every is None:
        yield ("run", "stop_at"), "there are no evaluations before the end", "set run.evaluate_every"
    by_bound = stop.bounded and stop.split == "validation"
    on_validation = "metric" if by_bound else "patience"
    if (by_bound or stop.patience is not None) and not spec.data.has_validation:
        yield (
            ("run", "stop_at", on_validation),
            "there is no validation set",
            "set data.validation_fraction, to 0.1 say",
        )
    if stop.bounded and stop.split == "test" and spec.data.without_test is not None:
        yield ("run", "stop_at", "metric"), "there is no test set", spec.data.without_test


def pools_leave_an_image(spec: Spec) -> Iterator[Finding]:
    """If the size of images is known, no pooling gets an image of one pixel."""
    side = None if spec.data.picture_size is None else min(spec.data.picture_size)
    for index, entry in enumerate(spec.model.blocks):
        for _ in range(entry.repeat):
            side = entry.side_after(side) if side is not None else None
            if side == 0:
                yield (
                    ("model", "components", index, "pool"),
                    "the image is down to 1 x 1 before this pool",
                    "remove a pool, or set data.image_size higher",
                )
                return


def training_set_has_a_mini_batch(spec: Spec) -> Iterator[Finding]:
    """An epoch has a mini-batch. Of most sources only the data can tell."""
    samples = spec.data.training_set
    if samples is not None and (training := spec.data.split(samples)[1]) > 0:
        fault = spec.data.mini_batch_fault(training, spec.data.left_of(samples))
        if fault is not None:
            yield ("data", "batch_size"), *fault


def one_validation_set(spec: Spec) -> Iterator[Finding]:
    """A validation set comes from the source or from its training set."""
    if spec.data.own_validation and spec.data.validation_fraction > 0:
        message = "the source has its own validation set"
        yield ("data", "validation_fraction"), message, "leave it out"


LAYOUT_CHECKS: tuple[Check, ...] = (
    parts_suit_the_spec,
    pipelines_drop_the_last_batch,
    micro_batches_leave_norms_alone,
    only_whole_backwards_are_compiled,
)
"""Those whose answer depends on the schedule, the stages or the micro-batches, and which the schedule itself cannot
tell."""

CHECKS: tuple[Check, ...] = (
    parts_suit_the_spec,
    partition_adds_up,
    stages_have_components,
    components_lie_in_turns,
    schedule_suits_method,
    one_stage_schedules_have_one_stage,
    micro_batches_suit_schedule,
    micro_batches_divide_the_batch,
    pipelines_drop_the_last_batch,
    micro_batches_leave_norms_alone,
    mixed_labels_are_shares_of_classes,
    losses_weigh_classes,
    method_knows_task,
    source_has_labels_of_task,
    messages_suit_the_rest,
    scaled_rates_have_a_reference,
    one_cost_per_component,
    one_bundle_per_stage,
    stages_on_gpus_ask_for_one,
    imported_models_are_not_compiled,
    only_whole_backwards_are_compiled,
    pipelines_recompute,
    run_has_one_length,
    stop_says_when,
    stop_metric_is_measured,
    one_validation_set,
    training_set_has_a_mini_batch,
    pools_leave_an_image,
)
