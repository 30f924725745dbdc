"""Every classification model of torchvision, and a small one of each family of timm: where is it cut, is the chain of
its parts the whole, and does it train by every method, in the same bits on two stages as on one?

    python -m benchmarks.models [NAME ...]

All models are cut and compared first, then trained; the smallest come first. What is known of a model is kept
and not measured again: take all but `from`, `family` and `parameters` out of its entry in build/benchmarks/models.json
to measure it once more. Families of timm are tried where timm is installed; its models for tests are left out.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn
from torchvision import models

import alray
from alray.core.errors import AlrayError
from alray.models.encoder import row_major
from alray.models.imported.given import GivenModel
from alray.models.imported.sources import made
from alray.models.shape import Shape
from benchmarks.runs import MEASURED, write_results

RESULT = MEASURED / "models.json"
SIZES = (64, 96, 224, 256)
"""Sides of the images that are tried before that of the model, pixels: the first that a model takes counts."""
LARGEST = 150_000_000
"""Parameters: models with more are cut and compared, but not trained, which takes several copies of them."""
GRADIENT_OF_ROUNDING = 1e-6
"""Times the largest gradient of a model: a parameter whose gradients are smaller is compared with this."""
LIMIT_S = 600
"""A model that takes longer, seconds, is given up."""
CLASSES = 3
"""So few that every mini-batch has two samples of a class."""
METHODS = ("backpropagation", "associated_learning", "decoupled_greedy", "supervised_contrastive")
ARGUMENTS: dict[str, dict[str, Any]] = {
    "torchvision:googlenet": {"aux_logits": False, "init_weights": False},
    "torchvision:inception_v3": {"aux_logits": False, "init_weights": False},
}
"""Constructor arguments next to `num_classes`: those of the two whose training returns further scores."""
_SMALL = "atto femto pico nano xxsmall xxs xxtiny xsmall xs tiny t t0 mini b0 s0 small s 0 18 050 26"
"""Words in names of small models, the smallest first."""
_CANDIDATES = 2
"""Models of a family that are made to count their parameters."""
Figures = dict[str, Any]


def looked_at(source: str) -> Figures:
    """How a model is cut, and how far the chain of its parts is from the whole."""
    further = ARGUMENTS.get(source, {})
    arguments = {"num_classes": CLASSES, **further}
    found: Figures = {"with": further}
    torch.manual_seed(0)
    whole, _ = made(source, arguments, _nothing, sample=Shape((3, SIZES[0], SIZES[0])))
    of_timm = getattr(whole, "pretrained_cfg", {})
    for size in dict.fromkeys((*SIZES, *of_timm.get("input_size", ())[-1:])):
        model = GivenModel(whole, source, arguments, Shape((3, size, size)))
        began = time.monotonic()
        try:
            parts = model.cut("auto", None)
        except AlrayError as error:
            found["refused"] = str(error)
        else:
            found.pop("refused", None)
            found |= {
                "size": size,
                "components": len(parts),
                "places": len(model.cut_points),
                "cut_s": round(time.monotonic() - began, 1),
            }
            break
    if "refused" in found:
        return found
    chain = [model.part(*part) for part in parts] + [model.classifier(parts)]
    samples = torch.randn(2, 3, found["size"], found["size"])
    found["whole"] = _whole(model.whole, chain, samples)
    if any(found["whole"].values()):
        found["in_float64"] = _in_float64(model.whole, chain, samples)
    return found


def trained(entry: Figures) -> Figures:
    """How a mini-batch ends by each method."""
    return {"trained": {method: _trained(entry, method) for method in METHODS}}


def _nothing(reference: str) -> Any:
    raise AssertionError(reference)


def _whole(whole: nn.Module, chain: Sequence[nn.Module], samples: torch.Tensor) -> dict[str, float]:
    """The largest difference between the chain and the whole model, over the largest value of the whole: of the scores
    in evaluation and in training, and of the gradients."""
    found = {}
    for training in (False, True):
        torch.manual_seed(5)
        outputs = [whole.train(training)(samples)]
        torch.manual_seed(5)
        passing = {"s": samples}
        for part in chain:
            passing = {name: row_major(each) for name, each in part.train(training)(passing).items()}
        outputs.append(passing["s"])
        found["training" if training else "evaluation"] = _apart(*outputs)
    for output in outputs:
        output.square().sum().backward()
    of_chain = {name: each.grad for part in chain for name, each in part.named_parameters()}
    pairs = [(each.grad, of_chain[name]) for name, each in whole.named_parameters() if name in of_chain]
    both = [(ours, theirs) for ours, theirs in pairs if ours is not None and theirs is not None]
    least = GRADIENT_OF_ROUNDING * max(float(ours.abs().max()) for ours, _ in both)
    found["gradients"] = max(_apart(ours, theirs, least=least) for ours, theirs in both)
    return found


def _in_float64(whole: nn.Module, chain: Sequence[nn.Module], samples: torch.Tensor) -> dict[str, float]:
    """The same with 53 bits in place of 24, and without dropout, which draws in the order of the memory: a difference
    that shrinks is one of rounding."""
    for module in (whole, *chain):
        module.double().zero_grad()
        for each in module.modules():
            if isinstance(each, nn.Dropout):
                each.p = 0.0
    return _whole(whole, chain, samples.double())


def _apart(ours: torch.Tensor, theirs: torch.Tensor, *, least: float = 0.0) -> float:
    if torch.equal(ours, theirs):
        return 0.0
    return float((ours - theirs).abs().max()) / max(float(ours.abs().max()), least)


def _trained(entry: Figures, method: str) -> str:
    """How a mini-batch by a method ends: `trained`; with local losses `same` or `other`, as its weights on two stages
    are those on one; or a refusal. Backpropagation in one process is the same computation on any stages."""
    size, components = entry["size"], min(4, entry["components"])
    arguments = {"num_classes": CLASSES, **entry["with"]}
    cost = {"forward_s": 1.0, "backward_s": 1.0, "update_s": 1.0}
    spec: Figures = {
        "name": "one",
        "data": {
            "source": "synthetic",
            "shape": [3, size, size],
            "classes": CLASSES,
            "samples": 8,
            "batch_size": 4,
            "validation_fraction": 0.25,
        },
        "model": {"from": entry["from"], "with": arguments, "components": components},
        "method": method,
        "optimizer": {"kind": "sgd", "lr": 0.001},
        "pipeline": {"costs": [cost] * components},
        "run": {"steps": 1, "evaluate_every": None, "checkpoint": None, "test": "end"},
    }
    hashes = []
    for stages in (1,) if method == "backpropagation" or components == 1 else (1, 2):
        try:
            with TemporaryDirectory() as folder:
                pipeline = {**spec["pipeline"], "stages": stages}
                run = alray.run({**spec, "pipeline": pipeline}, inline=True, output=f"{folder}/run")
                hashes.append(run.summary.weights_sha256)
        except AlrayError as error:
            return str(error)
    if len(hashes) == 1:
        return "trained"
    return "same" if hashes[0] == hashes[1] else "other"


def _parameters(source: str) -> int:
    """The number of a model's parameters, counted on the meta device if its constructor needs no values."""
    kind, _, name = source.partition(":")
    make = models.get_model if kind == "torchvision" else importlib.import_module("timm").create_model
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with torch.device("meta"):
                model = make(name, num_classes=CLASSES, **ARGUMENTS.get(source, {}))
        except RuntimeError:  # some constructors compute with values, which the meta device does not have
            model = make(name, num_classes=CLASSES, **ARGUMENTS.get(source, {}))
    return sum(each.numel() for each in model.parameters())


def _of_torchvision() -> Iterator[Figures]:
    for name in models.list_models(module=models):
        source = f"torchvision:{name}"
        yield {"from": source, "family": "torchvision", "parameters": _parameters(source)}


def _of_timm() -> Iterator[Figures]:
    """A small model of each family, if timm is installed: the smallest of those whose names say that they are small. To
    make all of its models would take an hour."""
    try:
        timm = importlib.import_module("timm")
    except ImportError:
        return
    for family in timm.list_modules():
        names = [name for name in timm.list_models(module=family) if not name.startswith("test_")]
        likely = sorted(names, key=_size_by_name)[:_CANDIDATES]
        sizes = {name: _parameters(f"timm:{name}") for name in likely}
        name = min(sizes, key=lambda each: sizes[each])
        yield {"from": f"timm:{name}", "family": family, "parameters": sizes[name]}


def _size_by_name(name: str) -> tuple[int, int, str]:
    """A key that is low for small models."""
    words, small = name.split("_"), _SMALL.split()
    return min((small.index(word) for word in words if word in small), default=len(small)), len(name), name


def _in_a_process(measure: Callable[[], Figures]) -> Figures:
    """What is measured in a separate process, so that its memory comes back and no fault ends this one."""
    fork = multiprocessing.get_context("fork")
    receiving, sending = fork.Pipe(duplex=False)

    def look() -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # each run says how far it is
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")
        sending.send(measure())

    process = fork.Process(target=look)
    process.start()
    sending.close()
    try:
        if not receiving.poll(LIMIT_S):
            return {"failed": f"not ready in {LIMIT_S} s"}
        found: Figures = receiving.recv()
    except EOFError:
        process.join()
        return {"failed": f"the process ended with {process.exitcode}"}
    finally:
        process.terminate()
        process.join()
    return found


def main(names: list[str]) -> None:
    known: list[Figures] = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else []

    def measure(missing: str, of: Callable[[Figures], Figures]) -> None:
        """Of all entries that lack this key, the smallest first."""
        for entry in sorted(known, key=lambda each: each["parameters"]):
            if missing in entry or entry.keys() & {"refused", "failed"} or (names and entry["from"] not in names):
                continue
            entry |= _in_a_process(partial(of, entry))
            write_results("models", known)
            print(json.dumps(entry), flush=True)  # noqa: T201

    for library, listed in (("torchvision", _of_torchvision), ("timm", _of_timm)):
        if not any(entry["from"].startswith(f"{library}:") for entry in known):
            known += listed()
            write_results("models", known)
    measure("with", lambda entry: looked_at(entry["from"]))
    measure("trained", lambda entry: trained(entry) if entry["parameters"] <= LARGEST else {"trained": None})


if __name__ == "__main__":
    main(sys.argv[1:])
