"""The memory that a component needs, counted without allocating it.

A component is built on the meta device. Its actions then run on tensors that have a device but no memory
(`FakeTensorMode`). So the operations are those of the real device; its attention, for example, keeps other tensors
than that of the meta device. A block that fails on such tensors, because it reads their values, or whose parameters
torch cannot swap for them, because it has views of them or weak references to them, is counted on the meta device. An
optimizer that reads values is counted on the CPU, with memory.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any
from weakref import ref

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from alray.core.accelerator import available, is_accelerator
from alray.core.compat import VF, TorchDispatchMode, disable_current_modes, fake_tensor, tree_iter
from alray.core.errors import FAULTS_OF_USER_CODE
from alray.models.component import Component
from alray.models.imported.absent import counting
from alray.models.imported.part import plain_tensors
from alray.models.network import Network
from alray.models.optimizers import ComponentOptimizer
from alray.runtime.probe.component_work import ComponentWork
from alray.runtime.stage.work.backpropagation import MicroBatching

_LENGTHS = (8, 16)  # of the sequences at which recurrent layers are counted
_FEW_SAMPLES = 2  # batch normalisation refuses a single sample
_CPU = torch.device("cpu")
Function = Callable[..., Any]
_FIXED = {
    "activation_fixed_bytes": "activation_bytes",
    "forward_fixed_bytes": "forward_peak_bytes",
    "backward_fixed_bytes": "backward_peak_bytes",
    "adding_fixed_bytes": "adding_peak_bytes",
}
"""What does not depend on the number of samples, by name, and of what it is a part."""


class _ValuesNeededError(Exception):
    """The code of a component does not work with tensors without memory."""


def component_memory(network: Network, index: int, batch_size: int, device: torch.device) -> dict[str, int]:
    """The bytes of component `index` in training, by the fields of `ComponentCosts`.

    They are those of mini-batches of `batch_size` samples of full length on `device`, without weights and the state of
    optimizers.

    Nothing is allocated. This draws from the global random stream; the caller must restore it.

    torch runs no backward for an accelerator that is not here. It is then counted for the CPU, whose attention keeps as
    much as a GPU's, and which knows mixed precision.
    """
    at = device if not is_accelerator(device) or available(device.type) is not None else _CPU
    try:
        whole = _count(network, index, batch_size, at, device)
    except _ValuesNeededError:
        at = torch.device("meta")  # the block has run there before, when the shape of its output was found
        whole = _count(network, index, batch_size, at, device)
    # Mini-batches are cut only where gradients travel. Two sizes give a line; its intercept is what does not depend on
    # the number of samples.
    if network.method.local_losses or batch_size <= _FEW_SAMPLES:
        return whole
    few = _count(network, index, _FEW_SAMPLES, at, device)
    more = batch_size - _FEW_SAMPLES
    return whole | {
        name: max(0, round(few[of] - _FEW_SAMPLES * (whole[of] - few[of]) / more)) for name, of in _FIXED.items()
    }


def _count(network: Network, index: int, samples: int, device: torch.device, target: torch.device) -> dict[str, int]:
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
    is_sequence = encoder.input.several is None
    by_positions = recurrent and is_sequence and ("mask" in encoder.takes_along or device.type == "meta")
    positions = encoder.input[0]
    if not by_positions or positions <= _LENGTHS[1]:
        return _count_at(network, index, samples, device, target, None)
    short, longer = (_count_at(network, index, samples, device, target, length) for length in _LENGTHS)
    ratio = (positions - _LENGTHS[0]) / (_LENGTHS[1] - _LENGTHS[0])
    return {name: round(low + ratio * (longer[name] - low)) for name, low in short.items()}


def _count_at(
    network: Network, index: int, samples: int, device: torch.device, target: torch.device, positions: int | None
) -> dict[str, int]:
    """The bytes for sequences of this many positions; None: of full length.

    Where a mini-batch may be cut, it has two micro-batches: the second one adds to the gradients of the first.
    """
    component = network.component(index, "meta")
    network.disown(component)
    for optimizer in component.optimizers().values():
        optimizer.update_as_on(target)
        optimizer.update_at_every_step()
    with _without_memory(component, device):
        incoming = network.training_input(index, samples, device, positions)
        plain = [tensor for _, _, tensor in plain_tensors(component)]
        outside = [*component.parameters(), *component.buffers(), *plain, *incoming.values()]
        work = ComponentWork(network, component, incoming, MicroBatching(2))
        with MemoryMeter(outside) as meter:
            adding = 0
            try:
                retained, forward, backward = _run(work, meter)
                if not network.method.local_losses:
                    adding = _run(work, meter)[2]
            except FAULTS_OF_USER_CODE as error:
                if device.type == "meta":
                    raise
                raise _ValuesNeededError from error
            update = None if device.type == "meta" else _peak_without_memory(work, meter)
    if device.type == "meta":  # an optimizer that reads a value must not get the ones that stand for values above
        with torch.device(device), MemoryMeter(outside) as meter:
            update = _peak_without_memory(work, meter)
    if update is None:
        update = max(_peak_with_memory(optimizer, target) for optimizer in component.optimizers().values())
    return {
        "activation_bytes": retained,
        "forward_peak_bytes": forward,
        "backward_peak_bytes": backward,
        "adding_peak_bytes": adding,
        "update_peak_bytes": update,
    }


def _update_peak(update: Callable[[], object], parameters: Iterable[nn.Parameter], meter: MemoryMeter) -> int:
    """The bytes of an update of parameters with gradients. The first one creates the optimizer's state; the second is
    like all later ones."""
    gradients = [(parameter, parameter.grad) for parameter in parameters]
    for _ in range(2):
        for parameter, gradient in gradients:  # an update leaves none
            parameter.grad = gradient
        before = meter.mark()
        update()
        peak = meter.peak_bytes - before
    return peak


def _peak_without_memory(work: ComponentWork, meter: MemoryMeter) -> int | None:
    """The bytes of an update by optimizers that read no values; None if one does."""
    try:
        return _update_peak(work.update, work.component.parameters(), meter)
    except FAULTS_OF_USER_CODE:
        return None


def _peak_with_memory(optimizer: ComponentOptimizer, target: torch.device) -> int:
    """The bytes of an update by an optimizer that reads values, counted on the CPU."""
    same = optimizer.on_zeros()
    same.update_as_on(target)
    with same.updating(), MemoryMeter() as meter:
        return _update_peak(partial(same.step, 0.0), same.parameters, meter)


def _run(work: ComponentWork, meter: MemoryMeter) -> tuple[int, int, int]:
    """F, L and B of a micro-batch: what F and L leave, the peak of both, and the peak of B, in bytes.

    The peak of B includes the gradient that comes in and the one that goes out.
    """
    before = meter.mark()
    work.forward()
    work.label()
    retained, forward = meter.held_bytes - before, meter.peak_bytes - before
    meter.mark()
    work.backward()
    backward = meter.peak_bytes - before
    work.forget()
    return retained, forward, backward


@contextmanager
def _without_memory(component: Component, device: torch.device) -> Iterator[None]:
    """Inside, `component` (built on the meta device) and all new tensors appear to be on `device`.

    Parameters are swapped, not replaced, because the component's optimizers hold them too.
    """
    if device.type == "meta":
        with counting():
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


class MemoryMeter(TorchDispatchMode):
    """Adds up the storages that operations create inside it, each for as long as it lives.

    Tensors that share a storage count once, so a view counts nothing. Memory that a kernel uses within one operation is
    not seen. The result agrees with `torch.distributed._tools.mem_tracker`, which gives the peak of a whole program
    only; this meter gives the peak of any part.
    """

    def __init__(self, ignored: Iterable[torch.Tensor] = ()) -> None:
        """
        Args:
            ignored: tensors from outside. They are not counted when an operation returns them.
        """
        super().__init__()
        self.held_bytes = 0
        self.peak_bytes = 0
        self._storages: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._ignored = {tensor.untyped_storage()._cdata for tensor in ignored}

    def mark(self) -> int:
        """Start a new peak; returns the bytes in use now."""
        self.peak_bytes = self.held_bytes
        return self.held_bytes

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in tree_iter(result):
            if isinstance(value, torch.Tensor):
                self._count(value.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key in self._storages or key in self._ignored:
            return
        size = storage.nbytes()

        def gone(_: weakref.ref[torch.UntypedStorage]) -> None:
            del self._storages[key]
            self.held_bytes -= size

        self._storages[key] = weakref.ref(storage, gone)
        self.held_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.held_bytes)


@contextmanager
def recurrent_operations() -> Iterator[None]:
    """Inside, `nn.LSTM`, `nn.GRU` and `nn.RNN` run on tensors without values, also for rows of different lengths."""
    with _Workspaces(), _Packing():
        yield


class _Packing(TorchFunctionMode):
    """Packs a batch as if all rows were full but one, which is one position shorter.

    The size of a packed batch depends on the lengths of its rows; this is the largest one of rows with different
    lengths. Rows of one position are all full, because no row is empty. (If all rows have the same length, a CPU runs
    oneDNN's layer instead, which keeps about twice as much.)
    """

    def __torch_function__(
        self, func: Function, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is VF._pack_padded_sequence:
            return _pack(*args)
        if func is VF._pad_packed_sequence:
            return _pad(*args)
        return func(*args, **(kwargs or {}))


def _pack(rows: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """From rows [N, T, D] to data [N T - 1, D], position by position, and the number of rows at each position, [T]."""
    by_position = rows.transpose(0, 1) if batch_first else rows
    positions, count = by_position.shape[:2]
    shorter = int(count > 1 and positions > 1)
    with disable_current_modes():  # torch reads these numbers
        sizes = torch.tensor([count] * (positions - 1) + [count - shorter])
    return by_position.flatten(0, 1)[: count * positions - shorter], sizes


def _pad(
    data: torch.Tensor, sizes: torch.Tensor, batch_first: bool, padding_value: float, total_length: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The inverse of `_pack`: rows [N, T, D], and their lengths [N]."""
    positions, count = len(sizes), int(sizes[0])
    by_position = functional.pad(data, (0, 0, 0, count * positions - len(data))).unflatten(0, (positions, count))
    lengths = torch.full((count,), positions, dtype=torch.int64)
    return (by_position.transpose(0, 1) if batch_first else by_position), lengths


class _Workspaces(TorchDispatchMode):
    """Adds the workspace of oneDNN's layer, which a CPU uses when all rows have the same length.

    The layer keeps the workspace for its backward pass, but torch's shape functions give it no size. For a direction of
    width H on an input of width D it has 9.5 H + 6 max(D, H) values for each position of each row. This formula was
    fitted to widths from 16 to 300 with 16 to 64 rows; the largest error is 4 % (torch 2.15).
    """

    def __torch_dispatch__(
        self, func: Function, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = [value for value in tree_iter((args, kwargs)) if isinstance(value, torch.Tensor)]
        if given and all(type(value) is torch.Tensor for value in given):
            with disable_current_modes():  # the row counts of a packed batch, which do have values
                return func(*args, **(kwargs or {}))
        result = func(*args, **(kwargs or {}))
        if func is not torch.ops.aten.mkldnn_rnn_layer.default:
            return result
        output, h, c, _ = result
        positions, rows, width = args[0].shape  # oneDNN's layer takes [T, N, D]
        values = positions * rows * (9.5 * h.shape[-1] + 6.0 * max(width, h.shape[-1]))
        return output, h, c, output.new_empty(int(values * output.element_size()), dtype=torch.uint8)
