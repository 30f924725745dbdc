"""Gradients that are an update late: the weights of a plain loop, on any stages, whatever interrupts the run."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

from alray.config.loading.load import load_spec
from alray.config.user_code import UserCode
from alray.core.errors import SpecError
from alray.core.run_folder.records import StepRecord, read
from alray.data.batches import TrainBatches
from alray.models.delayed_weights import DelayedWeights, keeping_versions
from alray.orchestrate import Finished
from alray.runtime.stage.work import backpropagation
from alray.runtime.workload import Workload

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
    return Workshop(tmp_path, SPEC)


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


def plain_loop(workshop: Workshop, optimizer: str, micro_batches: int = 4) -> list[torch.Tensor]:
    """The same training as a loop that keeps the weights from before the last update."""
    spec = load_spec(workshop.spec, ()).spec
    workload = Workload.open(spec, UserCode(workshop.folder))
    components = [workload.network.component(index, "cpu") for index in range(3)]
    now = [value.clone() for component in components for value in component.weights().values()]
    matrices, others = [value for value in now[:-2] if value.ndim == 2], [value for value in now[:-2] if value.ndim < 2]
    optimizers = OPTIMIZERS[optimizer](matrices, others + now[-2:])
    late = [value.clone() for value in now]
    with TrainBatches(workload.data, seed=spec.seed, start_step=0, end_step=11, workers=0) as batches:
        for batch in batches:
            late = [value.detach().requires_grad_() for value in late]
            for part in range(micro_batches):
                s, labels = batch.samples.chunk(micro_batches)[part].double(), batch.labels.chunk(micro_batches)[part]
                for place in (0, 2, 4):
                    s = functional.relu(functional.linear(s, late[place], late[place + 1]))
                functional.cross_entropy(functional.linear(s, late[6], late[7]), labels).backward()
            before = [value.clone() for value in now]
            for value, computed in zip(now, late, strict=True):
                value.grad = computed.grad / micro_batches
            for each in optimizers:
                each.step()
            late = before
    return now


@pytest.mark.few
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_weights_are_those_of_a_plain_loop(late: Workshop, optimizer: str) -> None:
    expected = plain_loop(late, optimizer)
    hashes = set()
    for stages in (1, 2, 3):
        run = late.run(*on(stages, f"optimizer={optimizer}"), name=f"on-{stages}")
        for found, value in zip(weights(run), expected, strict=True):
            torch.testing.assert_close(found, value, rtol=1e-10, atol=1e-10)
        hashes.add(run.summary.weights_sha256)
        records = [each for each in read(late.folder / f"on-{stages}/records.jsonl") if isinstance(each, StepRecord)]
        assert [each.step for each in records] == list(range(1, 12)) and all(each.losses for each in records)
    assert len(hashes) == 1


def wrong_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every mini-batch is computed with the newest weights that there are."""
    monkeypatch.setattr(DelayedWeights, "use", lambda self, step: self._place(self._newest))


def one_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mini-batch that starts before an update goes back with the weights from after it, as autograd reads them."""
    monkeypatch.setattr(backpropagation, "keeping_versions", nullcontext)


@pytest.mark.few
@pytest.mark.parametrize("fault", [wrong_version, one_version])
def test_another_version_is_found(
    late: Workshop, monkeypatch: pytest.MonkeyPatch, fault: Callable[[pytest.MonkeyPatch], None]
) -> None:
    expected = late.run(*on(3), name="right").summary.weights_sha256
    fault(monkeypatch)
    run = late.run(*on(3), name="wrong")
    assert run.error is not None or run.summary.weights_sha256 != expected


def test_cuts_and_stops_leave_the_weights_alone(late: Workshop, processes: None) -> None:
    """Evaluations and checkpoints flush the pipeline; a stopped run goes on in another process with both versions."""
    expected = late.run(*on(3), name="undisturbed").summary.weights_sha256
    often = late.run(*on(3, "run.evaluate_every=2 steps", "run.checkpoint.every=1 steps"), name="often")
    assert often.summary.weights_sha256 == expected
    late.run(*on(3, "run.steps=4"), inline=False)
    late.resume(*on(2), "run.steps=5", inline=False)
    late.resume(*on(1), "run.steps=8")
    resumed = late.resume(*on(2), "run.steps=11", inline=False)
    assert resumed.error is None and resumed.summary.weights_sha256 == expected


AVERAGED = (
    "data.shape=[2, 8, 8]",
    "model.components=[&vgg {block: vgg, channels: [6]}, *vgg, {block: linear, width: 7}]",
    "optimizer.ema_decay=0.9",
    "pipeline.micro_batch_norm=accept",
)


@pytest.mark.few
@pytest.mark.parametrize(
    "keys", [(), ("pipeline.activation_checkpointing=true", "optimizer.accumulate=2")], ids=["plain", "recomputed"]
)
def test_a_moving_average_takes_the_statistics_of_its_own_mini_batch(late: Workshop, keys: tuple[str, ...]) -> None:
    """Below the last stage an update comes after forwards of the next mini-batch, unless a cut comes before these."""
    keys = (*AVERAGED, *keys)
    runs = [late.run(*on(stages, *keys), name=f"on-{stages}") for stages in (1, 2, 3)]
    runs.append(late.run(*on(3, *keys, "run.evaluate_every=1 steps"), name="cut"))
    late.run(*on(3, *keys, "run.steps=5"))
    runs.append(late.resume(*on(2), "run.steps=11"))
    assert [run.error for run in runs] == [None] * len(runs)
    assert len({run.summary.weights_sha256 for run in runs}) == 1


BLOCKS = '''
import torch
from torch import nn
from torch.nn import functional


class Frozen(nn.Module):
    """Parameters that do not learn, one that is used twice, and batch normalisation."""

    def __init__(self, input, width):
        super().__init__()
        self.first, self.norm = nn.Linear(input.elements, width), nn.BatchNorm1d(width)
        self.turn = nn.Linear(width, width)
        self.first.bias.requires_grad_(False)

    def forward(self, s, mask=None):
        s = self.norm(self.first(s))
        return torch.tanh(self.turn(s) + functional.linear(s, self.turn.weight.t()))


class Kept(torch.autograd.Function):
    """Reads the parameter again when the gradient has come, without autograd's knowledge."""

    @staticmethod
    def forward(ctx, s, weight):
        ctx.weight, ctx.s = weight, s
        return s * weight

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.weight, (gradient * ctx.s).sum(0)


class Scaled(nn.Module):
    def __init__(self, input):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, input.elements))

    def forward(self, s, mask=None):
        return Kept.apply(s, self.weight)
'''
WAYS: dict[str, tuple[str, ...]] = {
    "own blocks": (
        "model.components.1={block: 'python:blocks.Frozen', width: 7}",
        "model.components.2={block: 'python:blocks.Scaled'}",
        "pipeline.micro_batch_norm=accept",
    ),
    "accumulated": ("optimizer={kind: adam, accumulate: 2, clip_norm: 0.3}",),
    "recomputed": ("pipeline.activation_checkpointing=true",),
    "mixed precision": ("run.precision=bf16",),
    "replicas": ("replicas.count=2", "pipeline.micro_batches=3"),
}


@pytest.mark.few
@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_training_has_the_same_bits_on_any_stages(late: Workshop, processes: None, way: str) -> None:
    """On one stage no mini-batch is under way while another one begins."""
    (late.folder / "blocks.py").write_text(BLOCKS)
    apart = ", ".join(["{block: linear, width: 7}"] * 3)
    late.spec.write_text(SPEC.replace("{block: linear, width: 7, repeat: 3}", apart))
    runs = [late.run(*on(stages, *WAYS[way]), name=f"on-{stages}") for stages in (1, 2, 3)]
    runs.append(late.run(*on(3, *WAYS[way]), inline=False))
    assert all(run.error is None for run in runs), [run.error for run in runs]
    assert len({run.summary.weights_sha256 for run in runs}) == 1


def test_another_delay_is_another_run(late: Workshop) -> None:
    late.run(*on(2), "run.steps=5")
    with pytest.raises(SpecError, match="an update late"):
        late.resume("pipeline.schedule=1f1b", "run.steps=6")
    run = late.resume("pipeline.schedule=1f1b", "run.steps=6", allow_change=True)
    assert run.error is None and run.summary.gradient_delay == 0
    run = late.resume("pipeline.schedule=2bw", "run.steps=7", allow_change=True)
    assert run.error is None and run.summary.gradient_delay == 1


def train(weight: nn.Parameter, delayed: DelayedWeights, updates: str) -> list[tuple[float, float]]:
    """The weight that each mini-batch is computed with, and W after it. An update adds 1 where `updates` has a u."""

    def step() -> None:
        with torch.no_grad():
            weight.add_(1.0)

    seen = []
    for number, each in enumerate(updates):
        delayed.use(number)
        computed_with = weight.item()
        delayed.update(step if each == "u" else None)
        seen.append((computed_with, weight.item()))
    return seen


def test_a_mini_batch_without_update_leaves_the_weights_as_they_are() -> None:
    """t counts updates."""

    def versions() -> tuple[nn.Parameter, DelayedWeights]:
        weight = nn.Parameter(torch.zeros(1))
        return weight, DelayedWeights([weight])

    assert train(*versions(), "uuu") == [(0.0, 1.0), (0.0, 2.0), (1.0, 3.0)]
    assert train(*versions(), ".u.u") == [(0.0, 0.0), (0.0, 1.0), (0.0, 1.0), (1.0, 2.0)]


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (("replicas.count=2", "replicas.synchronise={average_every: 2 steps}"), "replicas.synchronise"),
        (("pipeline.micro_batches=1",), "pipeline.micro_batches"),
    ],
)
def test_what_does_not_go_together_is_refused(late: Workshop, overrides: tuple[str, ...], key: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_spec(late.spec, (*on(2), *overrides))
    assert key in {problem.key for problem in caught.value.problems}


def test_what_no_backward_pass_needs_is_not_kept() -> None:
    """A forward that is computed again leaves no graph."""
    with keeping_versions([]):
        result = torch.tanh(torch.ones(3, requires_grad=True))
    kept = weakref.ref(result)
    del result
    assert kept() is None
