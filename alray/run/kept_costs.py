"""Measured costs, kept in a folder, so that runs of equal components measure them once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from alray.device.devices import environment
from alray.plan.costs import Costs
from alray.probe.measure import Surroundings
from alray.records import write_json
from alray.spec.models import Spec


def kept_costs(folder: Path, spec: Spec, surroundings: Surroundings, measure: Callable[[], Costs]) -> Costs:
    """The costs of a spec's components: those that `folder` keeps, else measured now and kept there."""
    file = folder / f"{_key(spec, surroundings)}.json"
    if file.is_file():
        return Costs.from_json(json.loads(file.read_text(encoding="utf-8")))
    costs = measure()
    folder.mkdir(parents=True, exist_ok=True)
    write_json(file, costs.as_json())
    return costs


def _key(spec: Spec, surroundings: Surroundings) -> str:
    """A text that is equal for runs whose components cost the same on this machine.

    The optimizer's numbers, such as its rate, count only as zero or not.
    """
    sections = {"data", "model", "method", "optimizer", "resources", "replicas"}
    described: dict[str, Any] = spec.model_dump(mode="json", include=sections)
    described["optimizer"] = {
        key: bool(value) if isinstance(value, float) else value for key, value in described["optimizer"].items()
    }
    around = {**asdict(surroundings), "device": surroundings.device.type, "precision": spec.run.precision}
    text = json.dumps([described, around, environment(surroundings.device)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
