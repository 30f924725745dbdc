"""Every classification model of torchvision: is it traced, where is it cut, and does it train as one whole?

    python -m benchmarks.models [NAME ...]

Each model is tried in a process of its own. What is known of a model is not measured again: delete its line.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import warnings
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn
from torchvision import models

import alray
from alray.errors import AlrayError
from alray.nn.encoder import row_major
from alray.nn.imported.model import ImportedModel
from alray.nn.shape import Shape
from benchmarks.runs import MEASURED

RESULT = MEASURED / "models.json"
SIZES = (64, 96, 224)
"""Sides of the images that are tried, pixels: the first that a model takes counts."""
LARGEST = 120_000_000
"""Parameters: models with more are only traced and cut."""
LARGEST_TRAINED = 12_000_000
"""Parameters: models with more are not trained by every method."""
LIMIT_S = 900
METHODS = ("backpropagation", "associated_learning", "decoupled_greedy", "supervised_contrastive")
ARGUMENTS: dict[str, dict[str, Any]] = {
    "googlenet": {"aux_logits": False, "init_weights": False},
    "inception_v3": {"aux_logits": False, "init_weights": False},
}
"""Constructor arguments next to `num_classes`: those of the two whose training returns further scores."""
Figures = dict[str, Any]


def looked_at(name: str) -> Figures:
    """The figures of one model."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    arguments = {"num_classes": 10, **ARGUMENTS.get(name, {})}
    found: Figures = {"name": name, "with": ARGUMENTS.get(name, {})}
    torch.manual_seed(0)
    with torch.device("meta"):
        parameters = sum(each.numel() for each in models.get_model(name, **arguments).parameters())
    found["parameters"] = parameters
    model = ImportedModel(f"torchvision:{name}", arguments, load=_nothing)
    try:
        found["places"] = len(model.places)
    except AlrayError as error:
        return {**found, "refused": str(error)}
    for size in SIZES:
        try:
            parts = model.cut("auto", None, Shape((3, size, size)))
        except AlrayError as error:
            found["refused"] = str(error)
        else:
            found.pop("refused", None)
            found |= {"size": size, "components": len(parts), "opaque": sorted(model.opaque)}
            break
    if "refused" in found or parameters > LARGEST:
        return found
    chain = [model.part(*part) for part in parts] + [model.classifier()]
    found["whole"] = _whole(model.whole, chain, torch.randn(2, 3, found["size"], found["size"]))
    if parameters <= LARGEST_TRAINED:
        del model, chain
        found["streamed"] = {method: _streamed(name, arguments, found, method) for method in METHODS}
    return found


def _nothing(reference: str) -> Any:
    raise AssertionError(reference)


def _whole(whole: nn.Module, chain: list[nn.Module], samples: torch.Tensor) -> dict[str, float]:
    """The largest difference between the chain and the whole model, over the largest value of the whole: of the scores
    in evaluation and in training, and of the gradients."""
    found = {}
    whole = copy.deepcopy(whole)
    for training in (False, True):
        outputs = []
        for modules in ([whole], chain):
            torch.manual_seed(5)
            value = samples
            for module in modules:
                value = row_major(module.train(training)(value))
            outputs.append(value)
        found["training" if training else "evaluation"] = _apart(*outputs)
    for output in outputs:
        output.square().sum().backward()
    of_chain = {name: each.grad for part in chain for name, each in part.named_parameters()}
    pairs = [(each.grad, of_chain[name]) for name, each in whole.named_parameters()]
    found["gradients"] = max(_apart(ours, theirs) for ours, theirs in pairs if ours is not None and theirs is not None)
    return found


def _apart(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    if torch.equal(ours, theirs):
        return 0.0
    return float((ours - theirs).abs().max() / ours.abs().max())


def _streamed(name: str, arguments: Figures, found: Figures, method: str) -> str:
    """Whether a mini-batch on two stages ends in the weights of one stage: `same`, `other` or a refusal."""
    size, components = found["size"], min(4, found["components"])
    cost = {"forward_s": 1.0, "backward_s": 1.0, "update_s": 1.0}
    spec: Figures = {
        "name": "one",
        "data": {
            "source": "synthetic",
            "shape": [3, size, size],
            "classes": 10,
            "samples": 40,
            "batch_size": 4,
            "validation_fraction": 0.2,
        },
        "model": {"from": f"torchvision:{name}", "with": arguments, "components": components},
        "method": method,
        "optimizer": {"kind": "sgd", "lr": 0.001},
        "pipeline": {"costs": [cost] * components},
        "run": {"steps": 1, "evaluate_every": None, "checkpoint": None, "test": "end"},
    }
    hashes = []
    for stages in (1, 2):
        schedule = "naive" if method == "backpropagation" and stages == 2 else "auto"
        pipeline = {**spec["pipeline"], "stages": stages, "schedule": schedule}
        try:
            with TemporaryDirectory() as folder:
                run = alray.run({**spec, "pipeline": pipeline}, inline=True, output=f"{folder}/run")
                hashes.append(run.summary.weights_sha256)
        except AlrayError as error:
            return str(error)
    return "same" if hashes[0] == hashes[1] else "other"


def main(names: list[str]) -> None:
    if names[:1] == ["--one"]:
        print(json.dumps(looked_at(names[1])))  # noqa: T201
        return
    MEASURED.mkdir(parents=True, exist_ok=True)
    known = {each["name"]: each for each in json.loads(RESULT.read_text(encoding="utf-8"))} if RESULT.exists() else {}
    for name in names or models.list_models(module=models):
        if name in known:
            continue
        command = [sys.executable, "-m", "benchmarks.models", "--one", name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            known[name] = {"name": name, "refused": f"not ready in {LIMIT_S} s"}
        else:
            lines = done.stdout.strip().splitlines()
            said = done.stderr.strip().splitlines()[-1:]
            known[name] = json.loads(lines[-1]) if done.returncode == 0 else {"name": name, "refused": said}
        RESULT.write_text(json.dumps(list(known.values()), indent=1), encoding="utf-8")
        print(json.dumps(known[name]), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
