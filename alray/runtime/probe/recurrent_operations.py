"""Makes torch's recurrent layers run on tensors without values, although they depend on more than shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from alray.core.compat import VF, TorchDispatchMode, disable_current_modes, tree_iter

Function = Callable[..., Any]


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
