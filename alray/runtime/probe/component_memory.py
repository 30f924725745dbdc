"""The memory that a component needs, counted without allocating it.

A component is built on the meta device. Its actions then run on tensors that have a device but no memory
(`FakeTensorMode`). So the operations are those of the real device; its attention, for example, keeps other tensors
than that of the meta device. A block that fails on such tensors, because it reads their values, or whose parameters
torch cannot swap for them, because it has views of them or weak references to them, is counted on the meta device. An
optimizer that reads values is counted on the CPU, with memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import astuple, dataclass, replace
from functools import partial
from typing import Any
from weakref import ref

import torch
from torch import nn

from alray.core.accelerator import available, is_accelerator
from alray.core.compat import fake_tensor
from alray.core.errors import FAULTS_OF_USER_CODE
from alray.models.component import Component, Exercise
from alray.models.imported.part import plain_tensors
from alray.models.network import Network
from alray.models.optimizers import ComponentOptimizer
from alray.runtime.probe.memory_meter import MemoryMeter
from alray.runtime.probe.recurrent_operations import recurrent_operations

_LENGTHS = (8, 16)  # of the sequences at which recurrent layers are counted
_FEW_SAMPLES = 2  # batch normalisation refuses a single sample
_META = torch.device("meta")
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class ComponentMemory:
    """Bytes of one component in training, without weights and optimizer state. `ComponentCosts` explains the names."""

    activation_bytes: int
    forward_peak_bytes: int
    backward_peak_bytes: int
    adding_peak_bytes: int
    update_peak_bytes: int
    activation_fixed_bytes: int = 0
    forward_fixed_bytes: int = 0
    backward_fixed_bytes: int = 0
    adding_fixed_bytes: int = 0


class _ValuesNeededError(Exception):
    """The code of a component does not work with tensors without memory."""


@dataclass(frozen=True)
class _CountedBytes:
    """Bytes: retained after F and L; and the peaks of F with L, of B, of a B that adds to gradients, and of U."""

    retained: int
    forward: int
    backward: int
    adding: int
    update: int


def component_memory(network: Network, index: int, batch_size: int, device: torch.device) -> ComponentMemory:
    """The memory of component `index` for mini-batches of `batch_size` samples of full length on `device`.

    Nothing is allocated. This draws from the global random stream; the caller must restore it.

    torch runs no backward for an accelerator that is not here. It is then counted for the CPU, whose attention keeps as
    much as a GPU's, and which knows mixed precision.
    """
    at = device if not is_accelerator(device) or available(device.type) is not None else _CPU
    try:
        whole = _count(network, index, batch_size, at, device)
    except _ValuesNeededError:
        at = _META  # the block has run there before, when the shape of its output was found
        whole = _count(network, index, batch_size, at, device)
    counted = ComponentMemory(
        activation_bytes=whole.retained,
        forward_peak_bytes=whole.forward,
        backward_peak_bytes=whole.backward,
        adding_peak_bytes=whole.adding,
        update_peak_bytes=whole.update,
    )
    # Mini-batches are cut only where gradients travel. Two sizes give a line; its intercept is what does not depend on
    # the number of samples.
    if network.method.local_losses or batch_size <= _FEW_SAMPLES:
        return counted
    few = _count(network, index, _FEW_SAMPLES, at, device)
    return replace(
        counted,
        activation_fixed_bytes=_intercept(few.retained, whole.retained, batch_size),
        forward_fixed_bytes=_intercept(few.forward, whole.forward, batch_size),
        backward_fixed_bytes=_intercept(few.backward, whole.backward, batch_size),
        adding_fixed_bytes=_intercept(few.adding, whole.adding, batch_size),
    )


def _intercept(few: int, whole: int, batch_size: int) -> int:
    per_sample = (whole - few) / (batch_size - _FEW_SAMPLES)
    return max(0, round(few - _FEW_SAMPLES * per_sample))


def _count(network: Network, index: int, samples: int, device: torch.device, target: torch.device) -> _CountedBytes:
    """The bytes for this number of samples.

    A recurrent layer over rows of different lengths does many operations at each position. Counting them takes long,
    and each position adds the same number of bytes. So sequences are counted at two short lengths, and the line
    through both is extended to the full length.

    Args:
        target: where the component will train.
    """
    component = network.component(index, "meta")
    encoder = network.encoders[index]
    recurrent = any(isinstance(module, nn.RNNBase) for module in component.modules())
    by_positions = recurrent and ("mask" in encoder.takes_along or device.type == "meta")
    positions = encoder.input[0]
    if not by_positions or positions <= _LENGTHS[1]:
        return _count_at(network, index, samples, device, target, None)
    short, longer = (_count_at(network, index, samples, device, target, length) for length in _LENGTHS)
    ratio = (positions - _LENGTHS[0]) / (_LENGTHS[1] - _LENGTHS[0])
    return _CountedBytes(
        *(round(low + ratio * (high - low)) for low, high in zip(astuple(short), astuple(longer), strict=True))
    )


def _count_at(
    network: Network, index: int, samples: int, device: torch.device, target: torch.device, positions: int | None
) -> _CountedBytes:
    """The bytes for sequences of this many positions; None: of full length.

    Where a mini-batch may be cut, a second one follows and adds to the gradients of the first, as a micro-batch does.
    """
    component = network.component(index, "meta")
    network.disown(component)
    for optimizer in component.optimizers().values():
        optimizer.update_as_on(target)
        optimizer.update_at_every_step()
    with _without_memory(component, device):
        incoming = network.training_input(index, samples, device, positions)
        route = network.route_shape(index + 1).empty(samples, device)
        plain = [tensor for _, _, tensor in plain_tensors(component)]
        outside = [*component.parameters(), *component.buffers(), *plain, *incoming.values(), route]
        exercise = component.exercise(incoming, route)
        with MemoryMeter(outside) as meter:
            adding = 0
            try:
                retained, forward, backward = _run(exercise, meter)
                if not network.method.local_losses:
                    adding = _run(exercise, meter, add=True)[2]
            except FAULTS_OF_USER_CODE as error:
                if device.type == "meta":
                    raise
                raise _ValuesNeededError from error
            try:
                update = _update_peak(exercise.update, meter)
            except FAULTS_OF_USER_CODE:
                update = None
    if update is None:
        update = max(_peak_with_memory(optimizer, target) for optimizer in component.optimizers().values())
    return _CountedBytes(retained, forward, backward, adding, update)


def _update_peak(update: Callable[[], object], meter: MemoryMeter) -> int:
    """The bytes of an update. The first one creates the optimizer's state; the second is like all later ones."""
    for _ in range(2):
        before = meter.mark()
        update()
        peak = meter.peak_bytes - before
    return peak


def _peak_with_memory(optimizer: ComponentOptimizer, target: torch.device) -> int:
    """The bytes of an update by an optimizer that reads values, counted on the CPU."""
    same = optimizer.on_zeros()
    same.update_as_on(target)
    with same.updating(), MemoryMeter() as meter:
        return _update_peak(partial(same.step, 0.0), meter)


def _run(exercise: Exercise, meter: MemoryMeter, *, add: bool = False) -> tuple[int, int, int]:
    """F, L and B of a mini-batch: what F and L leave, the peak of both, and the peak of B, in bytes.

    The peak of B includes the gradient that comes in and the one that goes out.

    Args:
        add: see `Exercise.backward`.
    """
    before = meter.mark()
    exercise.forward()
    exercise.label()
    retained, forward = meter.held_bytes - before, meter.peak_bytes - before
    meter.mark()
    exercise.backward(add=add)
    backward = meter.peak_bytes - before
    exercise.passed_on = {}
    return retained, forward, backward


@contextmanager
def _without_memory(component: Component, device: torch.device) -> Iterator[None]:
    """Inside, `component` (built on the meta device) and all new tensors appear to be on `device`.

    Parameters are swapped, not replaced, because the component's optimizers hold them too.
    """
    if device.type == "meta":
        with torch.device(device):
            yield
        return
    mode = fake_tensor.FakeTensorMode(allow_non_fake_inputs=True)
    recurrent = [module for module in component.modules() if isinstance(module, nn.RNNBase)]
    for layer in recurrent:
        layer._flat_weight_refs.clear()  # a tensor with weak references cannot be swapped
    try:
        for parameter in component.parameters():
            torch.utils.swap_tensors(parameter, _fake(parameter, mode, device))
        for module in component.modules():
            for name, buffer in module.named_buffers(recurse=False):
                module._buffers[name] = _fake(buffer, mode, device)
        for module, name, tensor in plain_tensors(component):
            vars(module)[name] = _fake(tensor, mode, device)
    except FAULTS_OF_USER_CODE as error:
        raise _ValuesNeededError from error
    for layer in recurrent:
        layer._flat_weight_refs = [None if weight is None else ref(weight) for weight in layer._flat_weights]
    with mode, recurrent_operations() if recurrent else nullcontext(), torch.device(device):
        yield


def _fake(tensor: torch.Tensor, mode: Any, device: torch.device) -> Any:
    """A tensor with the shape and type of `tensor`, on `device`, without memory."""
    fake = fake_tensor.FakeTensor(mode, torch.empty_like(tensor, device="meta"), device)
    fake.requires_grad_(tensor.requires_grad)
    if isinstance(tensor, nn.Parameter):
        fake._is_param = True
    return fake
