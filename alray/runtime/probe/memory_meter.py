"""Counts the bytes of tensors while code runs, on any device, the meta device included."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch

from alray.core.compat import TorchDispatchMode, tree_iter


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
