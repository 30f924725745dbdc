"""`pipeline.micro_batches: auto` becomes a number, before anything is planned, so that the run folder has it."""

from __future__ import annotations

from alray.device import devices
from alray.nn.network import Network
from alray.plan.micro_batches import fewest_micro_batches
from alray.plan.setting import Setting
from alray.plan.shares import first_shares
from alray.probe.estimate import estimate_costs
from alray.run.memory import stage_memory_limits
from alray.schedules.table import SCHEDULES
from alray.spec.models import Spec


def with_micro_batches(spec: Spec, network: Network) -> Spec:
    """The spec with `auto` decided, or as it is where it names a number or none.

    Sizes alone decide, not times: the same spec on the same kind of machine gets the same number, with Ray and without.
    Raises PlanError where nothing fits.
    """
    if spec.pipeline.micro_batches != "auto":
        return spec
    stages, replicas = spec.pipeline.stages, spec.replicas.count
    device = devices.pick(spec.resources.resolved_device)
    samples = max(first_shares(replicas, spec.data.batch_size, spec.replicas.shares))
    costs = estimate_costs(network, batch_size=samples, device=device, threads=spec.resources.threads)
    candidates = SCHEDULES[spec.schedule].possible_micro_batches(stages, samples)
    setting = Setting(
        schedule=spec.schedule,
        costs=costs,
        stages=stages,
        in_flight=spec.pipeline.in_flight,
        micro_batches=candidates[0],
        virtual_stages=spec.virtual_stages,
        memory_limits=stage_memory_limits(spec, stages, replicas, device),
    )
    number = fewest_micro_batches(setting, spec.pipeline.partition, candidates)
    return spec.model_copy(update={"pipeline": spec.pipeline.model_copy(update={"micro_batches": number})})
