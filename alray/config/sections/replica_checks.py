"""Checks across keys that are about replicas: one function each, as in `alray.config.sections.checks`."""

from __future__ import annotations

from collections.abc import Iterator

from alray.config.sections.checks import Check, micro_batches_suit_schedule
from alray.config.sections.compression import COMPRESSIONS
from alray.config.sections.kind import Finding
from alray.config.sections.own_code import OwnCode
from alray.config.sections.replicas import FixedDisturbance, RandomDisturbance
from alray.config.sections.spec import Spec
from alray.core.counting import counted
from alray.planning.schedules.micro_batches import Fault
from alray.planning.schedules.table import SCHEDULES, default_schedule

_ONE_DEVICE = default_schedule(local_losses=False, stages=1).name


def each_replica_has_a_sample(spec: Spec) -> Iterator[Finding]:
    """No replica's share of a mini-batch is empty."""
    count, batch_size = spec.replicas.count, spec.data.batch_size
    if count > batch_size:
        yield (
            ("replicas", "count"),
            f"{count} replicas cannot share a mini-batch of {counted(batch_size, 'sample')}",
            f"use at most {batch_size}, or a larger data.batch_size",
        )


def each_replica_has_a_sample_of_the_last_mini_batch(spec: Spec) -> Iterator[Finding]:
    """No replica's share of a smaller last mini-batch is empty. For most sources only the data can tell."""
    samples = spec.data.training_set
    fault = None if samples is None else last_batch_fault(spec, spec.data.split(samples)[1])
    if fault is not None:
        yield ("data", "last_batch"), *fault


def last_batch_fault(spec: Spec, samples: int) -> Fault | None:
    """Return message and hint if the last mini-batch of an epoch has fewer samples than there are replicas.

    Args:
        samples: number of training samples in an epoch.
    """
    rest, count = samples % spec.data.batch_size, spec.replicas.count
    if spec.data.last_batch == "drop" or rest == 0 or rest >= count:
        return None
    return (
        f"the last mini-batch of an epoch has {counted(rest, 'sample')}, which {count} replicas cannot share",
        "set data.last_batch to drop, or choose another data.batch_size",
    )


def shares_add_up(spec: Spec) -> Iterator[Finding]:
    """Shares given as a list are one a replica, and together the mini-batch."""
    shares = spec.replicas.shares
    count = spec.replicas.count
    batch_size = spec.data.batch_size
    if shares is None:
        return
    if len(shares) != count:
        yield (
            ("replicas", "shares"),
            f"{counted(len(shares), 'entry', 'entries')} for {counted(count, 'replica')}",
            "give one per replica, or leave it out for even shares",
        )
    if sum(shares) != batch_size:
        yield (
            ("replicas", "shares"),
            f"{list(shares)} adds up to {sum(shares)}, but data.batch_size is {batch_size}",
            "give shares of the whole mini-batch, or leave it out for even shares",
        )


def dynamic_shares_are_not_given(spec: Spec) -> Iterator[Finding]:
    """Shares are either given or found."""
    if spec.replicas.balance == "dynamic_batch_size" and spec.replicas.shares is not None:
        yield (
            ("replicas", "shares"),
            "`dynamic_batch_size` finds the shares, from even ones on",
            "leave it out, or set replicas.balance to fixed",
        )


def dynamic_shares_suit_the_schedule(spec: Spec) -> Iterator[Finding]:
    """Pipelines of backpropagation fix the shapes of their tensors when they are built."""
    if spec.replicas.balance == "dynamic_batch_size" and spec.is_pipeline:
        yield (
            ("replicas", "balance"),
            f"the micro-batches of `{spec.schedule_name}` are equal parts of a share, so its shares cannot change",
            f"leave it at fixed, or train by local losses or the schedule {_ONE_DEVICE}",
        )


def unequal_shares_suit_the_rest(spec: Spec) -> Iterator[Finding]:
    """Where every replica counts the same, or has tensors of the same shape, their shares are equal."""
    if _equal_shares(spec):
        return
    if spec.is_pipeline:
        need = f"the micro-batches of `{spec.schedule_name}` are the same on all replicas"
    elif spec.replicas.engine == "ray_train":
        need = "DDP gives every replica the same weight"
    else:
        return
    count = spec.replicas.count
    batch_size = spec.data.batch_size
    given = spec.replicas.shares
    which = f"not shares of {list(given)}" if given is not None else f"and {batch_size} samples are not {count} equal"
    yield (
        ("replicas", "count" if given is None else "shares"),
        f"{need}: it needs equal shares, {which}" + (" shares" if given is None else ""),
        f"use a data.batch_size that {count} divides" + (", and leave shares out" if given is not None else ""),
    )


def averaged_models_have_one_version(spec: Spec) -> Iterator[Finding]:
    """A mean of the weights would leave the version out with which the next mini-batch is computed."""
    if spec.replicas.synchronise != "every_step" and SCHEDULES[spec.schedule].gradient_delay:
        yield (
            ("replicas", "synchronise"),
            f"the schedule `{spec.schedule}` has two versions of the weights, and model averaging knows one",
            "set it to every_step, or choose another schedule",
        )


def averaged_models_have_no_moving_average(spec: Spec) -> Iterator[Finding]:
    """Replicas that train apart would each have a moving average of other weights."""
    if spec.replicas.synchronise != "every_step" and spec.optimizer.ema_decay is not None:
        yield (
            ("optimizer", "ema_decay"),
            "replicas that average weights have different ones in between, and no moving average in common",
            "leave it out, or set replicas.synchronise to every_step",
        )


def averaged_models_are_not_compressed(spec: Spec) -> Iterator[Finding]:
    """Compression is of gradients; weights have no error feedback to make good what is lost."""
    kind = spec.replicas.compression.kind
    if spec.replicas.synchronise != "every_step" and kind != "none":
        yield (
            ("replicas", "compression"),
            f"`{kind}` makes gradients smaller, and with model averaging only weights are sent",
            "set replicas.compression to none, or synchronise to every_step",
        )


def ray_train_is_a_plain_baseline(spec: Spec) -> Iterator[Finding]:
    """Check that Ray Train's TorchTrainer with DDP can run the spec: backpropagation, one device per replica."""
    replicas = spec.replicas
    if replicas.engine != "ray_train":
        return
    of_ddp = ", ".join(name for name, section in COMPRESSIONS.sections.items() if section.by_ddp)
    wanted: list[tuple[bool, str, str]] = [
        (not spec.method.local_losses, "method.kind", "backpropagation"),
        (not spec.is_pipeline, "pipeline.schedule", _ONE_DEVICE),
        (replicas.synchronise == "every_step", "replicas.synchronise", "every_step"),
        (replicas.balance == "fixed", "replicas.balance", "fixed"),
        (replicas.all_reduce.kind == "backend", "replicas.all_reduce", "backend"),
        (bool(replicas.compression.by_ddp), "replicas.compression", of_ddp),
        (replicas.disturbance is None, "replicas.disturbance", "null"),
        (spec.pipeline.messages is None, "pipeline.messages", "null"),
        (spec.optimizer.accumulate == 1, "optimizer.accumulate", "1"),
        (spec.data.last_batch == "drop", "data.last_batch", "drop"),
    ]
    for holds, key, value in wanted:
        if not holds:
            yield (
                ("replicas", "engine"),
                f"`ray_train` is plain DDP, with {key} {value}",
                f"set {key} to {value.split(',')[0]}, or replicas.engine to graph",
            )


def micro_batches_divide_each_share(spec: Spec) -> Iterator[Finding]:
    """Each replica cuts its share into micro-batches (`micro_batches_divide_the_batch` checks the rest)."""
    count = spec.replicas.count
    micro_batches = spec.micro_batches
    batch_size = spec.data.batch_size
    if spec.pipeline.micro_batches == "auto":  # then it is a number that divides the share
        return
    if not spec.is_pipeline or count == 1 or batch_size % count or batch_size % micro_batches:
        return
    share = batch_size // count
    if share % micro_batches:
        yield (
            ("pipeline", "micro_batches"),
            f"a replica's share of {counted(share, 'sample')} cannot be cut into {micro_batches} equal micro-batches",
            f"use a divisor of {share}, or another data.batch_size",
        )


def norms_are_shared_by_several(spec: Spec) -> Iterator[Finding]:
    """Statistics over all replicas need more than one of them."""
    if spec.replicas.sync_batch_norm and spec.replicas.count == 1:
        yield ("replicas", "sync_batch_norm"), "there is one replica", "leave it out, or set replicas.count"


def shared_norms_suit_the_rest(spec: Spec) -> Iterator[Finding]:
    """Statistics over all replicas are those of one network, which replicas that train apart are not."""
    if spec.replicas.sync_batch_norm and spec.replicas.synchronise != "every_step":
        yield (
            ("replicas", "sync_batch_norm"),
            "replicas that train apart have no statistics in common",
            "leave it at false, or set replicas.synchronise to every_step",
        )


def gathered_contrasts_suit_the_rest(spec: Spec) -> Iterator[Finding]:
    """Samples that are compared over all replicas have passed one network."""
    gathers = not isinstance(spec.method, OwnCode) and getattr(spec.method, "gather", False)
    if gathers and spec.replicas.synchronise != "every_step":
        yield (
            ("method", "gather"),
            "replicas that train apart have no projections in common",
            "leave it at false, or set replicas.synchronise to every_step",
        )


def disturbance_has_a_duration(spec: Spec) -> Iterator[Finding]:
    """A disturbance does not end before it begins."""
    disturbance = spec.replicas.disturbance
    if isinstance(disturbance, FixedDisturbance):
        first, last = disturbance.epochs
        if last < first:
            yield (
                ("replicas", "disturbance"),
                f"the first epoch, {first}, is after the last one, {last}",
                "give the first epoch first",
            )
    elif isinstance(disturbance, RandomDisturbance) and disturbance.most_epochs < disturbance.least_epochs:
        yield (
            ("replicas", "disturbance"),
            f"least_epochs is {disturbance.least_epochs}, but most_epochs is {disturbance.most_epochs}",
            "set most_epochs to at least least_epochs",
        )


def disturbed_replicas_exist(spec: Spec) -> Iterator[Finding]:
    """Only a replica there is can be slowed."""
    disturbance, count = spec.replicas.disturbance, spec.replicas.count
    if not isinstance(disturbance, FixedDisturbance):
        return
    for worker in disturbance.workers:
        if worker >= count:
            yield (
                ("replicas", "disturbance", "workers"),
                f"there is no replica {worker} among {counted(count, 'replica')}",
                f"they are counted from 0: name at most {count - 1}",
            )
            return


def layout_faults(spec: Spec, stages: int, replicas: int) -> Iterator[Finding]:
    """Why a run cannot go on with another number of stages or replicas, by the rules for those that it began with.

    Args:
        spec: of the run, with a number for `auto` micro-batches. How it cuts mini-batches stays as it is.
    """
    pipeline = {
        "stages": stages,
        "schedule": spec.schedule,
        "virtual_stages": spec.virtual_stages,
        "micro_batches": spec.micro_batches,
        "partition": "auto",
    }
    changed = spec.model_copy(
        update={
            "pipeline": spec.pipeline.model_copy(update=pipeline),
            "replicas": spec.replicas.model_copy(update={"count": replicas, "shares": None}),
        }
    )
    for check in (unequal_shares_suit_the_rest, micro_batches_divide_each_share, micro_batches_suit_schedule):
        yield from check(changed)


def _equal_shares(spec: Spec) -> bool:
    shares = spec.replicas.shares
    if shares is None:
        return spec.replicas.count > spec.data.batch_size or spec.data.batch_size % spec.replicas.count == 0
    return len(set(shares)) == 1


REPLICA_CHECKS: tuple[Check, ...] = (
    each_replica_has_a_sample,
    each_replica_has_a_sample_of_the_last_mini_batch,
    shares_add_up,
    dynamic_shares_are_not_given,
    dynamic_shares_suit_the_schedule,
    unequal_shares_suit_the_rest,
    averaged_models_have_one_version,
    averaged_models_have_no_moving_average,
    averaged_models_are_not_compressed,
    ray_train_is_a_plain_baseline,
    micro_batches_divide_each_share,
    norms_are_shared_by_several,
    shared_norms_suit_the_rest,
    gathered_contrasts_suit_the_rest,
    disturbance_has_a_duration,
    disturbed_replicas_exist,
)
