"""Tensors of the simulated devices: their values lie in host memory, where the processor's kernels compute at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from torch.cuda._sanitizer import zip_arguments
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_map

from .order import KIND, MACHINE, Block

_FACTORY = re.compile("aten::(new_.*|.*_like)$")  # of their tensors they read sizes only
_TAKE_HOST_INDICES = {  # or lengths
    "aten::_pack_padded_sequence_backward",
    "aten::index",
    "aten::index_put",
    "aten::index_put_",
    "aten::_pack_padded_sequence",
}
aten = torch.ops.aten


class SimulatedTensor(torch.Tensor):
    """A tensor of `sim:<index>`."""

    held: torch.Tensor
    block: Block

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: torch.Tensor, index: int, block: Block) -> SimulatedTensor:
        tensor = torch.Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=torch.device(KIND, index),
        )
        tensor.held, tensor.block = held, block
        return tensor

    def __repr__(self) -> str:  # type: ignore[override]
        return f"SimulatedTensor(shape={tuple(self.shape)}, dtype={self.dtype}, device={self.device})"

    def record_stream(self, stream: Any) -> None:
        self.block.recorded.add(stream.number)

    @property
    def data(self) -> torch.Tensor:  # type: ignore[override]
        return torch._C.TensorBase.data.__get__(self)  # type: ignore[attr-defined]

    @data.setter
    def data(self, other: SimulatedTensor) -> None:
        torch._C.TensorBase.data.__set__(self, other)  # type: ignore[attr-defined]
        self.held, self.block = other.held, other.block

    def __deepcopy__(self, memo: dict[int, Any]) -> SimulatedTensor:
        if id(self) not in memo:
            copied = self.detach().clone().requires_grad_(self.requires_grad)
            copied._is_param = getattr(self, "_is_param", False)
            memo[id(self)] = copied
        return memo[id(self)]

    def new_tensor(self, data: Any, *, dtype: torch.dtype | None = None, device: Any = None) -> torch.Tensor:
        """torch would make the tensor's device the current one, which a device that is written in Python cannot be."""
        return torch.tensor(data, dtype=dtype or self.dtype, device=device or self.device)

    def tolist(self) -> Any:
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        special = _SPECIAL.get(func)
        return _compute(func, args, kwargs) if special is None else special(*args, **kwargs)


def placed(held: torch.Tensor, index: int) -> SimulatedTensor:
    """New memory of a device, with these values."""
    return SimulatedTensor(held, index, MACHINE.allocate(index, held.untyped_storage().nbytes()))


def held(value: Any) -> Any:
    """The values of a tensor, where a kernel of the processor finds them."""
    return value.held if isinstance(value, SimulatedTensor) else value


@cache
def _is_factory(func: Any) -> bool:
    return bool(_FACTORY.match(func._schema.name))


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)


def _compute(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An operation on one device, in its current stream."""
    reads: list[Block] = []
    writes: list[Block] = []
    blocks: dict[int, Block] = {}
    index: int | None = None
    on_host: torch.Tensor | None = None
    metadata_only = _is_factory(func)
    for argument, value in zip_arguments(func._schema, args, kwargs):
        alias = argument.alias_info
        for tensor in _tensors(value):
            if not isinstance(tensor, SimulatedTensor):
                if tensor.dim() > 0 or (alias is not None and alias.is_write):
                    on_host = tensor
                continue
            if index not in (None, tensor.device.index):
                raise _mixed(func, f"{KIND}:{index}", tensor.device)
            index = tensor.device.index
            blocks[tensor.held.untyped_storage()._cdata] = tensor.block
            tensor.block.arrive()
            if alias is not None and alias.is_write:
                writes.append(tensor.block)
            elif alias is None and not metadata_only:
                reads.append(tensor.block)
    assert index is not None, "a simulated tensor is among the arguments"
    if on_host is not None and func._schema.name not in _TAKE_HOST_INDICES:
        raise _mixed(func, f"{KIND}:{index}", on_host.device)
    target: int | None = index
    if "device" in kwargs and kwargs["device"] is not None:
        wanted = torch.device(kwargs["device"])
        target = MACHINE.index_of(wanted) if wanted.type == KIND else None
        kwargs = {**kwargs, "device": wanted if wanted.type == "meta" else torch.device("cpu")}
    inner_args, inner_kwargs = tree_map(held, args), tree_map(held, kwargs)
    result = func(*inner_args, **inner_kwargs)
    made: list[Block] = []

    def wrapped(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or target is None:
            return value
        storage = value.untyped_storage()
        block = blocks.get(storage._cdata)
        if block is None:
            block = blocks[storage._cdata] = MACHINE.allocate(target, storage.nbytes())
            made.append(block)
        return SimulatedTensor(value, target, block)

    out = tree_map(wrapped, result)
    if reads or writes or made:
        at = MACHINE.launch(str(func), index, reads, [*writes, *made])
        if _tells_the_host(result):
            MACHINE.host_waits_for_stream(at[0])
    if target is not None:
        out = _aliased(func, args, kwargs, out)
    for _, value in zip_arguments(func._schema, args, kwargs):
        for tensor in _tensors(value):
            if isinstance(tensor, SimulatedTensor) and tensor.shape != tensor.held.shape:
                raise NotImplementedError(f"{func} gave a tensor of a simulated device another size")
    return out


@cache
def _alias_names(func: Any) -> tuple[tuple[str, bool] | None, ...]:
    """For each result: the argument that it shares memory with, and whether it is that argument itself."""
    names = []
    for returned in func._schema.returns:
        alias = returned.alias_info
        of = [
            each.name
            for each in func._schema.arguments
            if alias and each.alias_info and each.alias_info.before_set & alias.before_set
        ]
        names.append((of[0], alias.is_write) if of else None)
    return tuple(names)


def _aliased(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
    """The results as torch expects them: the argument itself that was written, and views that share its memory."""
    if torch.Tag.inplace_view in func.tags:
        return return_and_correct_aliasing(func, args, kwargs, out)
    names = _alias_names(func)
    if not any(names):
        return out
    given = {argument.name: value for argument, value in zip_arguments(func._schema, args, kwargs)}
    results = []
    for alias, value in zip(names, out if len(names) > 1 else (out,), strict=True):
        if alias is not None and alias[1]:
            value = given[alias[0]]
        elif alias is not None:
            for view in _tensors(value):
                torch._functionalize_unsafe_set(view, given[alias[0]])
        results.append(value)
    return tuple(results) if len(names) > 1 else results[0]


def _tells_the_host(result: Any) -> bool:
    """Whether an operation gives numbers to Python: the host waits for them."""
    return isinstance(result, bool | int | float)


def _mixed(func: Any, one: object, other: object) -> RuntimeError:
    return RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, {one} and {other}! ({func})"
    )


# Copies, and what the host reads


def copy(to: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    for tensor in (to, source):
        if isinstance(tensor, SimulatedTensor):
            tensor.block.arrive()
    if isinstance(to, SimulatedTensor):
        if isinstance(source, SimulatedTensor):
            _copy_between(to, source)
        else:
            _copy_to_device(to, source, non_blocking)
    else:
        assert isinstance(source, SimulatedTensor)
        _copy_to_host(to, source, non_blocking)
    return to


def _copy_between(to: SimulatedTensor, source: SimulatedTensor) -> None:
    if to.device != source.device:
        MACHINE.join(MACHINE.current_stream(to.device.index), MACHINE.current_stream(source.device.index))
    MACHINE.launch("copy_", to.device.index, [source.block], [to.block])
    if to.device != source.device:
        MACHINE.join(MACHINE.current_stream(to.device.index), MACHINE.current_stream(source.device.index))
    to.held.copy_(source.held)


def _copy_to_device(to: SimulatedTensor, source: torch.Tensor, non_blocking: bool) -> None:
    stream = MACHINE.current_stream(to.device.index)
    pinned = MACHINE.is_pinned(source)
    if pinned:
        MACHINE.before_copy_from(source, stream)
    at = MACHINE.launch("copy_", to.device.index, [], [to.block])
    to.held.copy_(source)
    if not non_blocking:
        MACHINE.host_waits_for_stream(stream)
    elif pinned:
        MACHINE.copy_later(source, source.clone(), to_host=False, at=at)


def _copy_to_host(to: torch.Tensor, source: SimulatedTensor, non_blocking: bool) -> None:
    at = MACHINE.launch("copy_", source.device.index, [source.block], [])
    if non_blocking and MACHINE.is_pinned(to):
        MACHINE.copy_later(to, torch.empty_like(to).copy_(source.held), to_host=True, at=at)
    else:
        MACHINE.host_waits_for_stream(at[0])
        to.copy_(source.held)


def _to_copy(source: SimulatedTensor, *, device: Any = None, non_blocking: bool = False, **kwargs: Any) -> torch.Tensor:
    wanted = source.device if device is None else torch.device(device)
    if wanted.type == KIND and MACHINE.index_of(wanted) == source.device.index:
        return _compute(aten._to_copy.default, (source,), kwargs)
    kwargs.pop("pin_memory", None)
    source.block.arrive()
    like = aten._to_copy.default(source.held, **kwargs)  # its type and strides
    if wanted.type == KIND:
        copied = placed(torch.empty_like(like), MACHINE.index_of(wanted))
    elif wanted.type == "cpu":
        copied = MACHINE.pin_storage(torch.empty_like(like)) if non_blocking else torch.empty_like(like)
    else:
        return torch.empty_like(like, device=wanted)
    return copy(copied, source, non_blocking)


def _item(source: SimulatedTensor) -> Any:
    source.block.arrive()
    at = MACHINE.launch("item", source.device.index, [source.block], [])
    MACHINE.host_waits_for_stream(at[0])
    return source.held.item()


def _waits(func: Any) -> Callable[..., Any]:
    """An operation whose result has a size that depends on values: the host waits for it."""

    def computed(*args: Any, **kwargs: Any) -> Any:
        out = _compute(func, args, kwargs)
        tensor = next(each for each in args if isinstance(each, SimulatedTensor))
        MACHINE.host_waits_for_stream(MACHINE.current_stream(tensor.device.index))
        return out

    return computed


def _pack(*args: Any) -> Any:
    """Lengths are in host memory, where torch wants them."""
    packed, lengths = _compute(aten._pack_padded_sequence.default, args, {})
    return packed, lengths.held


_SPECIAL: dict[Any, Callable[..., Any]] = {
    aten.copy_.default: copy,
    aten._to_copy.default: _to_copy,
    aten._local_scalar_dense.default: _item,
    aten._pack_padded_sequence.default: _pack,
    **{func: _waits(func) for func in (aten.nonzero.default, aten.masked_select.default, aten._unique2.default)},
}
