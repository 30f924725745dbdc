"""Parts of components compiled by torch.compile."""

from __future__ import annotations

import os
import shutil

from torch import nn

from alray.core.errors import PlanError

_COMPILERS = ("g++", "clang++")
_MOST_VARIANTS = 4096
"""The most compiled variants of one piece of code: each layer of a process has one in training and one in evaluation,
for each size of a mini-batch."""


def require_compiler() -> None:
    """Raise PlanError if this machine has no C++ compiler, which torch.compile needs."""
    wanted = [name for name in (os.environ.get("CXX"), *_COMPILERS) if name]
    if not any(map(shutil.which, wanted)):
        raise PlanError(
            f"torch.compile needs a C++ compiler, and this machine has none of {', '.join(wanted)}",
            key="run.compile",
            hint="install g++, name another one in CXX, or train with run.compile false",
        )


def compile_part(part: nn.Module) -> None:
    """Have torch compile the part when it is first called, for each size of its input by itself.

    Code for any size would be chosen where a process meets a second size, which depends on how components are laid out
    on stages, and would have other bits. For the same reason torch may not give up after a few variants.
    """
    require_compiler()
    from alray.core.compat import dynamo_config  # takes seconds

    dynamo_config.recompile_limit = _MOST_VARIANTS
    dynamo_config.accumulated_recompile_limit = _MOST_VARIANTS
    dynamo_config.fail_on_recompile_limit_hit = True
    part.compile(dynamic=False)
