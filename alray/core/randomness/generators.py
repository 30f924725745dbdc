"""Random generators: a separate one for a purpose; and the global ones of torch, NumPy and Python, seeded and put back.

alray's code draws from separate generators, except torch's layers in training. A user's code may draw from any of
these.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy
import torch

from alray.core import accelerator
from alray.core.randomness.one_at_a_time import one_at_a_time
from alray.core.randomness.seeds import derive_seed

_CPU = torch.device("cpu")


def generator(seed: int, *purpose: str | int) -> torch.Generator:
    """Return a CPU generator for one purpose. torch's global generator is never used for data."""
    return torch.Generator().manual_seed(derive_seed(seed, *purpose))


def seed_torch(device: torch.device, seed: int, *purpose: str | int) -> int:
    """Seed torch's generators, on the CPU and on `device`, from (seed, purpose). Returns the value."""
    value = derive_seed(seed, *purpose)
    torch.default_generator.manual_seed(value)
    if accelerator.is_accelerator(device):
        accelerator.seed(device, value)
    return value


def seed_all(device: torch.device, seed: int, *purpose: str | int) -> None:
    """Seed torch's generators as `seed_torch` does, and those of NumPy and of `random` from the same value."""
    value = seed_torch(device, seed, *purpose)
    numpy.random.seed(value % 2**32)
    random.seed(value)


@contextmanager
def put_back(device: torch.device = _CPU) -> Iterator[None]:
    """At the end, all generators have the state that they have now: those of the CPU, and torch's on `device`. One
    thread of this process at a time is inside."""
    with one_at_a_time(), accelerator.generators_forked(device):
        of_numpy, of_python = numpy.random.get_state(), random.getstate()
        try:
            yield
        finally:
            numpy.random.set_state(of_numpy)
            random.setstate(of_python)
