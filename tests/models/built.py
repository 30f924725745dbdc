"""Blocks by name, for tests that build one by itself."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from alray.core.parts import module_of


def builder(name: str) -> Callable[..., nn.Module]:
    build: Callable[..., nn.Module] = module_of("blocks", name, "block").build
    return build
