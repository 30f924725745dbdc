"""All kinds of part that a spec chooses by name."""

from __future__ import annotations

from typing import Any

from alray.config.sections.all_reduce import ALL_REDUCES
from alray.config.sections.blocks import BLOCKS
from alray.config.sections.compression import COMPRESSIONS
from alray.config.sections.data import SOURCES
from alray.config.sections.kind import Kind
from alray.config.sections.lr_schedule import RATES
from alray.config.sections.method import METHODS
from alray.config.sections.optimizer import OPTIMIZERS
from alray.config.sections.task import TASKS
from alray.config.sections.trackers import TRACKERS

KINDS: tuple[Kind[Any], ...] = (
    METHODS,
    BLOCKS,
    SOURCES,
    TASKS,
    OPTIMIZERS,
    RATES,
    ALL_REDUCES,
    COMPRESSIONS,
    TRACKERS,
)
"""A schedule has no keys: `alray.planning.schedules.table` has all of them."""
