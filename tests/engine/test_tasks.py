"""Regression and multi-label classification train, stream, resume, stop and are evaluated as classification is."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from alray.config.loading.load import load_spec
from alray.core.errors import SpecError
from alray.core.run_folder.records import EvaluationRecord, StepRecord, read
from alray.data.batches import EvaluationBatches
from alray.inference.export import export_route
from alray.inference.exported import ExportedRoute
from alray.inference.network import TrainedNetwork
from alray.inference.requests import evaluate
from alray.orchestrate import Finished

from .conftest import Workshop
from .test_same_bits import same

SPEC = """
name: tasks
seed: 3
data: {source: synthetic, shape: [6], classes: 3, samples: 150, batch_size: 16, validation_fraction: 0.2}
task: {kind: regression}
model: {components: [{block: mlp, widths: [9], repeat: 4}]}
method: {kind: backpropagation}
optimizer: {kind: adam, lr: 0.01}
pipeline: {costs: [&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost, *cost, *cost]}
run: {epochs: 2, evaluate_every: 4 steps, checkpoint: {every: 5 steps, keep: 50}}
"""
METHODS = {
    "bp": ("method={kind: backpropagation}", "pipeline.schedule=gpipe", "pipeline.micro_batches=2"),
    "al": ("method={kind: associated_learning, label_dim: 8}",),
    "dgl": ("method={kind: decoupled_greedy}",),
}
TASKS = ("regression", "multi_label")


@pytest.fixture
def tasks(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path, SPEC)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Finished]:
    """`whole(task, method)`: on one stage, run once for all tests; what every other way of running it must equal."""
    workshop = Workshop(tmp_path_factory.mktemp("tasks"), SPEC)

    @cache
    def run(task: str, name: str) -> Finished:
        return workshop.run(f"task.kind={task}", *METHODS[name], "pipeline.stages=1", name=f"{task}_{name}")

    return run


@pytest.mark.few
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("method", METHODS)
def test_two_stages_and_a_resume_on_one_give_the_same_bits(tasks, whole, processes, task, method) -> None:
    keys = (f"task.kind={task}", *METHODS[method])
    tasks.run(*keys, "pipeline.stages=2", "run.epochs=1", inline=False)
    run = tasks.resume("run.epochs=2", "pipeline.stages=1")
    same(run, whole(task, method))
    assert run.summary.metric == {"regression": "r2", "multi_label": "mean_average_precision"}[task]
    assert run.summary.scores.train is not None


@pytest.mark.few
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("task", "by_scikit_learn"),
    [
        ("{kind: regression, metric: r2}", "r2_score"),
    ],
)
def test_metrics_are_those_of_scikit_learn(tasks, method, task, by_scikit_learn) -> None:
    """The set is evaluated in several mini-batches, the last of them smaller."""
    from sklearn import metrics

    run = tasks.run(f"task={task}", *METHODS[method], "pipeline.stages=1", "run.epochs=1")
    trained = TrainedNetwork(tasks.folder / "run", allow_code=False)
    for split in ("train", "validation", "test"):
        batches = list(EvaluationBatches(trained.workload.data, split))
        assert len(batches) > 1
        labels = torch.cat([batch.labels for batch in batches])
        for place, depth in enumerate(trained.depths):
            with torch.no_grad():
                scores = torch.cat([trained.scores(batch, number)[place] for number, batch in enumerate(batches)])
            wanted = getattr(metrics, by_scikit_learn)(labels.double().numpy(), scores.double().numpy())
            (found,) = [each for each in run.summary.scores_per_depth if each.depth == depth]
            assert getattr(found, split) == pytest.approx(wanted, abs=1e-9)


def test_losses_have_their_own_names(tasks, whole) -> None:
    names = {
        ("regression", "bp"): {"squared_error"},
        ("regression", "al"): {"associated", "autoencoder"},
        ("multi_label", "dgl"): {"binary_cross_entropy"},
    }
    for key, wanted in names.items():
        run = whole(*key)
        records = read(Path(run.summary.run_dir) / "records.jsonl")
        losses = [record.losses for record in records if isinstance(record, StepRecord)]
        assert losses and all(set(each) == wanted for of in losses for each in of.values())


# --- What chooses by a metric ---


def test_the_best_error_is_the_lowest(tasks) -> None:
    run = tasks.run("task={kind: regression, metric: mean_squared_error}", *METHODS["al"], "run.epochs=4")
    records = [each for each in read(tasks.folder / "run" / "records.jsonl") if isinstance(each, EvaluationRecord)]
    assert {record.metric for record in records} == {"mean_squared_error"}
    lowest = min(records, key=lambda record: (record.validation, record.step))
    assert (run.summary.best.step, run.summary.best.validation) == (lowest.step, lowest.validation)
    assert len({record.validation for record in records}) > 1
    evaluated = evaluate(TrainedNetwork(tasks.folder / "run", allow_code=False))
    assert evaluated.metric.lowest
    assert evaluated.scores[-1].validation == run.summary.scores.validation


def test_a_run_stops_at_an_error(tasks) -> None:
    bound = "run.stop_at={metric: train_mean_squared_error, below: 0.9}"
    run = tasks.run("task={kind: regression, metric: mean_squared_error}", bound, "run.epochs=50")
    assert run.summary.steps < 50 * 7
    assert run.summary.scores.train <= 0.9


# --- Standardised targets ---


@pytest.fixture
def table(tmp_path: Path) -> Workshop:
    """A regression on a table of two targets in different units."""
    workshop = Workshop(tmp_path, SPEC)
    draws = np.random.default_rng(0)
    samples = draws.normal(size=(120, 4))
    targets = np.stack([150 + 40 * samples[:, 0], 0.002 * samples[:, 1] - 1], axis=1)
    rows = [",".join(f"{value:.7g}" for value in row) for row in np.concatenate([samples, targets], axis=1)]
    for name, chosen in (("train", rows[:100]), ("test", rows[100:])):
        (tmp_path / f"{name}.csv").write_text("\n".join(["a,b,c,d,height,slope", *chosen]) + "\n")
    data = "{source: table, train: train.csv, test: test.csv, label_columns: [height, slope], batch_size: 10}"
    lines = [line for line in SPEC.splitlines() if not line.startswith("data:")]
    workshop.spec.write_text("\n".join([*lines, f"data: {data}"]) + "\n")
    return workshop


@pytest.mark.full
def test_metrics_and_predictions_are_in_the_units_of_the_targets(table) -> None:
    from sklearn.metrics import mean_absolute_error

    run = table.run("task={kind: regression, metric: mean_absolute_error}", "run.epochs=30", *METHODS["dgl"])
    assert run.summary.classes == ["height", "slope"]
    trained = TrainedNetwork(table.folder / "run", allow_code=False)
    data = trained.workload.data
    (batch,) = [*EvaluationBatches(data, "test")][:1]
    truth = np.loadtxt(table.folder / "test.csv", delimiter=",", skiprows=1)[:, 4:]
    np.testing.assert_allclose(data.in_units(batch.labels), truth[:10], rtol=1e-5)
    with torch.no_grad():
        scores = [trained.scores(each, number)[-1] for number, each in enumerate(EvaluationBatches(data, "test"))]
    predicted = data.in_units(torch.cat(scores)).numpy()
    assert run.summary.scores.test == pytest.approx(mean_absolute_error(truth, predicted), rel=1e-5)
    assert abs(predicted[:, 0] - truth[:, 0]).mean() < 20.0
    file = Path(export_route(trained, None, "safetensors", table.folder / "route.safetensors").file)
    header = ExportedRoute(file, allow_code=False).header
    assert header.targets is not None and header.classes == ("height", "slope")
    np.testing.assert_allclose(header.targets.in_units(torch.cat(scores)), predicted)
    samples = torch.cat([each.samples for each in EvaluationBatches(data, "test")])
    graph = torch.export.load(export_route(trained, None, "torch_export", table.folder / "route.pt2").file).module()
    np.testing.assert_allclose(graph(samples).detach(), predicted, rtol=1e-5)
    onnx = export_route(trained, None, "onnx", table.folder / "route.onnx").file
    session = onnxruntime.InferenceSession(onnx, providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"samples": samples.numpy()})[0], predicted, rtol=1e-4)


def test_targets_may_stay_as_they_are(table) -> None:
    run = table.run("task={kind: regression, standardise: false}", "run.epochs=1")
    data = TrainedNetwork(table.folder / "run", allow_code=False).workload.data
    assert data.train.target_normalisation is None and run.error is None


# --- What is refused ---


@pytest.mark.parametrize(
    ("key", "overrides"),
    [
        ("method.kind", ["method={kind: supervised_contrastive}"]),
        ("method.label_smoothing", ["method.label_smoothing=0.1"]),
        ("method.first_label_loss", ["method={kind: associated_learning, first_label_loss: cross_entropy}"]),
        ("data.source", ["data={source: digits}"]),
        ("run.stop_at.metric", ["run.stop_at={metric: validation_accuracy, above: 0.5}"]),
        ("run.stop_at.above", ["task={kind: multi_label}", "run.stop_at={above: 1.5}"]),
        ("data.label_columns", ["task={kind: classification}", "data={source: table, train: a.csv, label_columns: x}"]),
        ("data.columns", ["data={source: table, train: a.csv, label_columns: [x, y], columns: [z, y]}"]),
        ("data.header", ["data={source: table, train: a.csv, label_columns: x, header: false}"]),
    ],
)
def test_what_does_not_suit_the_task_is_refused_at_its_key(tasks, key, overrides) -> None:
    with pytest.raises(SpecError) as refused:
        load_spec(tasks.spec, overrides)
    assert key in [problem.key for problem in refused.value.problems]


OWN_METHOD = """
from alray.parts.methods.decoupled_greedy.method import GreedyMethod


class Classes(GreedyMethod):
    def __init__(self, task):
        super().__init__(task, head="auto", label_smoothing=0.0)


class Any(Classes):
    tasks = ("classification", "regression")
"""


def test_a_method_of_ones_own_says_what_it_learns(tasks, whole) -> None:
    (tasks.folder / "own.py").write_text(OWN_METHOD)
    with pytest.raises(SpecError) as refused:
        tasks.run("method={kind: 'python:own.Classes'}")
    assert [problem.key for problem in refused.value.problems] == ["method.kind"]
    assert "regression" in str(refused.value)
    run = tasks.run("method={kind: 'python:own.Any'}", "pipeline.stages=1")
    assert run.summary.weights_sha256 == whole("regression", "dgl").summary.weights_sha256
