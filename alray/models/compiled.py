"""Parts of components compiled by torch.compile."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from alray.core.errors import PlanError

_COMPILERS = ("g++", "clang++")
_MOST_VARIANTS = 4096
"""The most compiled variants of one piece of code: each layer of a process has one in training and one in evaluation,
for each size of a mini-batch."""
_LIMITS = {
    "recompile_limit": _MOST_VARIANTS,
    "accumulated_recompile_limit": _MOST_VARIANTS,
    "fail_on_recompile_limit_hit": True,
}
"""Of Dynamo, the part of torch that meets the variants. They are those of the whole process."""
_DYNAMO = "torch._dynamo.config"
_first: dict[str, Any] = {}
"""The limits of the process before alray compiled in it."""


def require_compiler() -> None:
    """Raise PlanError if this machine has no C++ compiler, which torch.compile needs."""
    wanted = [name for name in (os.environ.get("CXX"), *_COMPILERS) if name]
    if not any(map(shutil.which, wanted)):
        raise PlanError(
            f"torch.compile needs a C++ compiler, and this machine has none of {', '.join(wanted)}",
            key="run.compile",
            hint="install g++, name another one in CXX, or train with run.compile false",
        )


@contextmanager
def limits_restored() -> Iterator[None]:
    """Inside, parts are compiled with the limits of alray. At the end torch has those that it has now."""
    before = _limits() if _DYNAMO in sys.modules else None  # its import takes seconds
    if before is not None:
        _set_limits(_LIMITS)
    try:
        yield
    finally:
        if _DYNAMO in sys.modules:
            _set_limits(before or _first)


def compile_part(part: nn.Module) -> None:
    """Have torch compile the part when it is first called, for each size of its input by itself.

    Code for any size would be chosen where a process meets a second size, which depends on how components are laid out
    on stages, and would have other bits. For the same reason torch may not give up after a few variants.
    """
    require_compiler()
    if not _first:
        _first.update(_limits())
    _set_limits(_LIMITS)
    part.compile(dynamic=False)


def _limits() -> dict[str, Any]:
    from alray.core.compat import dynamo_config  # takes seconds

    return {name: getattr(dynamo_config, name) for name in _LIMITS}


def _set_limits(limits: dict[str, Any]) -> None:
    from alray.core.compat import dynamo_config

    for name, value in limits.items():
        setattr(dynamo_config, name, value)
