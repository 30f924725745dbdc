"""Generators of the data floor: each random choice has its own, seeded by what it is for."""

from __future__ import annotations

import torch

from alray.seeds import derive_seed


def generator(seed: int, *purpose: str | int) -> torch.Generator:
    """A CPU generator for one purpose; torch's global generator is never touched."""
    return torch.Generator().manual_seed(derive_seed(seed, *purpose))
