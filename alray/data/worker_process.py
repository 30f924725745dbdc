"""Processes that prepare mini-batches, and do not run the user's script again.

A process that multiprocessing spawns first imports the main script of the process that starts it, so that pickle finds
what is defined there. A script that trains without `if __name__ == "__main__"` would then train again in each loader
worker. A worker needs nothing of the script: its data come from modules.
"""

from __future__ import annotations

import pickle
from multiprocessing import context, popen_spawn_posix, process, reduction, spawn
from types import FunctionType, SimpleNamespace
from typing import Any

_OF_THE_SCRIPT = ("init_main_from_name", "init_main_from_path")
"""The entries of multiprocessing's preparation that have a process import the script."""


def _preparation(name: str) -> dict[str, Any]:
    """What multiprocessing has a new process do first, without the script."""
    whole: dict[str, Any] = spawn.get_preparation_data(name)
    return {key: value for key, value in whole.items() if key not in _OF_THE_SCRIPT}


class _Pickler(reduction.ForkingPickler):
    """Refuses what the worker could not find: classes and functions of the script."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, type | FunctionType) and value.__module__ == "__main__":
            raise pickle.PicklingError(f"`{value.__qualname__}` is defined in the script, which no worker runs again")
        return NotImplemented


def _dump(value: Any, file: Any) -> None:
    _Pickler(file).dump(value)


class _Popen(popen_spawn_posix.Popen):
    """A spawned process. `_launch` is that of multiprocessing, with the two functions above in place of those of
    multiprocessing."""

    _launch = FunctionType(
        popen_spawn_posix.Popen._launch.__code__,  # type: ignore[attr-defined]  # not in typeshed
        {
            **vars(popen_spawn_posix),
            "spawn": SimpleNamespace(**vars(spawn) | {"get_preparation_data": _preparation}),
            "reduction": SimpleNamespace(dump=_dump),
        },
    )


class _Process(context.SpawnProcess):
    @staticmethod
    def _Popen(process_obj: process.BaseProcess) -> _Popen:  # multiprocessing's name
        return _Popen(process_obj)


class WorkerContext(context.SpawnContext):
    """Starts processes as `spawn` does, without the script."""

    Process = _Process
