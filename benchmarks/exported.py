"""What leaves is what was evaluated: imported models by every method, exported, in their class without alray.

    python -m benchmarks.exported

Each network trains for a short time. `alray evaluate` measures every depth. Then the state dict that `alray export`
writes is loaded into a new object of the class, and `benchmarks/plain_readouts.py`, which is plain torch, computes the
same. What is known is kept: delete build/benchmarks/exported.json to measure all once more.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import alray
from alray.data.batches import EvaluationBatches
from alray.inference.network import TrainedNetwork
from benchmarks.exported_networks import Gpt, ResNet
from benchmarks.plain_readouts import PlainModel
from benchmarks.runs import MEASURED, write_results

HERE = Path(__file__).parent
RESULT = MEASURED / "exported.json"
SMALL = {"num_classes": 10, "width_mult": 0.5, "inverted_residual_setting": [[1, 16, 1, 1], [4, 24, 2, 2]]}
LIBRARY = {"from": "torchvision:mobilenet_v2", "with": SMALL, "components": 4}
OF_PICTURES = {
    "backpropagation": {},
    "associated_learning": {"label_dim": 64},
    "decoupled_greedy": {},
    "supervised_contrastive": {},
    "mono_forward": {},
    "local_error_signals": {},
    "channel_goodness": {},
    "decoupled_information": {"projection_dim": 64},
    "forward_forward": {},
}
OF_TOKENS = {
    "backpropagation": {},
    "associated_learning": {"label_dim": 32},
    "decoupled_greedy": {},
    "solo": {"copy_every": 10, "heads": 4},
}
Figures = dict[str, Any]
Measure = Callable[[torch.Tensor, torch.Tensor], float]


def accuracy(scores: torch.Tensor, labels: torch.Tensor) -> float:
    return float((scores.argmax(1) == labels).double().mean())


def nats(scores: torch.Tensor, labels: torch.Tensor) -> float:
    return float(functional.cross_entropy(scores.flatten(0, 1), labels.flatten()))


def compared(spec: str, overrides: dict[str, Any], new: Callable[[], nn.Module], measure: Measure) -> Figures:
    """The test metric of every depth as alray evaluates it and in plain torch, and that of the class by itself."""
    with tempfile.TemporaryDirectory() as folder:
        run = alray.run(HERE / spec, overrides, inline=True, output=f"{folder}/run", progress=False)
        evaluated = {each.depth: each.test for each in run.evaluate().scores}
        exported = run.export("state_dict")
        model = new()
        tokens = measure is nats
        plain = PlainModel(model, Path(exported.file), by_position=tokens)
        data = TrainedNetwork(run.folder, allow_code=False).workload.data
    batches = list(EvaluationBatches(data, "test"))
    labels = torch.cat([batch.labels for batch in batches])

    def of(scores: Callable[[torch.Tensor], torch.Tensor]) -> float:
        with torch.no_grad():
            return measure(torch.cat([scores(batch.samples) for batch in batches]), labels)

    return {
        "evaluated": evaluated,
        "plain": {depth: of(partial(plain.scores, depth=depth)) for depth in evaluated},
        "class": of(model),
        "class_alone": exported.class_alone,
    }


@dataclass(frozen=True)
class Case:
    """A network that a method trains, and its class in plain torch."""

    network: str
    method: str
    spec: str
    overrides: dict[str, Any]
    new: Callable[[], nn.Module]
    measure: Measure


def cases() -> Iterator[Case]:
    networks: list[tuple[str, str, dict[str, Any], Mapping[str, Any], Callable[[], nn.Module], Measure]] = [
        ("a user's ResNet", "exported.yaml", {}, OF_PICTURES, ResNet, accuracy),
        ("a user's GPT", "exported_tokens.yaml", {}, OF_TOKENS, Gpt, nats),
        ("mobilenet_v2", "exported.yaml", {"model": LIBRARY}, OF_PICTURES, _of_torchvision, accuracy),
    ]
    for network, spec, keys, methods, new, measure in networks:
        for method, fields in methods.items():
            if network == "mobilenet_v2" and method == "channel_goodness":
                continue  # not ten groups of channels
            section = {"kind": method.partition(",")[0], **fields}
            yield Case(network, method, spec, {**keys, "method": section}, new, measure)


def main() -> None:
    torch.set_num_threads(1)
    found: list[Figures] = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else []
    for case in cases():
        if any((each["network"], each["method"]) == (case.network, case.method) for each in found):
            continue
        figures = compared(case.spec, case.overrides, case.new, case.measure)
        found.append({"network": case.network, "metric": case.measure.__name__, "method": case.method, **figures})
        write_results("exported", found)
        print(json.dumps(found[-1]), flush=True)  # noqa: T201


def _of_torchvision() -> nn.Module:
    from torchvision.models import mobilenet_v2  # imports torch's compiler

    model: nn.Module = mobilenet_v2(**SMALL)
    return model


if __name__ == "__main__":
    main()
