"""Activation memory of eight stages of a small GPT: DGL streamed beside 1F1B, predicted and counted, on the CPU.

    python -m benchmarks.activation_memory

Both learn from the same tokens between two updates: 1F1B has eight micro-batches in a mini-batch, and DGL adds up the
gradients of eight mini-batches of that size (`optimizer.accumulate`, which changes none of these tensors). Counted is
what a stage holds at its peak beyond its weights, their gradients and the state of the optimizer.
"""

from __future__ import annotations

from typing import Any

import torch

from alray.config.sections.spec import Spec
from alray.models.network import Network
from alray.models.shape import Shape
from alray.planning.prediction.plan import Plan
from alray.runtime.probe.estimate import estimate_costs
from benchmarks.memory import Way, plan_of, predicted_bytes
from benchmarks.runs import write_results
from benchmarks.tracked_memory import tracked_peak_bytes

STAGES, MICRO_BATCHES, WINDOWS = 8, 8, 8  # windows of tokens in a micro-batch
CONTEXT, TOKENS = 128, 256

WAYS = (
    ("1F1B", Way("backpropagation", "1f1b", (1,) * STAGES, MICRO_BATCHES), WINDOWS * MICRO_BATCHES),
    ("DGL", Way("decoupled_greedy", "streamed", (1,) * STAGES), WINDOWS),
)


def gpt(method: str, batch_size: int) -> Network:
    """Eight components of one causal layer each, width 256."""
    layer = {"block": "transformer", "causal": True, "dim": 256, "heads": 4, "feedforward": 1024}
    spec = Spec.model_validate(
        {
            "name": "gpt",
            "data": {"source": "text", "docstrings": True, "context": CONTEXT, "batch_size": batch_size},
            "task": {"kind": "next_token"},
            "model": {"components": [layer | {"repeat": STAGES}]},
            "method": {"kind": method},
            "optimizer": {"kind": "adamw", "lr": 1e-3},
            "run": {"steps": 1},
        }
    )
    sample = Shape((CONTEXT,), torch.int64, tokens=TOKENS)
    return Network(spec, sample=sample, classes=TOKENS, load=lambda reference: None)


def beyond_weights(plan: Plan, stage: int) -> tuple[int, int]:
    """Predicted bytes of what a stage holds beyond its weights, gradients and optimizer; and of those."""
    memory = plan.stage_plans[stage].memory
    weights = memory.parameters_bytes + memory.gradients_bytes + memory.optimizer_bytes
    return predicted_bytes(plan, stage) - weights, weights


def measure() -> list[dict[str, Any]]:
    """One entry for each stage of each way."""
    entries = []
    for name, way, batch_size in WAYS:
        network = gpt(way.method, batch_size)
        costs = estimate_costs(network, batch_size=batch_size, device=torch.device("cpu"))
        plan = plan_of(way, costs)
        for stage in range(STAGES):
            predicted, weights = beyond_weights(plan, stage)
            counted = tracked_peak_bytes(network, plan, stage) - weights
            entries.append({"way": name, "stage": stage, "predicted_bytes": predicted, "counted_bytes": counted})
            print(entries[-1], flush=True)  # noqa: T201
    return entries


def main() -> None:
    figures = {"micro_batches": MICRO_BATCHES, "windows": WINDOWS, "context": CONTEXT, "stages": measure()}
    write_results("activation_memory", figures)


if __name__ == "__main__":
    main()
