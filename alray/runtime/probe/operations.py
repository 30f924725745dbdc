"""Counts what computations do, operation by operation, for the time they would take on another device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from alray.core.compat import TorchDispatchMode, tree_iter
from alray.planning.prediction.machines import Device, ReachedSpeed

Kind = Literal["matrix", "convolution", "other"]


@dataclass(frozen=True)
class Operation:
    """One operation.

    Attributes:
        flops: floating-point operations, those of matrix products and convolutions alone.
        nbytes: that it reads and writes.
    """

    kind: Kind
    flops: int
    nbytes: int


class OperationCounter(TorchDispatchMode):
    """Keeps the operations that run inside it; views, which compute nothing, are left out."""

    def __init__(self) -> None:
        from torch.utils.flop_counter import flop_registry  # with it comes Triton

        super().__init__()
        self.operations: list[Operation] = []
        self._formulas = flop_registry

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        packet = getattr(func, "overloadpacket", func)
        if packet not in self._formulas and func is not torch.ops.prim.device.default:
            with self:  # composite operations count as those that they are made of
                made_of = func.decompose(*args, **given) if hasattr(func, "decompose") else NotImplemented
            if made_of is not NotImplemented:
                return made_of
        result = func(*args, **given)
        inputs, outputs = list(_tensors((args, given))), list(_tensors(result))
        read = {tensor.untyped_storage()._cdata for tensor in inputs}
        formula: Callable[..., int] | None = self._formulas.get(packet)
        writes = any(tensor.untyped_storage()._cdata not in read for tensor in outputs)
        if formula is not None or writes or func._schema.is_mutable:
            flops = formula(*args, **given, out_val=result) if formula is not None else 0
            kind: Kind = "other" if not flops else "convolution" if "conv" in str(packet) else "matrix"
            self.operations.append(Operation(kind, flops, sum(map(_read_bytes, (*inputs, *outputs)))))
        return result


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    return (each for each in tree_iter(value) if isinstance(each, torch.Tensor))


def _read_bytes(tensor: torch.Tensor) -> int:
    """The bytes that reading a tensor takes: a dimension that is expanded is read once."""
    count = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= size if stride or size == 0 else 1
    return count * tensor.element_size()


def seconds_on(
    operations: Sequence[Operation],
    device: Device,
    reached: ReachedSpeed,
    number_type: str,
    *,
    tf32: str,
) -> float:
    """Seconds of these operations, one after another, by the roofline of a device.

    Each takes the longest of three: its operations at a share of the peak, its bytes at a share of the bandwidth of the
    memory, and the launch of a kernel. Williams, Waterman and Patterson, "Roofline: an insightful visual performance
    model" (2009).

    Args:
        reached: what the device reaches of what is published.
        number_type: `run.precision` of the spec.
        tf32: `resources.tf32` of the spec.
    """
    total, bytes_per_s = 0.0, reached.bandwidth * device.bytes_per_s
    for each in operations:
        peak = reached.efficiency * _peak(device, each.kind, number_type, tf32)
        total += max(each.flops / peak, each.nbytes / bytes_per_s, reached.launch_s)
    return total


def _peak(device: Device, kind: Kind, number_type: str, tf32: str) -> float:
    peaks = device.peaks
    if number_type != "float32":
        return peaks[number_type]
    rounds = tf32 == "all" or (tf32 == "convolutions" and kind == "convolution")
    return peaks.get("tf32", peaks["float32"]) if rounds else peaks["float32"]
