"""Refuses plans in which batch normalisation would get micro-batches or single samples instead of mini-batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alray.config.sections.spec import Spec
from alray.core.errors import PlanError
from alray.planning.prediction.shares import first_shares, shares_of_part
from alray.planning.schedules.micro_batches import micro_batch_norm_fault
from alray.planning.schedules.table import SCHEDULES

if TYPE_CHECKING:
    from alray.models.network import Network
    from alray.runtime.workload import Workload


def require_whole_norms(spec: Spec, network: Network) -> None:
    """Raise PlanError if batch normalisation, or other code that computes samples from each other, in a user's block
    or an imported model would see micro-batches instead of mini-batches.

    The spec's checks know the built-in blocks only.
    """
    cut = SCHEDULES[spec.schedule].is_pipeline and spec.micro_batches > 1
    if not cut or spec.pipeline.micro_batch_norm == "accept":
        return
    for index, encoder in enumerate(network.encoders):
        if network.mixes_samples[index]:
            has = "has batch normalisation"
            if not network.has_batch_norm(index):
                has = "computes each sample from the others of its mini-batch, as batch normalisation does"
            message, hint = micro_batch_norm_fault(f"block `{encoder.name}`", spec.micro_batches, has)
            raise PlanError(message, hint=hint, key=encoder.key(index))


def require_samples_to_normalise(spec: Spec, workload: Workload) -> None:
    """Raise PlanError if batch normalisation would get one value of a channel: a single sample, of one pixel."""
    if spec.replicas.sync_batch_norm:
        return
    data, batch_size = workload.data, spec.data.batch_size
    shares = first_shares(spec.replicas.count, batch_size, spec.replicas.shares)
    rest = len(data.train) % batch_size if spec.data.last_batch == "keep" else 0
    if min(shares) // spec.micro_batches == 1:
        which, key = "a mini-batch" if batch_size == 1 else "a part of a mini-batch", "data.batch_size"
        hint = "raise data.batch_size"
    elif (
        rest
        and workload.total_steps >= data.steps_per_epoch
        # Dynamic batch sizes may change a share to one sample.
        and (spec.replicas.balance == "dynamic_batch_size" or min(shares_of_part(shares, rest)) == 1)
    ):
        which, key = (
            "the last mini-batch of an epoch" if rest == 1 else "a part of the last mini-batch",
            "data.last_batch",
        )
        hint = "set data.last_batch to drop, or choose another data.batch_size"
    else:
        return
    index = workload.network.needs_two_samples
    if index is not None:
        raise PlanError(
            f"{which} has one sample, in which component {index} (block `{workload.network.encoders[index].name}`) has "
            "one value of each channel, and cannot normalise it",
            key=key,
            hint=hint,
        )
