"""The setting of a step as a spec lays it out, and what each stage may hold of the memory of its machine or device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alray.config.sections.resources import share_of
from alray.config.sections.spec import Spec
from alray.core.errors import PlanError
from alray.planning.prediction.costs import Costs
from alray.planning.prediction.setting import (
    IN_TURNS_ON_GPU,
    ON_CPU,
    ON_OWN_GPU,
    ON_SHARED_GPU,
    StageMemory,
    StepSetting,
)
from alray.planning.prediction.stage_devices import AS_HERE, StageDevices
from alray.runtime.device.machine_memory import machine_memory_bytes

if TYPE_CHECKING:
    import torch

    from alray.runtime.workload import Workload


_BESIDES_TENSORS_BYTES = 1_000_000_000
"""GPU memory of a process besides its tensors: CUDA's context with the kernels that it loads, two workspaces of
cuBLAS (8 times 4096 KiB each, as CUBLAS_WORKSPACE_CONFIG=:4096:8 says, for the stage's thread and autograd's), those
of cuDNN, and NCCL's buffers. NVIDIA gives no figure for a context. On one H200 all was 0.79 GB
(docs/gpu_measured.md)."""

_NO_LIMIT_BYTES = 1 << 60
"""Of a stage on a processor beside stages on GPUs: who else takes memory of its machine is not known."""


def step_setting(
    spec: Spec, costs: Costs, stages: int, replicas: int, *, one_process: bool = False, **others: Any
) -> StepSetting:
    """The setting of a step as a spec lays it out, on so many stages and replicas.

    Args:
        one_process: whether the stages take turns in this process.
        others: fields of `StepSetting` that a spec does not say, or that count in place of what it says.
    """
    of_spec: dict[str, Any] = {
        "schedule": spec.schedule,
        "in_flight": spec.pipeline.in_flight,
        "micro_batches": spec.micro_batches,
        "virtual_stages": spec.virtual_stages,
        "memories": stage_memories(spec, stages, replicas, one_process=one_process),
        "recomputes": spec.pipeline.activation_checkpointing,
        "clips_together": spec.clips_together,
    }
    return StepSetting(costs=costs, stages=stages, replicas=replicas, **of_spec | others)


def stage_memory_limits(
    spec: Spec,
    stages: int,
    replicas: int,
    device: torch.device,
    *,
    one_process: bool = False,
    found: StageDevices = AS_HERE,
) -> tuple[int, ...]:
    """The memory limit of each stage in bytes; () if nothing is known of it.

    It is `resources.memory_bytes` if the spec gives it; else the `memory` that the stage asks Ray for, on a GPU at most
    its part of that; else its part of its device. Among the `machines` of the spec it is what its device has, or
    `resources.memory_bytes` if that is less. Of this machine, each stage on its processors has an equal part; of a GPU,
    the part that it asks Ray for, or in one process an equal part of what Ray gave that process, without what processes
    take of it besides tensors. A stage on a processor beside stages on GPUs has no limit of its own.

    Args:
        device: that of this process. If it is no GPU, and this process sees none, the memory of the stages' GPUs is not
            known but by `found`.
        found: the devices of the stages.
    """
    resources = spec.resources
    on_cpu = resources.resolved_device == "cpu"
    given = () if resources.memory_bytes is None else (resources.memory_bytes,) * stages
    if spec.machines is not None:
        besides = 0 if on_cpu else _BESIDES_TENSORS_BYTES
        whole = spec.machines.described().memory_limits(stages, replicas)
        planned = tuple(max(1, each - besides) for each in whole)
        return tuple(map(min, given, planned)) if given and planned else given or planned
    if given:
        return given
    requested = [bundle.get("memory") for bundle in resources.bundles(stages)]
    if on_cpu:
        here_each = None if found.to_measure else machine_memory_bytes() // (stages * replicas)
        theirs = list(found.memory_bytes) or [here_each] * stages
    else:
        from alray.core import accelerator  # imports torch

        sees_one = device.type != "cpu" or accelerator.available(resources.resolved_device) is not None
        here = accelerator.least_memory_bytes() if sees_one and not found.to_measure else None
        theirs = _gpu_shares(spec, stages, replicas, here, one_process=one_process, found=found)
    limits = [
        # What Ray reserves is memory of the node, of which a GPU may have less.
        share if own is None else int(own) if on_cpu or share is None else min(int(own), share)
        for own, share in zip(requested, theirs, strict=False)
    ]
    known = [each for each in limits if each is not None]
    return tuple(known) if len(known) == len(limits) else ()


def _gpu_shares(
    spec: Spec, stages: int, replicas: int, here: int | None, *, one_process: bool, found: StageDevices
) -> list[int | None]:
    """The part of its GPU that each stage has; None where its memory is not known.

    GPUs that were not measured count as equal to the one here, and all as if this process had measured on them.

    Args:
        here: the memory of a GPU here in bytes; None if there is none.
    """
    from alray.runtime.device.devices import shares_gpu  # imports torch

    shares: list[int | None] = []
    for stage, bundle in enumerate(spec.resources.bundles(stages)[:stages]):
        measured = found.memory_bytes[stage] if found.memory_bytes else None
        whole = here if measured is None else measured
        if spec.resources.device_of(stage) == "cpu" and not one_process:
            shares.append(_NO_LIMIT_BYTES)
        elif whole is None:
            shares.append(None)
        elif one_process:
            own = int(whole * min(1.0, share_of(bundle))) if shares_gpu() else whole
            shares.append(max(1, (own - _BESIDES_TENSORS_BYTES) // (stages * replicas)))
        else:
            usable = int((whole - _BESIDES_TENSORS_BYTES) * min(1.0, share_of(bundle)))
            shares.append(max(1, usable - _BESIDES_TENSORS_BYTES))
    return shares


def stage_memories(spec: Spec, stages: int, replicas: int, *, one_process: bool = False) -> tuple[StageMemory, ...]:
    """The parts of each stage that lie in the memory of its device."""
    resources = spec.resources
    kinds = [resources.resolved_device if one_process else resources.device_of(stage) for stage in range(stages)]
    if all(kind == "cpu" for kind in kinds):
        return (ON_CPU,) * stages
    from alray.core.accelerator import has_nccl  # imports torch

    # Ray gives them one GPU if they fit on it. NCCL connects stages with different GPUs.
    bundles = zip(resources.bundles(stages), kinds, strict=True)
    requested = sum(share_of(bundle) for bundle, kind in bundles if kind != "cpu") * replicas
    over_nccl = requested > 1.0 and has_nccl(resources.resolved_device)
    on_gpu = IN_TURNS_ON_GPU if one_process else ON_OWN_GPU if over_nccl else ON_SHARED_GPU
    return tuple(ON_CPU if kind == "cpu" else on_gpu for kind in kinds)


def require_memory(workload: Workload) -> None:
    """Raise PlanError if components train on processors, and the weights of one and the gradients that it trains by
    need more than the memory of this machine.

    A component is never divided among stages, and the probe builds each one on this machine.
    """
    if workload.device.type != "cpu":
        return
    network = workload.network
    memory_bytes = machine_memory_bytes()
    for index in range(len(network)):
        component = network.component(index, "meta")
        weights_bytes = sum(tensor.nbytes for tensor in component.weights().values())
        gradient_bytes = sum(each.nbytes for each in component.parameters() if each.requires_grad)
        if weights_bytes + gradient_bytes > memory_bytes:
            raise PlanError(
                f"its weights take {weights_bytes / 1e9:,.1f} GB and their gradients {gradient_bytes / 1e9:,.1f} GB, "
                f"and this machine has {memory_bytes / 1e9:,.1f} GB",
                key=f"model.components[{index}]",
                hint="make the component smaller, or the layers next to it (`method`)",
            )
