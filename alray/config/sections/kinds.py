"""All kinds of part that a spec chooses by name."""

from __future__ import annotations

from typing import Any

from alray.config.sections.blocks import BLOCKS
from alray.config.sections.kind import Kind
from alray.config.sections.lr_schedule import RATES
from alray.config.sections.method import METHODS
from alray.config.sections.optimizer import OPTIMIZERS
from alray.config.sections.task import TASKS

KINDS: tuple[Kind[Any], ...] = (METHODS, BLOCKS, TASKS, OPTIMIZERS, RATES)
