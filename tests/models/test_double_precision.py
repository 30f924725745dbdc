"""`run.precision: float64`: every method, block and task computes in double precision, and nothing in a narrower type.

A narrow number may be copied into a wide one: samples come from files in float32, and so are random numbers drawn, so
that a run in float64 begins with the weights of one in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from alray.config.sections.method import METHODS
from alray.data.batches import Batch, TrainBatches
from alray.data.opening import open_data
from alray.models.network import Network
from alray.models.shape import Shape
from alray.runtime.stage.assemble import work_of

from ..mini_batches import backward, forward

_MOVES = {"_to_copy", "copy_", "slice", "view", "_unsafe_view", "select", "detach", "alias", "split", "expand"}
PICTURES = "model.components=[{block: vgg, channels: [4], pool: true}, {block: vgg, channels: [8]}]"
VECTORS = "model.components=[{block: mlp, widths: [8]}, {block: mlp, widths: [8]}]"
BLOCKS = {
    "vgg": (PICTURES, Shape((2, 8, 8))),
    "residual": (
        "model.components=[{block: stem, channels: 4}, {block: residual, channels: 8, layers: 1}]",
        Shape((2, 8, 8)),
    ),
    "mlp": (VECTORS, Shape((2, 8, 8))),
    "linear": ("model.components=[{block: linear, width: 8}, {block: linear, width: 4}]", Shape((20,))),
    "lstm": (
        "model.components=[{block: embedding, dim: 6}, {block: lstm, hidden: 6}]",
        Shape((5,), torch.int64, words=("<pad>", "<unk>", "a", "b", "c")),
    ),
    "transformer": (
        "model.components=[{block: embedding, dim: 6}, {block: transformer, heads: 2, feedforward: 8, dropout: 0.1}]",
        Shape((5,), torch.int64, words=("<pad>", "<unk>", "a", "b", "c")),
    ),
}
ROTARY = (
    "model.components=[{block: transformer, dim: 8, heads: 2, feedforward: 12, causal: true, positions: rotary, "
    "norm: rms, activation: swiglu}, {block: transformer, heads: 2, feedforward: 12, causal: true, positions: rotary}]"
)
TOKENS = Shape((6,), torch.int64, tokens=7)
OF_TASK = {
    "regression": "task={kind: regression}",
    "multi_label": "task={kind: multi_label}",
    "mixed": "data={source: synthetic, shape: [20], classes: 4, samples: 60, batch_size: 8, mix: {mixup: 0.4}}",
}
OPTIMIZERS = {
    "sgd": "{kind: sgd, lr: 0.01, momentum: 0.9}",
    "adamw": "{kind: adamw, lr: 0.01}",
    "lars": "{kind: lars, lr: 0.01}",
    "lamb": "{kind: lamb, lr: 0.01}",
}


class Narrow(TorchDispatchMode):
    """Notes the operations that compute with numbers narrower than float64, or that make some from wider ones."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        given = _narrow((args, kwargs))
        computed = name not in _MOVES and any(each.ndim for each in given)  # torch counts updates without a dimension
        lowered = _narrow(result) and _floats((args, kwargs)) and not given
        if computed or lowered:
            self.found.add(name)
        return result


def _floats(value: Any) -> list[torch.Tensor]:
    return [each for each in tree_leaves(value) if isinstance(each, torch.Tensor) and each.is_floating_point()]


def _narrow(value: Any) -> list[torch.Tensor]:
    return [each for each in _floats(value) if each.dtype != torch.float64 and each.numel()]


def samples_of(sample: Shape) -> torch.Tensor:
    if sample.dtype == torch.int64:
        return torch.randint(2, sample.tokens or len(sample.words or ()), (8, *sample))
    return torch.randn(8, *sample)


def labels_of(network: Network) -> torch.Tensor:
    """As the data give them."""
    learning = network.method.task.learning
    if learning.target_dtype == torch.int64:
        return torch.randint(0, 4, (8, *learning.target_shape))
    return torch.rand(8, *learning.target_shape).round().to(learning.target_dtype)


def require_wide(network: Network, sample: Shape) -> None:
    """Two mini-batches of training, and an evaluation, on one stage."""
    stage = work_of([network.component(index, "cpu") for index in range(len(network))])
    labels = labels_of(network)
    batch = Batch(0, samples_of(sample), labels)
    learning = network.method.task.learning
    classes = labels.argmax(1) if labels.ndim == 2 else labels
    with Narrow() as narrow:
        for step in (1, 2):
            forward(stage, batch.with_labels(torch.device("cpu"), network.dtype), step)
            losses = backward(stage)
            stage.update(0.01, step=step)
        stage.evaluation_mode(True)
        _, routes = stage.infer_up(batch.inputs(torch.device("cpu"), network.dtype), 2, 0)
        found = [learning.measured(scores, labels) for scores in routes]
        for each in found:
            assert each.dtype == torch.float64
            tally = learning.tally()
            tally.take(each, classes if learning.label_shape == () else labels)
            assert tally.value() == tally.value()
    assert not narrow.found
    assert all(loss.dtype == torch.float64 for of in losses.values() for loss in of.values())


def test_what_computes_in_float32_is_found() -> None:
    wide, narrow = torch.ones(2, dtype=torch.float64), torch.ones(2)
    with Narrow() as seen:
        _ = narrow.to(torch.float64)[:1] + wide[:1]
    assert not seen.found
    with Narrow() as seen:
        _ = (wide + narrow).float()
    assert seen.found == {"add", "_to_copy"}


@pytest.mark.few
@pytest.mark.parametrize(
    "kind", [kind for kind, section in METHODS.sections.items() if "classification" in section.known_tasks()]
)
def test_every_method(make_network: Callable[..., Network], kind: str) -> None:
    require_wide(make_network(f"method={kind}", PICTURES, "run.precision=float64"), Shape((2, 8, 8)))


@pytest.mark.parametrize("loss", ["{kind: forward_forward, loss: symba, prediction: activities}", "{kind: noprop}"])
def test_further_forms_of_methods(make_network: Callable[..., Network], loss: str) -> None:
    network = make_network(f"method={loss}", VECTORS, "run.precision=float64", sample=(20,))
    require_wide(network, Shape((20,)))


@pytest.mark.few
@pytest.mark.parametrize("block", BLOCKS)
def test_every_block(make_network: Callable[..., Network], block: str) -> None:
    components, sample = BLOCKS[block]
    require_wide(make_network("method=decoupled_greedy", components, "run.precision=float64", sample=sample), sample)


@pytest.mark.few
@pytest.mark.parametrize("kind", ["associated_learning", "decoupled_greedy", "backpropagation", "solo"])
@pytest.mark.parametrize("metric", ["bits_per_byte", "top_1"])
def test_the_next_token_with_rotary_positions(make_network: Callable[..., Network], kind: str, metric: str) -> None:
    task = f"task={{kind: next_token, metric: {metric}}}"
    data = "data={source: text, docstrings: true, tokens: bytes, context: 6, batch_size: 8}"
    keys = (f"method={kind}", ROTARY, task, data, "run.precision=float64")
    network = make_network(*keys, sample=TOKENS, classes=7)
    if network.measures_where_routes_end:
        assert network.comes_down(0).dtype == torch.float64
    require_wide(network, TOKENS)


@pytest.mark.few
@pytest.mark.parametrize("method", ["associated_learning", "decoupled_greedy", "backpropagation"])
@pytest.mark.parametrize("task", OF_TASK)
def test_every_task(make_network: Callable[..., Network], task: str, method: str) -> None:
    network = make_network(f"method={method}", OF_TASK[task], VECTORS, "run.precision=float64", sample=(20,))
    assert {shape.dtype for shape in network.method.given_labels.values()} == {torch.float64}
    require_wide(network, Shape((20,)))


@pytest.mark.few
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer(make_network: Callable[..., Network], optimizer: str) -> None:
    section = f"optimizer={OPTIMIZERS[optimizer]}"
    network = make_network("method=decoupled_greedy", section, VECTORS, "run.precision=float64", sample=(20,))
    require_wide(network, Shape((20,)))


@pytest.mark.parametrize("mix", ["{mixup: 0.4}", "{cutmix: 1.0}"])
def test_samples_are_mixed_in_the_type_of_the_network(load_small: Callable[..., Any], mix: str) -> None:
    """Shares of classes add up to 1 in double precision, and are not those that float32 can hold."""
    data = open_data(load_small(f"data.mix={mix}").spec.data, seed=1, load=pytest.fail)
    options = {"seed": 1, "start_step": 0, "end_step": 6, "workers": 0}
    with TrainBatches(data, **options, dtype=torch.float64) as batches:
        wide = [batch for batch in batches if (batch.labels > 0).sum(1).max() > 1]
    with TrainBatches(data, **options) as batches:
        assert {batch.labels.dtype for batch in batches} == {torch.float32}
    assert {each.dtype for batch in wide for each in (batch.samples, batch.labels)} == {torch.float64}
    labels = torch.cat([batch.labels for batch in wide])
    torch.testing.assert_close(labels.sum(1), torch.ones(len(labels), dtype=torch.float64), rtol=1e-15, atol=0)
    assert mix == "{cutmix: 1.0}" or not torch.equal(labels, labels.float().double())
