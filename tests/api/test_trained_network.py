"""The trained network as torch modules: `run.network()`, `run.model()` and `run.activations()`."""

from __future__ import annotations

import copy
import csv
import io
import pickle
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from safetensors.torch import load_file

import alray
from alray.core.errors import RequestError, SpecError
from alray.data.batches import EvaluationBatches
from alray.inference.exported import ExportedRoute
from alray.inference.network import TrainedNetwork

from ..pairwise import first_alone

OWN_CLASSES = Path(__file__).parents[2] / "docs" / "extending.md"
_COST = {"forward_s": 1e-3, "backward_s": 1e-3, "update_s": 1e-3}
MAPS = {
    "data": {"source": "synthetic", "shape": [2, 8, 8], "classes": 4, "samples": 60, "batch_size": 8},
    "model": {"components": [{"block": "vgg", "channels": [4]}, {"block": "mlp", "widths": [8]}]},
}
OWN = """\
from torch import nn
from torch.nn import functional


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.more = nn.Conv2d(4, 4, 3, padding=1)
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        x = functional.relu(self.norm(self.conv(x)))
        return self.fc(functional.relu(self.more(x)).mean((2, 3)))


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(2, 6), nn.Linear(6, 6), nn.Linear(6, 1)

    def forward(self, x):
        x = functional.relu(self.first(x))
        return self.last(functional.relu(self.second(x)))


class Listed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(2))
        self.last = nn.Linear(2, 1)

    def forward(self, x):
        for layer in self.layers:
            x = functional.relu(layer(x))
        return self.last(x)
"""
OF_OWN = {"data": MAPS["data"], "model": {"from": "python:own_net.Net", "components": 2}}
ROWS = {
    "data": {
        "source": "table",
        "train": "rows.csv",
        "label_columns": ["y"],
        "batch_size": 8,
        "validation_fraction": 0.3,
    },
    "task": {"kind": "regression"},
    "model": {"components": [{"block": "mlp", "widths": [6]}] * 2},
}
TEXTS = {
    "data": {
        "source": "text_csv",
        "train": "texts.csv",
        "batch_size": 8,
        "validation_fraction": 0.3,
        "text": {"max_tokens": 9},
    },
    "model": {"components": [{"block": "embedding", "dim": 4}, {"block": "lstm", "hidden": 4}]},
}
WINDOWS = {
    "data": {"source": "text", "folder": "windows", "context": 8, "batch_size": 6, "validation_fraction": 0.3},
    "task": {"kind": "next_token"},
    "model": {"components": [{"block": "transformer", "causal": True, "dim": 8, "heads": 2, "feedforward": 8}] * 2},
}
AL = {"kind": "associated_learning", "label_dim": 4}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any] | str]] = {
    "rows, al": (ROWS, AL),
    "own class, bp": (OF_OWN, "backpropagation"),
    "maps, noprop": (MAPS, {"kind": "noprop", "hidden": 6}),
    "texts, dgl": (TEXTS, "decoupled_greedy"),
    "windows, solo": (WINDOWS, {"kind": "solo", "copy_every": 3, "heads": 2}),
    "windows, al": (WINDOWS, AL),
    "own class, al": (OF_OWN, AL),
    "rows, bp": (ROWS, "backpropagation"),
    **{
        f"maps, {kind}": (MAPS, {"kind": kind})
        for kind in (
            "auglocal",
            "backpropagation",
            "channel_goodness",
            "decoupled_greedy",
            "decoupled_information",
            "forward_forward",
            "local_error_signals",
            "mono_forward",
            "supervised_contrastive",
        )
    },
}
PRECISIONS = {"rows, al": "float64", "own class, bp": "bf16"}


@pytest.fixture
def beside_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    """The current folder, with the files of the specs."""
    monkeypatch.chdir(tmp_path)
    drawn = random.Random(0)
    Path("own_net.py").write_text(OWN)
    rows = [[drawn.gauss(0, 1), drawn.gauss(5, 3)] for _ in range(60)]
    with Path("rows.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["a", "b", "y"], *([*row, 150 + 40 * sum(row)] for row in rows)])
    words = ["the", "cat", "dog", "mat", "sat", "ran"]
    with Path("texts.csv").open("w", newline="") as file:
        csv.writer(file).writerows([1 + n % 2, " ".join(drawn.choices(words, k=2 + n % 7))] for n in range(40))
    Path("windows").mkdir()
    for number in range(6):
        Path("windows", f"{number}.txt").write_text(" ".join(drawn.choices(words, k=12)))


def trained(
    case: dict[str, Any], method: dict[str, Any] | str, precision: str = "float32", output: str = "run"
) -> alray.Run:
    spec = {
        "name": "tiny",
        **case,
        "method": method,
        "optimizer": {"lr": 1e-2},
        "pipeline": {"costs": [_COST] * 2},
        "run": {"steps": 6, "precision": precision},
    }
    return alray.run(spec, inline=True, output=output, progress=False)


@pytest.mark.parametrize("case", first_alone(CASES, first=3))
def test_a_network_predicts_what_an_evaluation_measures(
    beside_data: None, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """At every depth, to the last digit; a copy does, and one from its bytes, and one with its weights from a file."""
    run = trained(*CASES[case], PRECISIONS.get(case, "float32"))
    of_run = TrainedNetwork(run.folder, allow_code=False)
    data = of_run.workload.data
    split = "test" if data.test is not None else "validation"
    measured = {each.depth: getattr(each, split) for each in of_run.evaluate([split])}
    monkeypatch.setattr("alray.runtime.workload.open_data", None)  # it is not opened
    for depth, wanted in measured.items():
        network = run.network(depth)
        assert network.depth == depth and not network.training
        again = pickle.loads(pickle.dumps(network))
        file = io.BytesIO()
        torch.save(network.state_dict(), file)
        emptied = copy.deepcopy(network)
        with torch.no_grad():
            for each in emptied.state_dict().values():
                each.zero_()
        emptied.load_state_dict(torch.load(io.BytesIO(file.getvalue()), weights_only=True))
        tally = data.task.tally()
        for number, batch in enumerate(EvaluationBatches(data, split)):
            with torch.no_grad():
                scores = network(batch.samples)
                route = of_run.scores(batch, number)[of_run.depths.index(depth)]
                assert torch.equal(scores, data.in_units(route))
                assert all(torch.equal(other(batch.samples), scores) for other in (again, emptied))
            tally.take(data.task.measured(scores, batch.labels), data.in_units(batch.labels))
        assert tally.value() == wanted


OF_CLASSES = {
    "data": {"source": "table", "train": "classes.csv", "label_column": "k", "batch_size": 8},
    "model": ROWS["model"],
}
OF_LABELS = {
    "data": {"source": "table", "train": "labels.csv", "label_columns": ["k", "l"], "batch_size": 8},
    "task": {"kind": "multi_label"},
    "model": ROWS["model"],
}
FITTED = {**AL, "first_label_loss": "mse"}


def fractions(scores: torch.Tensor) -> torch.Tensor:
    limited = scores.double().clamp(0, 1)
    return limited / limited.sum(1, keepdim=True)


@pytest.mark.parametrize(
    ("case", "method", "shares"),
    [
        (OF_CLASSES, {"kind": "python:one_hot.OneHot", "pool": 4}, fractions),
        (OF_CLASSES, FITTED, fractions),
        (OF_CLASSES, "decoupled_greedy", lambda scores: scores.double().softmax(1)),
        (OF_LABELS, FITTED, lambda scores: scores.double().clamp(0, 1)),
        (OF_LABELS, AL, lambda scores: scores.double().sigmoid()),
    ],
    ids=["own", "mse of classes", "softmax", "mse of labels", "sigmoid"],
)
def test_shares_are_what_predictions_show(
    beside_data: None, case: dict[str, Any], method: Any, shares: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    (text,) = re.findall(r"`one_hot\.py`:\n\n```python\n(.*?)```", OWN_CLASSES.read_text(encoding="utf-8"), re.DOTALL)
    Path("one_hot.py").write_text(text)
    drawn = random.Random(1)
    rows = [[drawn.gauss(0, 1), drawn.gauss(0, 1), drawn.randrange(2), drawn.randrange(2)] for _ in range(40)]
    for name, columns in (("classes.csv", "abk"), ("labels.csv", "abkl")):
        with Path(name).open("w", newline="") as file:
            csv.writer(file).writerows([columns, *(row[: len(columns)] for row in rows)])
    run = trained(case, method)
    network, file = run.network(), case["data"]["train"]
    samples = network.input.prepare(torch.tensor([row[:2] for row in rows], dtype=torch.float64))
    with torch.no_grad():
        scores = network(samples)
    torch.testing.assert_close(network.shares(scores), shares(scores))
    exported = ExportedRoute(Path(run.export("safetensors", output="route.safetensors").file), allow_code=True)
    again = pickle.loads(pickle.dumps(network)).shares(scores)
    for predictions in (run.predict(file), exported.predict([file], None)):
        for given, of_network in zip(predictions, again.tolist(), strict=True):
            assert (
                list(given.scores.values()) == pytest.approx(of_network, abs=1e-5)
                if case is OF_LABELS
                else given.score == pytest.approx(max(of_network), abs=1e-5)
            )


def test_targets_have_no_shares(beside_data: None) -> None:
    network = trained(ROWS, AL).network()
    with pytest.raises(RequestError, match="no shares"):
        network.shares(network(torch.zeros(2, 2)))


def test_raw_rows_are_prepared_as_in_training_and_a_file_has_the_weights(beside_data: None) -> None:
    """Without the file of the training."""
    run = trained(ROWS, AL)
    network = run.network()
    Path("rows.csv").rename("others.csv")
    rows = numpy.loadtxt("others.csv", delimiter=",", skiprows=1)[:, :2]
    with torch.no_grad():
        found = network(network.input.prepare(torch.from_numpy(rows)))
        of_run = [each.values["y"] for each in run.predict("others.csv")]
        assert found[:, 0].tolist() == pytest.approx(of_run, rel=1e-6)
    written = load_file(run.export("safetensors").file)
    assert all(torch.equal(written.pop(name), value) for name, value in network.state_dict().items()) and not written


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_an_evaluation_standardises_as_in_training_whatever_the_training_file_holds_now(
    beside_data: None, task: str
) -> None:
    """The test set is where it was: no metric of it changes with the file of the training."""
    rows = numpy.loadtxt("rows.csv", delimiter=",", skiprows=1)
    if task == "classification":
        rows[:, 2] = rows[:, 2] > numpy.median(rows[:, 2])

    def write(name: str, rows: Any) -> None:
        numpy.savetxt(name, rows, "%.8g", ",", header="a,b,y", comments="")

    write("rows.csv", rows[:40])
    write("test.csv", rows[40:])
    label = {"label_columns": ["y"]} if task == "regression" else {"label_columns": None, "label_column": "y"}
    data = {**ROWS["data"], **label, "test": "test.csv", "validation_fraction": 0.0}
    run = trained({**ROWS, "data": data, "task": {"kind": task}}, AL)
    before, predicted = run.evaluate(), run.predict("test.csv")
    rows[:, :2] *= 10
    if task == "regression":
        rows[:, 2] -= 500
    write("rows.csv", rows[:40])
    assert run.trained().evaluate().scores == before.scores
    of_run = TrainedNetwork(run.folder, allow_code=False)
    assert of_run.predict(["test.csv"], None) == predicted


def test_a_class_of_ones_own_comes_back_where_it_predicts(beside_data: None) -> None:
    samples = torch.randn(5, 2, 8, 8)
    methods = {"bp": "backpropagation", "dgl": {"kind": "decoupled_greedy", "head": {"pool": 1}}}
    for name, method in methods.items():
        run = trained(OF_OWN, method, output=name)
        model = run.model()
        assert (type(model).__name__, model.training) == ("Net", False)
        with torch.no_grad():
            torch.testing.assert_close(model(samples), run.network()(samples), rtol=0, atol=1e-5)
        again = pickle.loads(pickle.dumps(model))
        assert torch.equal(again(samples), model(samples))


def test_a_class_whose_last_layer_was_not_trained_is_refused(beside_data: None) -> None:
    run = trained(OF_OWN, AL)
    with pytest.raises(RequestError, match=r"not the model's `fc`.*network\(\)"):
        run.model()


def test_a_copy_of_the_models_last_layer_reads_every_depth_and_the_class_comes_back(beside_data: None) -> None:
    layers = {**ROWS, "model": {"from": "python:own_net.Layers", "components": 2}}
    run = trained(layers, {"kind": "decoupled_greedy", "head": "model"})
    samples, targets = torch.randn(5, 2), run.network().header.targets
    with torch.no_grad():
        model = run.model()
        scores = torch.stack([targets.in_units(each) for each in model(samples)])
        torch.testing.assert_close(scores, run.network()(samples))
        early = run.network(1)
        assert not torch.equal(early.turn.last.weight, model.last.weight)
        of_run = [each.values["y"] for each in run.predict("rows.csv", depth=1)]
        rows = torch.from_numpy(numpy.loadtxt("rows.csv", delimiter=",", skiprows=1)[:, :2])
        assert early(early.input.prepare(rows))[:, 0].tolist() == pytest.approx(of_run, rel=1e-6)
    written = torch.load(run.export("state_dict").file, weights_only=True)
    assert torch.equal(written["alray.readout.1.head.last.weight"], early.turn.last.weight)
    for case in (MAPS, OF_OWN):  # blocks have no such layer, and the first part gives it maps
        with pytest.raises(SpecError) as caught:
            trained(case, {"kind": "decoupled_greedy", "head": "model"}, output="more")
        assert caught.value.problems[0].key == "method.head"


def test_a_group_of_blocks_is_one_part_of_the_network(beside_data: None) -> None:
    blocks = [*MAPS["model"]["components"], {"block": "mlp", "widths": [6]}]
    run = trained({**MAPS, "model": {"components": blocks}}, {"kind": "decoupled_greedy", "group": 2})
    samples = torch.randn(5, 2, 8, 8)
    assert [tuple(each.shape) for each in run.activations(samples)] == [(5, 8), (5, 6)]
    for depth in (None, 1):
        with torch.no_grad():
            assert run.network(depth)(samples).shape == (5, 4)
    with pytest.raises(RequestError, match=r"alray's blocks.*network\(\)"):
        run.model()


def test_activations_are_what_each_component_passes_on(beside_data: None) -> None:
    run = trained(MAPS, "decoupled_greedy")
    samples = numpy.random.default_rng(0).normal(size=(5, 2, 8, 8))
    network = run.network()
    first, second = run.activations(samples)
    with torch.no_grad():
        given = torch.from_numpy(samples).float()
        assert torch.equal(first, network.f[0](given)) and torch.equal(second, network.f[1](first))
        assert torch.equal(network.turn(second), network(given))
    assert [tuple(each.shape) for each in run.activations(given, 1)] == [(5, 4, 8, 8)]
    with pytest.raises(RequestError, match=r"alray's blocks.*network\(\)"):
        run.model()
    for wrong in (samples[0], samples.astype(int)):
        with pytest.raises(RequestError) as caught:
            run.activations(wrong)  # type: ignore[arg-type]
        assert caught.value.problems[0].key == "batch"


def test_activations_are_told_as_they_were_passed_on(beside_data: None) -> None:
    """Though the next block changes them where they lie."""
    text = (
        "from torch import nn\n\n"
        "def first(input):\n    return nn.Sequential(nn.Flatten(), nn.Linear(128, 8))\n\n"
        "def second(input):\n    return nn.ReLU(inplace=True)\n"
    )
    Path("in_place.py").write_text(text, encoding="utf-8")
    blocks = [{"block": f"python:in_place.{name}"} for name in ("first", "second")]
    run = trained({**MAPS, "model": {"components": blocks}}, "backpropagation")
    first, second = run.activations(torch.randn(5, 2, 8, 8))
    assert (first < 0).any() and torch.equal(second, first.relu())
