"""The ledger of absolute results: the specs of `ledger.yaml`, and the weights that they end in (`ledger.json`).

`python -m tests.engine.ledger [SPEC...]` writes those of this machine's kind of processor.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import yaml

from alray.orchestrate import Options, run_spec
from alray.runtime.device.devices import device_name, pick

from .conftest import Asked, Watching

SPECS = Path(__file__).with_name("ledger.yaml")
WEIGHTS = Path(__file__).with_name("ledger.json")
COST = {"forward_s": 1e-3, "backward_s": 1e-3, "update_s": 1e-3}
"""Costs are given: measuring them would take longer than the run. No weight depends on them."""


def specs() -> dict[str, dict[str, Any]]:
    """The specs by name."""
    content = yaml.safe_load(SPECS.read_text())
    found = {}
    for name, keys in content["specs"].items():
        network = content["networks"][keys.pop("network")]
        found[name] = content["base"] | network | keys | {"name": name}
        found[name]["run"] = content["base"]["run"] | keys.get("run", {})
        components = found[name]["model"]["components"]
        count = components if isinstance(components, int) else sum(each.get("repeat", 1) for each in components)
        found[name]["pipeline"] = {"costs": [COST] * count} | keys.get("pipeline", {})
    return found


def processor() -> str:
    """What the bits depend on: the kind of processor, with its instruction set, and torch."""
    return f"{device_name(pick('cpu'))}, torch {torch.__version__.partition('+')[0]}"


def known() -> dict[str, dict[str, str]]:
    """The hashes of the weights: by kind of processor, by spec."""
    weights: dict[str, dict[str, str]] = json.loads(WEIGHTS.read_text())
    return weights


def write_files(folder: Path) -> None:
    """The texts and the schedule that specs name, the same on every machine."""
    draw = random.Random(1)
    words = ["a", "stage", "waits", "for", "its", "neighbour", "while", "an", "encoder", "learns", "from", "labels"]
    lines = [" ".join(draw.choices(words, k=draw.randint(3, 12))) for _ in range(96)]
    (folder / "texts.csv").write_text("".join(f"{number % 3 + 1},{line}\n" for number, line in enumerate(lines)))
    (folder / "texts.txt").write_text("\n\n".join(lines))
    (folder / "order.csv").write_text("0F0,0F1,0F2,0F3,0B3,0B2,0B1,0B0\n1F0,1F1,1F2,1F3,1I3,1B2,1B1,1W3,1B0\n")


def weights_of(spec: dict[str, Any], folder: Path, *overrides: str) -> str:
    """The hash of the weights that a spec ends in, run in this process."""
    write_files(folder)
    file = folder / "spec.yaml"
    file.write_text(yaml.safe_dump(spec))
    options = Options(inline=True, run_dir=folder / "run", pages=False)
    run = run_spec(file, list(overrides), options, Watching(), Asked())
    assert run.error is None, run.error
    assert run.summary.weights_sha256 is not None
    return run.summary.weights_sha256


def main(names: list[str]) -> None:
    """Write the hashes of these specs, of all of them if none is named."""
    here = {}
    for name, spec in specs().items():
        if not names or name in names:
            with TemporaryDirectory() as folder:
                here[name] = weights_of(spec, Path(folder))
    weights = known() if WEIGHTS.exists() else {}
    weights[processor()] = weights.get(processor(), {}) | here
    WEIGHTS.write_text(json.dumps(weights, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
