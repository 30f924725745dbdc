"""What a resume may change: how the run is laid out, never its mathematics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from alray.errors import SpecError
from alray.run.folder import require_run_dir
from alray.spec.loading import load_spec
from alray.spec.models import Spec

_FREE = (
    "name",
    "pipeline.",
    "resources.per_stage",
    "resources.labels",
    "resources.stage_speed",
    "data.workers",
    "run.checkpoint",
    "run.evaluate_every",
    "run.max_failures",
    "run.stop_at",
)
_LENGTH = ("run.epochs", "run.steps", "run.samples")


def resumed_spec(run_dir: Path, overrides: list[str], *, allow_change: bool) -> tuple[Path, Spec]:
    """The run folder and its spec with these overrides.

    Raises SpecError for a change that would alter the mathematics, unless `allow_change`.
    """
    run_dir = require_run_dir(run_dir)
    before = load_spec(run_dir / "spec.yaml").spec
    after = load_spec(run_dir / "spec.yaml", overrides).spec
    if not allow_change:
        changed = [
            key
            for key in _differences(before.model_dump(mode="json"), after.model_dump(mode="json"))
            if not _free(key, after)
        ]
        if changed:
            raise SpecError(
                f"a resumed run would not be the same run with another {', '.join(f'`{key}`' for key in changed)}",
                file=str(run_dir),
                mend="leave it as it was, start a new run, or pass --allow-change",
            )
    return run_dir, after


def _free(key: str, spec: Spec) -> bool:
    if key in _LENGTH:
        # A decay that ends with the run would take another course.
        schedule = spec.lr_schedule
        return schedule.kind == "constant" or (schedule.kind == "linear" and schedule.decay_steps is not None)
    return any(key == free or key.startswith(free.rstrip(".") + ".") for free in _FREE)


def _differences(before: Any, after: Any, key: str = "") -> list[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        return [
            difference
            for name in {**before, **after}
            for difference in _differences(before.get(name), after.get(name), f"{key}.{name}" if key else str(name))
        ]
    return [] if before == after else [key]
