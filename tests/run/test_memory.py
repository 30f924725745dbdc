"""Memory limits of stages, micro-batches that follow them, and a run that finds no memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from alray.cli.place import Quiet  # the observer of `--json`
from alray.errors import PlanError, SpecError
from alray.orchestrate import Options, run_spec
from alray.run.memory import machine_memory_bytes, stage_memory_limits
from alray.spec.loading import load_spec

BY_BACKPROPAGATION = "method={kind: backpropagation}"
