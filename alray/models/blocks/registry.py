"""Blocks by name. Built-in blocks register themselves; a user's own is named `python:package.module.Class`, and a
package's by the name that it brings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from torch import nn

from alray.config.sections.own_code import reference_to
from alray.config.sections.packages import BLOCKS
from alray.core.errors import SpecError
from alray.models.shape import Shape


class BuildBlock(Protocol):
    """Builds a module for samples of one shape; its `forward(s, mask=None)` maps `[N, *input]` to `[N, *output]`."""

    def __call__(self, input: Shape, /, **fields: Any) -> nn.Module: ...


_BLOCKS: dict[str, Callable[..., nn.Module]] = {}


def register(name: str) -> Callable[[Callable[..., nn.Module]], Callable[..., nn.Module]]:
    """Register a builder under the name that specs use."""

    def keep(build: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
        _BLOCKS[name] = build
        return build

    return keep


def registered() -> tuple[str, ...]:
    """Names of all built-in blocks."""
    return tuple(sorted(_BLOCKS))


def builder(name: str, load: Callable[[str], Any]) -> Callable[..., nn.Module]:
    """The builder of a block. `load` takes a reference, as from `reference_to`, to the object it names.

    An object with an attribute `build` is built by `build(input, **fields)`. Any other object, a class or a function,
    is called with the same arguments.
    """
    if name in _BLOCKS:
        return _BLOCKS[name]
    target = load(reference_to(name, BLOCKS))
    build = getattr(target, "build", target)
    if not callable(build):
        raise SpecError(f"`{name}` is not a class or function", hint="name a class with `build(input, **fields)`")
    result: Callable[..., nn.Module] = build
    return result
