"""Gradients that are an update late: the weights of a plain loop, on any stages, whatever interrupts the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional

from alray.data.batches import TrainBatches
from alray.loading.load import load_spec
from alray.nn.delayed_weights import DelayedWeights
from alray.orchestrate import Finished
from alray.run_folder.records import StepRecord, read
from alray.stage.work.backpropagation import Backpropagation
from alray.stage.workload import Workload
from alray.user_code import UserCode

from .conftest import Workshop

SPEC = """
name: late
seed: 5
data: {source: synthetic, shape: [6], classes: 3, samples: 120, batch_size: 12, validation_fraction: 0.2}
model: {components: [{block: linear, width: 7, repeat: 3}]}
method: {kind: backpropagation}
optimizer: {kind: sgd, lr: 0.1}
pipeline:
  {schedule: 2bw, micro_batches: 4, costs: [&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost, *cost]}
run: {steps: 11, precision: float64, checkpoint: {every: 3 steps, keep: 50}}
"""
OPTIMIZERS: dict[str, Callable[[list[torch.Tensor], list[torch.Tensor]], list[torch.optim.Optimizer]]] = {
    "{kind: sgd, lr: 0.1}": lambda matrices, others: [torch.optim.SGD(matrices + others, lr=0.1)],
    "{kind: sgd, lr: 0.1, momentum: 0.8}": lambda matrices, others: [
        torch.optim.SGD(matrices + others, lr=0.1, momentum=0.8)
    ],
    "{kind: adamw, lr: 0.02}": lambda matrices, others: [torch.optim.AdamW(matrices + others, lr=0.02)],
    "{kind: muon, lr: 0.02}": lambda matrices, others: [
        torch.optim.Muon(matrices, lr=0.02, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=0.02, weight_decay=0.1),
    ],
}


@pytest.fixture
def late(tmp_path: Path) -> Workshop:
    workshop = Workshop(tmp_path)
    workshop.spec.write_text(SPEC)
    return workshop


def on(stages: int, *more: str) -> tuple[str, ...]:
    return (f"pipeline.stages={stages}", *more)


def weights(run: Finished) -> list[torch.Tensor]:
    """Weight and bias of each layer of the last checkpoint, the classifier's last."""
    assert run.error is None, run.error
    folder = max((Path(run.summary.run_dir) / "checkpoints").iterdir())
    files = [load_file(file) for file in sorted(folder.glob("component-*.safetensors"))]
    return [file[f"{part}.{name}"] for file in files for part in parts_of(file) for name in ("weight", "bias")]


def parts_of(file: dict[str, torch.Tensor]) -> list[str]:
    return sorted({name.rpartition(".")[0] for name in file})


def plain_loop(workshop: Workshop, optimizer: str, look_ahead: float, micro_batches: int = 4) -> list[torch.Tensor]:
    """The same training as a loop that keeps the weights from before the last update."""
    spec = load_spec(workshop.spec, ()).spec
    workload = Workload.open(spec, UserCode(workshop.folder))
    components = [workload.network.component(index, "cpu") for index in range(3)]
    now = [value.clone() for component in components for value in component.weights().values()]
    matrices, others = [value for value in now[:-2] if value.ndim == 2], [value for value in now[:-2] if value.ndim < 2]
    optimizers = OPTIMIZERS[optimizer](matrices, others + now[-2:])
    for each in optimizers:
        each.param_groups[0]["lr"] *= 1.0 - look_ahead
    late = [value.clone() for value in now]
    before = late
    with TrainBatches(workload.data, seed=spec.seed, start_step=0, end_step=11, workers=0) as batches:
        for batch in batches:
            late = [value.detach().requires_grad_() for value in late]
            for part in range(micro_batches):
                s, labels = batch.samples.chunk(micro_batches)[part].double(), batch.labels.chunk(micro_batches)[part]
                for place in (0, 2, 4):
                    s = functional.relu(functional.linear(s, late[place], late[place + 1]))
                functional.cross_entropy(functional.linear(s, late[6], late[7]), labels).backward()
            points = [value + look_ahead * (value - old) for value, old in zip(now, before, strict=True)]
            before = [value.clone() for value in now]
            for value, point, computed in zip(now, points, late, strict=True):
                value.copy_(point)
                value.grad = computed.grad / micro_batches
            for each in optimizers:
                each.step()
            late = points
    return now


@pytest.mark.parametrize("look_ahead", [0.0, 0.7])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_weights_are_those_of_a_plain_loop(late: Workshop, optimizer: str, look_ahead: float) -> None:
    expected = plain_loop(late, optimizer, look_ahead)
    hashes = set()
    for stages in (1, 2, 3):
        keys = (f"optimizer={optimizer}", f"optimizer.look_ahead={look_ahead}")
        run = late.run(*on(stages, *keys), name=f"on-{stages}")
        for found, value in zip(weights(run), expected, strict=True):
            torch.testing.assert_close(found, value, rtol=1e-10, atol=1e-10)
        hashes.add(run.summary.weights_sha256)
        records = [each for each in read(late.folder / f"on-{stages}/records.jsonl") if isinstance(each, StepRecord)]
        assert [each.step for each in records] == list(range(1, 12)) and all(each.losses for each in records)
    assert len(hashes) == 1
