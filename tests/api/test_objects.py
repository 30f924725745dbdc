"""Modules, data and classes in place of names: what trains, what goes on, and what is refused with what to give."""

from __future__ import annotations

import copy
import importlib
import inspect
import json
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import pandas
import pytest
import torch
from PIL import Image
from scipy import sparse
from torch import nn
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    WeightedRandomSampler,
)

import alray
from alray.api.objects import taken
from alray.config.loading.load import load_spec
from alray.core.errors import RequestError
from alray.core.run_folder.records import EvaluationRecord, EventRecord, StepRecord, read
from alray.orchestrate import run_spec
from alray.report.compare import compare_runs
from alray.runtime.options import Options

from ..engine.conftest import Asked, Watching

X = torch.randn(60, 6, generator=torch.Generator().manual_seed(1))
Y = (X[:, 0] > 0).long() + (X[:, 1] > 0).long()
ONE_HOT = nn.functional.one_hot(Y, 3)
ROWS = torch.randint(9, (60, 5), generator=torch.Generator().manual_seed(2))
COST = {"forward_s": 1e-3, "backward_s": 1e-3, "update_s": 1e-3}
TINY: dict[str, Any] = {
    "data": {"batch_size": 10},
    "pipeline": {"costs": [COST, COST]},
    "run": {"steps": 8, "train": "never", "checkpoint": {"every": "3 steps", "keep": 9}},
    "inline": True,
    "progress": False,
}
NO_DATA = {key: value for key, value in TINY.items() if key != "data"}
NO_COSTS = {key: value for key, value in TINY.items() if key != "pipeline"}
PIPED: dict[str, Any] = {"method": "backpropagation", "stages": 2}
SPEC = {"name": "x", "method": "decoupled_greedy", "data": {"batch_size": 10}, "run": {"steps": 8}}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def net(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))


def with_outputs(outputs: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, outputs))


class Points(Dataset):  # type: ignore[type-arg]
    """As the tensors are, read one by one."""

    classes = ("none", "one", "both")

    def __init__(self, samples: torch.Tensor = X) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.samples[index], int(Y[index])


class Labelled(Points):
    """With other labels, whose classes have no names."""

    classes = None  # type: ignore[assignment]

    def __init__(self, labels: Any) -> None:
        super().__init__()
        self.labels = labels

    def __getitem__(self, index: int) -> tuple[torch.Tensor, Any]:  # type: ignore[override]
        return self.samples[index], self.labels[index]


class Signs(torch.optim.Optimizer):
    """Momentum, and steps of one length."""

    def __init__(self, params: Any, lr: float, weight_decay: float = 0.0, momentum: float = 0.5) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for weights in group["params"]:
                kept = self.state[weights].setdefault("kept", torch.zeros_like(weights))
                kept.mul_(group["momentum"]).add_(weights.grad)
                weights.sub_(group["lr"] * kept.sign())


class Root:
    def __init__(self, over: float) -> None:
        self.over = over

    def __call__(self, at: Any) -> float:
        return float(at.full / (1 + at.begun / self.over) ** 0.5)


def falling(at: Any, over: float) -> float:
    return Root(over)(at)


def own_block(input: Any) -> nn.Module:
    return nn.Linear(input[0], 8)


@pytest.fixture(autouse=True)
def of_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """The classes of this file have none, as those of a notebook's cells."""
    for each in (Points, Labelled, Draws, Told, Signs, Root, falling, own_block):
        monkeypatch.setattr(each, "__module__", "__main__")


def warnings_of(run: alray.Run) -> list[EventRecord]:
    records = read(run.folder / "records.jsonl")
    return [record for record in records if isinstance(record, EventRecord) and record.event == "warning"]


def sha256(run: alray.Run) -> str | None:
    return run.summary.weights_sha256


def test_what_a_program_has_trains_to_the_same_bits() -> None:
    """Of the same samples and first weights, however they are given."""
    first = alray.train(net(), (X, Y), test=(X, Y), **TINY)
    assert first.summary.accuracy is not None and first.summary.accuracy.test is not None
    assert sha256(
        alray.train(net(), DataLoader(Points(), batch_size=7, shuffle=True, drop_last=True), **TINY)
    ) == sha256(first)
    assert sha256(alray.train(net(), (X.double().numpy(), Y.numpy().astype("int16")), **TINY)) == sha256(first)
    assert sha256(alray.train(net(), (pandas.DataFrame(X.numpy()), Y.tolist()), **TINY)) == sha256(first)
    assert sha256(alray.train(net(), (X.tolist(), Y.tolist()), **TINY)) == sha256(first)
    assert sha256(alray.train(net(), Dictionaries(), **TINY)) == sha256(first)
    loader = DataLoader(Named(), collate_fn=without_mask, drop_last=True)
    assert sha256(alray.train(net(), loader, **TINY)) == sha256(first)
    assert sha256(alray.train(net(1), (X, Y), **TINY)) != sha256(first)
    again = alray.run(SPEC, model=net(), data={"train": (X, Y)}, inline=True, progress=False)
    assert sha256(again) == sha256(first)


def test_columns_of_flags_beside_numbers_are_numbers() -> None:
    """As `pandas.get_dummies` makes them."""
    frame = pandas.get_dummies(pandas.DataFrame(X.numpy()[:, :4]).assign(kind=list("ab") * 30))
    assert {each.kind for each in frame.dtypes} == {"f", "b"}
    numbers = torch.tensor(frame.to_numpy(dtype="float32"))
    first = alray.train(net(), (numbers, Y), **TINY)
    assert sha256(alray.train(net(), (frame, Y), **TINY)) == sha256(first)
    flags = frame.loc[:, ["kind_a", "kind_b"] * 3]
    assert sha256(alray.train(net(), (flags, Y), **TINY)) == sha256(
        alray.train(net(), (numbers[:, 4:].repeat(1, 3), Y), **TINY)
    )


def test_a_run_goes_on_with_its_objects_alone() -> None:
    """To the same bits, on other stages: with an optimizer and a rate of the program, too."""
    optimizer = {"kind": partial(Signs, momentum=0.8), "lr": 1e-2}
    keys = {**TINY, "optimizer": optimizer, "lr_schedule": {"kind": falling, "over": 5.0}}
    data = (Points(), (X, Y), None)
    whole = alray.train(net(), *data, output="whole", stages=1, **keys)
    rates = [each.lr for each in read(Path("whole/records.jsonl")) if isinstance(each, StepRecord)]
    assert rates[:2] == pytest.approx([1e-2, 1e-2 / (1 + 1 / 5) ** 0.5])
    options = Options(inline=True, run_dir=Path("stopped"), objects=whole.objects, stop_after=4)
    run_spec(whole.spec, ["pipeline.stages=2"], options, Watching(), Asked())
    resume = partial(alray.load_run("stopped").resume, inline=True, progress=False)
    parts = {"optimizer": Signs, "lr_schedule": falling}
    for wrong, said in (
        ({}, 'no file has them: `data`, `model`, `optimizer`, `lr_schedule`; .*stopped", data=..., model=..., optim'),
        ({"model": net(1), "data": data, **parts}, "this is not the model of this run"),
        ({"model": net(), "data": (Points(X + 1), (X, Y), None), **parts}, "not the data of this run: other samples"),
        ({"model": net(), "task": Root}, "has no object `task`: its objects are data=..., model=..."),
    ):
        with pytest.raises(RequestError, match=said):
            resume(**wrong)
    assert sha256(resume(model=net(), data=data, **parts)) == sha256(whole)


def test_a_run_is_evaluated_and_reproduced_with_its_objects() -> None:
    run = alray.train(net(), (X, Y), test=(X, Y), output="run", **TINY)
    test = run.summary.scores.test
    assert run.evaluate().scores[-1].test == test
    for call in (alray.load_run("run").evaluate, partial(alray.reproduce, "run", progress=False)):
        with pytest.raises(RequestError, match="no file has them: `data`, `model`"):
            call()
    objects = {"model": net(), "data": ((X, Y), None, (X, Y))}
    assert alray.load_run("run", **objects).evaluate().scores[-1].test == test
    assert alray.reproduce("run", progress=False, **objects).same
    for wrong, said in (
        ({**objects, "model": net(1)}, "not the model of the recorded run"),
        ({**objects, "data": (X + 1, Y)}, "not the data of the recorded run"),
    ):
        with pytest.raises(RequestError, match=said):
            alray.reproduce("run", progress=False, **wrong)


def test_what_no_file_has_is_exported_in_formats_that_can_be_opened() -> None:
    run = alray.train(net(), (X, Y), output="run", **TINY)
    with pytest.raises(RequestError, match=r"`object:model`, .*nothing could open these.*state_dict") as caught:
        run.export("safetensors")
    assert caught.value.problems[0].key == "format" and not Path("run/export").exists()
    assert Path(run.export("state_dict").file).is_file()


def test_a_model_that_another_version_has_hashed_is_not_compared() -> None:
    """Of equal hashes it is known that the model is the same; of others nothing is said but that nobody knows."""
    alray.train(net(), (X, Y), output="run", **TINY)
    objects = {"model": net(1), "data": (X, Y)}
    file = Path("run/environment.json")
    environment = json.loads(file.read_text(encoding="utf-8"))
    other = "2 cpython-39 torch-1.0:" + "0" * 64
    file.write_text(json.dumps({**environment, "model_sha256": other}), encoding="utf-8")
    with pytest.warns(UserWarning, match="whether this is the model of this run is not known"):
        assert alray.load_run("run", **objects).evaluate().scores
    run = alray.load_run("run", **objects).resume({"run.steps": 9}, inline=True, progress=False)
    assert run.summary.steps == 9


def test_what_has_a_file_is_named_in_the_spec(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the run goes on without its program."""
    monkeypatch.syspath_prepend(folder)
    text = (
        "from torch import nn\n\n"
        "def make(width):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.Linear(width, 10))\n"
    )
    Path("my_models.py").write_text(text, encoding="utf-8")
    make = importlib.import_module("my_models").make
    keys = {**TINY, "pipeline": {}, "optimizer": partial(torch.optim.SGD, lr=1e-2)}
    run = alray.train(partial(make, width=4), {"source": "digits"}, output="run", stages=1, **keys)
    assert run.spec.model.source == "python:my_models.make" and run.spec.model.arguments == {"width": 4}
    assert run.spec.optimizer.model_dump(include={"kind", "name", "lr"}) == {"kind": "torch", "name": "SGD", "lr": 1e-2}
    assert alray.load_run("run").resume({"run.steps": 9}, inline=True, progress=False).summary.steps == 9


@pytest.mark.parametrize(
    ("given", "lr"),
    [
        (torch.optim.Adagrad, 0.01),
        (partial(torch.optim.Adagrad, lr_decay=0.1), 0.01),
        ({"kind": torch.optim.Adagrad}, 0.01),
        ({"lr": 0.5, "kind": torch.optim.Adagrad}, 0.5),
        (partial(torch.optim.Adagrad, lr=0.5), 0.5),
        (Signs, None),
    ],
)
def test_an_optimizer_of_torch_has_the_rate_of_its_class_unless_one_is_given(given: Any, lr: float | None) -> None:
    made = taken({"optimizer": given}, None).spec["optimizer"]
    assert (made if isinstance(made, dict) else {}).get("lr") == lr


class NamedLikeModulesOfTorch(nn.Module):
    """Beside `torch`, cloudpickle takes `classes` and `ops` for `torch.classes` and `torch.ops`, which are no plain
    modules."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.ops, self.classes = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classes(torch.relu(self.ops(x)))


def test_a_module_may_have_layers_of_the_names_of_modules_of_torch() -> None:
    assert alray.train(NamedLikeModulesOfTorch(), (X, Y), method="backpropagation", stages=1, **NO_COSTS).summary.steps


def test_objects_within_objects_need_no_file_either(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage on another node does not find the user's modules."""
    monkeypatch.syspath_prepend(folder)
    Path("my_rows.py").write_text("class Rows(list):\n    pass\n", encoding="utf-8")
    rows = importlib.import_module("my_rows").Rows((X[number], int(Y[number])) for number in range(30))
    given = taken({}, None, data=Subset(rows, range(20))).objects.values["data"]
    Path("my_rows.py").unlink()
    monkeypatch.delitem(sys.modules, "my_rows")
    importlib.invalidate_caches()
    assert len(given.open("train")) == 20


class Dictionaries(Points):
    def __getitem__(self, index: int) -> Any:
        return {"x": self.samples[index], "y": int(Y[index])}


class Doubling(DataLoader[Any]):
    """What it gives is not what its data set has."""

    def __iter__(self) -> Any:
        return ((2 * samples, labels) for samples, labels in super().__iter__())


class Named(Points):
    def __getitem__(self, index: int) -> Any:
        return {"x": self.samples[index], "mask": torch.ones(6), "y": int(Y[index])}


def without_mask(entries: list[Any]) -> Any:
    return {name: torch.stack([torch.as_tensor(each[name]) for each in entries]) for name in ("x", "y")}


def padded(entries: list[Any]) -> Any:
    return torch.stack([sample for sample, _ in entries]) * len(entries), torch.tensor([label for _, label in entries])


def stacked(entries: list[Any]) -> Any:
    return torch.stack([sample for sample, _ in entries]), torch.tensor([label for _, label in entries])


class Rows(Points):
    """Whole numbers, as of tokens."""

    def __getitem__(self, index: int) -> Any:
        return ROWS[index].numpy().astype("int32"), int(Y[index])


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.first, self.last = nn.Embedding(9, 4), nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.table(x).mean(1)
        return self.last(self.first(x).relu())


class Draws(Points):
    """Opens what cannot be pickled and draws from a generator of its own, when it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn, self.opened = numpy.random.default_rng(0), None

    def __getitem__(self, index: int) -> Any:
        self.opened = self.opened or threading.Lock()
        return self.samples[index] + self.drawn.normal(), int(Y[index])


class Told(Points):
    """Says its labels, or classes, by attributes."""

    classes = ()

    def __init__(self, **attributes: Any) -> None:
        super().__init__()
        vars(self).update(attributes)


class Endless(IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Iterator[Any]:
        yield from zip(X, Y, strict=True)


class Sparse(nn.Module):
    """A graph whose edges are a sparse buffer."""

    edges: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.net = net()
        self.register_buffer("edges", torch.eye(6).to_sparse())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.net(torch.sparse.mm(self.edges, x.T).T)
        return scores


def lazy() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(8), nn.Linear(8, 3))


def scripted() -> nn.Module:
    return nn.Sequential(torch.jit.script(nn.Linear(6, 8)), nn.ReLU(), nn.Linear(8, 3))


def with_a_function() -> nn.Module:
    module = net()
    vars(module)["function"] = torch.jit.script(nn.functional.relu6)
    return module


def hooked() -> nn.Module:
    module = net()
    next(module.parameters()).register_hook(lambda gradient: 2 * gradient)
    return module


@pytest.mark.parametrize(
    ("call", "key", "said"),
    [
        (lambda: alray.run(nn.Linear(2, 2)), "spec", "give a file, a dict .* alray.train"),
        (lambda: train(nn.Linear(6, 3), (X, Y), method="decoupled_greedy"), "model.from", "cannot be cut"),
        (lambda: train(3, (X, Y)), "model", "give a torch module"),
        (
            lambda: train(nn.Transformer(6, 1, 1, 1, 6), (X, Y)),
            "model.from",
            "^model.from: .* missing 1 required positional argument: 'tgt'; give",
        ),
        (lambda: train(net(), (X, numpy.array(["a", "b"] * 30))), "data", "labels are no numbers.*numpy.unique"),
        (lambda: train(net(), (sparse.csr_matrix(X.numpy()), Y)), "data", "samples are no numbers"),
        (lambda: train(net(), (["good", "bad"] * 30, Y)), "data", "the samples are no numbers.*text_csv"),
        (
            lambda: train(net(), (pandas.DataFrame({"at": pandas.to_datetime([0] * 60), "kind": [0.5] * 60}), Y)),
            "data",
            "the samples are no numbers.*get_dummies",
        ),
        (lambda: train(with_outputs(1), (X, X[:, :1] / 0)), "data", "split `train` has the label .*number"),
        (lambda: train(nn.Conv2d(1, 3, 3), (torch.zeros(60, 4, 4), Y)), "model.from", r"samples.unsqueeze\(1\)"),
        (lambda: train(net(), ([[1.0, 2.0], [3.0]], [0, 1])), "data", "the samples are no numbers.*inhomogeneous"),
        (lambda: train(net(), {"data": X, "target": Y}), "data", "a dictionary of data, target; give"),
        (lambda: train(net(), (X, X[:, :2].long().abs() + 1)), "data", "no rows of 0 and 1.*dense_classification"),
        (lambda: train(net(), (X, Y), task="next_token"), "data", "next tokens of a text"),
        (lambda: train(lazy(), (X, Y)), "model.from", "lazy layer"),
        (lambda: train(Sparse(), (X, Y)), "model.from", r"computes with sparse tensors.*to_dense\(\)"),
        (lambda: train(net(), (X, Y), validation=0.1), "data", "the number 0.1; .*'validation_fraction': 0.1"),
        (lambda: train(nn.Conv2d(3, 3, 3), (torch.zeros(60, 4, 4, 3), Y)), "model.from", "as by samples.permute"),
        (lambda: train(hooked(), (X, Y)), "model", "`0.weight` has a hook on its gradient"),
        (lambda: train(with_a_function(), (X, Y)), "model", "cannot be sent to the stages: PickleError"),
        (lambda: train(scripted(), (X, Y)), "model", "`0` is of TorchScript.*without `torch.jit.script`"),
        (lambda: train(hooked, (X, Y)), "model.from", "`0.weight` has a hook on its gradient"),
        (lambda: train(net().double(), (X, Y)), "model", r"weights of torch.float64; give module.float\(\)"),
        (lambda: train(net(), (X[:, :5], Y)), "model.from", "does not take samples of"),
        (lambda: train(net(), (X.long(), Y)), "model.from", r"does not take samples of .*samples.float\(\)"),
        (lambda: train(net(), (X.long().abs(), Y)), "model.from", r"whole numbers from 0 to 3, .*samples.float\(\)"),
        (lambda: train(net(), (X.long()[:, None], Y)), "data", "samples of type torch.int64.*pictures as uint8"),
        (lambda: train(net(), (X, Y), data={"numbers": 3}), "data.numbers", "the samples are values"),
        (
            lambda: train(Words(), (ROWS, Y), data={"batch_size": 10, "numbers": 5}),
            "data",
            "and there are numbers from 0 to 4",
        ),
        (lambda: train(Words(), (ROWS + 3, Y)), "model.from", "an nn.Embedding needs a row for each"),
        (lambda: train(net(), (X[:0], Y[:0])), "data", "the train set is empty"),
        (lambda: train(net(), [(list(range(6)), 1)] * 9), "data", "not a pair of a tensor and a label; .*with_format"),
        (lambda: train(net(), [(X[0], X[1], 0)] * 60), "model.from", "takes 2 positional arguments but 3 were given"),
        (lambda: train(net(), [("good", "bad", 1)] * 9), "data", "'good', 'bad', 1.*not a pair"),
        (
            lambda: train(net(), (X, Y), method={"kind": "decoupled_greedy", "group": 2}),
            "method.group",
            "give fewer model.components",
        ),
        (lambda: train(net(), X), "data", r"a tensor without labels; give a pair \(samples, labels\)"),
        (lambda: alray.run(SPEC, model=net(), data=(Points(), Points())), "data", "two sets"),
        (lambda: train(net(), (X, Y[:9])), "data", r"shapes \[60, 6\] and \[9\]"),
        (lambda: train(nn.Bilinear(6, 6, 3), (X, Y)), "model.from", "argument: 'input2'; .*tuples"),
        (lambda: train(net(), Named()), "model.from", "unexpected keyword argument 'x'; .*leave out"),
        (lambda: train(net(), [((X[0], X[1]), 0)] * 60), "model.from", "takes 2 positional arguments but 3 were given"),
        (
            lambda: train(net(), (X, Y), lr_schedule=Root(3.0)),
            "lr_schedule",
            "this is a Root; .* its class or a function",
        ),
        (lambda: alray.plan(SPEC, {"data.source": Root(3.0)}, progress=False), "data.source", "this is a Root"),
        (
            lambda: train(net(), Told(classes=("a", "b", "c")), test=Told(classes=("b", "a", "c"))),
            "data",
            r"the test set has the classes \('b', 'a', 'c'\), and the train set",
        ),
        (lambda: train(net(), (X, Y + 0.5)), "model.with", r"1 target: floating-point .*: labels.long\(\)"),
        *(
            (lambda labels=labels: train(with_outputs(1), (X, labels)), "data", r"labels.long\(\).*task='regression'")
            for labels in (Y.float(), Y[:, None].double(), (Y > 0).float(), 2.0 * (Y > 0) - 1.0)
        ),
        (lambda: train(with_outputs(1), Labelled((Y > 0).double().numpy())), "data", "task='multi_label'"),
        (lambda: train(with_outputs(1), DataLoader(Labelled((Y > 0).float()))), "data", "task='multi_label'"),
        *(
            (lambda labels=labels: train(net(), labels), "data", r"labels.argmax\(1\).*task='multi_label'")
            for labels in (
                (X, ONE_HOT),
                (X, ONE_HOT.float()),
                (X.numpy(), pandas.get_dummies(pandas.Series(Y.numpy()))),
                Labelled(ONE_HOT),
                DataLoader(Labelled(ONE_HOT.bool())),
                Labelled(torch.stack([Y > 0, Y > 1, Y < 3], 1).float()),
            )
        ),
        (lambda: train(net(), (X, Y + 1)), "data", r"labels are 1 to 3, .*numpy.unique.*data=\{'classes': 4\}"),
        (lambda: train(net(), Labelled(2 * (Y > 0).long() - 1)), "data", r"labels are -1 to 1, .*numpy.unique"),
        (lambda: train(net(), (X, ["cat", "dog"] * 30)), "data", "labels are no numbers.*numpy.unique"),
        (lambda: train(net(), (["cat", "dog"] * 30, Y), validation=(X, Y)), "data", "samples are no numbers"),
        (lambda: train(with_outputs(2), (X, Y)), "model.with", r"gives \(2,\) .* 3 classes"),
        (lambda: train(net(), Endless()), "data", r"an IterableDataset, which has no length.*list\(it\)"),
        (lambda: train(net(), None), "data", "no training set"),
        (lambda: train(net(), DataLoader(Points(), collate_fn=padded)), "data", "it mixes or draws them"),
        (lambda: train(net(), drawn(sampler=WeightedRandomSampler([1.0] * 60, 60))), "data", "a sampler of its own"),
        (lambda: train(net(), drawn(batch_sampler=[[1, 2], [3]])), "data", "a sampler of its own"),
        (
            lambda: train(net(), drawn(batch_sampler=BatchSampler(WeightedRandomSampler([1.0] * 60, 60), 5, True))),
            "data",
            "a sampler of its own",
        ),
        (
            lambda: train(net(), drawn(sampler=RandomSampler(range(60), replacement=True))),
            "data",
            "a sampler of its own",
        ),
        (lambda: train(net(), drawn(sampler=SequentialSampler(range(50)))), "data", "a sampler of its own"),
        (lambda: train(net(), Doubling(Points())), "data", "a sampler of its own, or an `__iter__`"),
        (lambda: train(net(), DataLoader(Endless())), "data", "an IterableDataset, which has no length"),
        (
            lambda: train(ending_in(nn.BatchNorm1d(3)), (X, Y), **PIPED),
            "model.from",
            "has batch normalisation",
        ),
        (lambda: train(ending_in(Centred()), (X, Y), **PIPED), "model.from", "from the others of its mini-batch"),
        (
            lambda: train(nn.Sequential(weight_norm(nn.Linear(6, 8)), nn.ReLU(), nn.Linear(8, 3)), (X, Y)),
            "model",
            "(?s)parametrized modules is only supported through state_dict.* give a class",
        ),
        (lambda: train(net(), (X, Y), data={"bath_size": 3}), "data.source", "argument 'bath_size'"),
        (lambda: train(net(), (X, Y), data=(X, Y)), "data", "this is a list; give further keys"),
        (lambda: train(net(), (X, Y), data={"source": "digits"}), "data.source", "given already"),
        (lambda: train(net(), (X, Y), model={"componets": 3}), "model.componets", "did you mean `components`"),
        (lambda: train(net(), (X, Y), model={"components": [{"block": "mlp"}]}), "model.components", "no list of blo"),
        (
            lambda: alray.run({**SPEC, "data": {"source": "digits", "bath_size": 3}}, model=net(), data=(X, Y)),
            "data.source",
            "argument 'bath_size'",
        ),
        (
            lambda: train(net(), (X, Y), optimizer=torch.optim.SGD(net().parameters())),
            "optimizer",
            r"partial\(torch.optim.SGD",
        ),
        (
            lambda: train(net(), (X, Y), lr_schedule=torch.optim.lr_scheduler.StepLR),
            "lr_schedule",
            "function of a moment",
        ),
        (
            lambda: train(net(), (X, Y), data={"batch_size": 10, "classes": 4}),
            "model.with",
            "gives .3,. for a sample, and the data has 4",
        ),
    ],
)
def test_what_cannot_be_taken_is_told_with_what_to_give(call: Callable[[], Any], key: str, said: str) -> None:
    with pytest.raises(RequestError, match=said) as caught:
        call()
    assert [each.key for each in caught.value.problems] == [key]
    assert caught.value.problems[0].hint


class Looking(nn.Module):
    """Asks how many samples there are."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
        self.register_buffer("scale", torch.tensor(0.5), persistent=False)
        self.last = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * self.scale if len(x) else x
        for layer in self.layers:
            x = layer(x).relu()
        return self.last(x)


def test_a_resume_cuts_a_model_in_the_same_way() -> None:
    torch.manual_seed(0)
    model = Looking()
    keys = {**TINY, "pipeline": {"costs": [COST] * 3}, "run": {"steps": 4, "train": "never"}}
    whole = alray.train(model, (X, Y), stages=1, **keys)
    two = alray.train(model, (X, Y), stages=2, **{**keys, "run": {"steps": 2, "train": "never"}})
    assert len(two.plan.costs.components) == 3
    assert sha256(two.resume({"run.steps": 4}, inline=True, progress=False)) == sha256(whole)


class Dropped(Looking):
    """Its classifier draws."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 3))


class Transfer(nn.Module):
    """The features of a network that stands still, as most write it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.backbone = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            features = self.backbone(x)
        scores: torch.Tensor = self.head(features)
        return scores


@pytest.mark.parametrize("stages", [1, 2])
def test_features_under_no_grad_train_as_in_a_loop_of_torch(stages: int) -> None:
    expected = Transfer()
    optimizer = torch.optim.AdamW(expected.parameters(), lr=0.01, weight_decay=0.1)
    for _ in range(8):  # of all samples, whose order does not count
        optimizer.zero_grad()
        nn.functional.cross_entropy(expected(X), Y).backward()
        optimizer.step()
    asked = {**TINY, "data": {"batch_size": len(X), "validation_fraction": 0}}
    run = alray.train(
        Transfer(),
        (X, Y),
        method="backpropagation",
        optimizer={"kind": "adamw", "lr": 0.01, "weight_decay": 0.1},
        **{**asked, "pipeline": {"stages": stages, "costs": [COST] * 3}},
    )
    for name, value in run.model().state_dict().items():
        torch.testing.assert_close(value, expected.state_dict()[name])
        assert torch.equal(value, Transfer().state_dict()[name]) == name.startswith("backbone")


OFFSET = torch.linspace(-1.0, 1.0, 8)
"""A constant outside of any model."""


class Guarded(nn.Module):
    """Looks at its activations, and adds constants, in a layer and outside of it."""

    def __init__(self, depth: int = 1) -> None:
        super().__init__()
        self.first = Guarded(0) if depth else nn.Linear(6, 8)
        self.second, self.last = nn.Linear(8, 8), nn.Linear(8, 3 if depth else 8)
        self.scales = [torch.rand(8), torch.rand(8)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x) * self.scales[0] + OFFSET
        if torch.isnan(h).any() or (h.abs() > 1e6).any():
            raise ValueError("diverged")
        scores: torch.Tensor = self.last(self.second(h).relu() * self.scales[1])
        return scores


def test_what_looks_at_values_is_counted_and_trains_as_a_loop_of_torch() -> None:
    proof = alray.prove(Guarded(), (X, Y), ["data.batch_size=12"], mini_batches=2, stages=2, progress=False)
    assert proof.same and sum(way.verdict == "equal" for way in proof.ways) > 4


class Ponders(nn.Module):
    """Adaptive computation time (Graves 2016): each sample halts by itself."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.cell, self.halt, self.last = (
            nn.Linear(6, 8),
            nn.GRUCell(8, 8),
            nn.Linear(8, 1),
            nn.Linear(8, 3),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x).relu()
        state, mean, total = torch.zeros_like(x), torch.zeros_like(x), x.new_zeros(len(x))
        halted = torch.zeros(len(x), dtype=torch.bool)
        while not halted.all():  # by values
            state = self.cell(x, state)
            share = self.halt(state).sigmoid().squeeze(1)
            ends = ~halted & (total + share > 0.99)
            share = torch.where(ends, 1 - total, share).masked_fill(halted, 0.0)
            mean, total, halted = mean + share[:, None] * state, total + share, halted | ends
        return self.last(mean)


class Leaves(nn.Module):
    """Goes no deeper where all samples are sure."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers, self.exits = (nn.ModuleList(nn.Linear(6, width) for _ in range(4)) for width in (6, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores, sure = self.exits[0](x), torch.zeros(len(x), dtype=torch.bool)
        for layer, leave in zip(self.layers, self.exits, strict=True):
            x = x + layer(x).tanh()
            scores = torch.where(sure[:, None], scores, leave(x))
            sure = sure | (scores.softmax(1).amax(1) > 0.6)
            if sure.all():  # by values
                break
        return scores


class Settles(nn.Module):
    """A deep equilibrium: it iterates to a fixed point, and with large weights without an end."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.inner, self.last = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        with torch.no_grad():
            before, after = x, (self.inner(x) / 2 + x).tanh()
            while (after - before).norm().item() > 1e-3:  # by values
                before, after = after, (self.inner(after) / 2 + x).tanh()
        return self.last((self.inner(after) / 2 + x).tanh())


class Walks(nn.Module):
    """As many steps as the longest sample says."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.cell, self.last = nn.Linear(6, 8), nn.GRUCell(8, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        lengths = (3 * x[:, 0].abs()).long() + 1
        x = self.first(x)
        state = torch.zeros_like(x)
        for step in range(int(lengths.max())):  # by values
            state = torch.where((step < lengths)[:, None], self.cell(x, state), state)
        return self.last(state)


@pytest.mark.parametrize("make", [Ponders, Leaves, Settles, Walks])
def test_a_loop_that_ends_by_values_is_one_stage_of_backpropagation(make: Callable[[], nn.Module]) -> None:
    """To the bits of a plain loop. The refusal of a second stage, and of local losses, names its line."""
    proof = alray.prove(make(), (X, Y), ["data.batch_size=12"], mini_batches=2, stages=1, progress=False)
    assert proof.same and sum(way.verdict == "equal" for way in proof.ways) > 3
    lines, first = inspect.getsourcelines(make)
    line = first + next(number for number, text in enumerate(lines) if "# by values" in text)
    for keys in ({"stages": 2}, {"method": "decoupled_greedy"}):
        with pytest.raises(alray.AlrayError, match=rf"cut.* reads? .*\(line {line} of test_objects\.py\)"):
            train(make(), (X, Y), **{**keys, "pipeline": {}})


class Few(nn.Linear):
    """Takes few samples."""

    def __init__(self) -> None:
        super().__init__(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) > 3:
            raise ValueError("too many")
        return super().forward(x)


def test_an_error_of_a_model_that_is_one_component_names_it() -> None:
    with pytest.raises(alray.AlrayError, match="`object:model` raised ValueError in its `forward`: too many"):
        train(Few(), (X, Y), pipeline={})


class Noisy(nn.Module):
    """Draws in evaluation too, as a VAE."""

    def __init__(self) -> None:
        super().__init__()
        self.net = net()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.net(x)
        return scores + 0.1 * torch.randn_like(scores)


def test_a_model_that_draws_in_evaluation_is_given_with_its_trained_weights() -> None:
    run = train(Noisy(), (X, Y))
    found = run.model().state_dict()
    exported = torch.load(run.export("state_dict").file)
    assert found.keys() == exported.keys() and all(torch.equal(found[name], exported[name]) for name in found)
    assert not torch.equal(found["net.0.weight"], Noisy().state_dict()["net.0.weight"])


def test_a_copy_of_a_classifier_that_draws_trains_to_the_same_bits() -> None:
    """Whatever the other components of its stage have drawn before."""
    keys = {**TINY, "pipeline": {"costs": [COST] * 3}, "method": {"kind": "decoupled_greedy", "head": "model"}}
    torch.manual_seed(0)
    model = Dropped()
    runs = [alray.train(model, (X, Y), stages=stages, **keys) for stages in (1, 2, 3)]
    assert len({sha256(run) for run in runs}) == 1


def test_rows_of_whole_numbers_are_taken_as_they_are() -> None:
    """On any stages, as tensors or as a set; and the network in plain torch takes them."""
    torch.manual_seed(0)
    model = Words()
    run = alray.train(model, (ROWS, Y), test=(ROWS, Y), stages=1, **TINY)
    assert sha256(alray.train(model, (ROWS, Y), stages=2, **TINY)) == sha256(run)
    assert sha256(alray.train(model, Rows(), data={**TINY["data"], "numbers": 9}, **NO_DATA)) == sha256(run)
    network = run.network()
    assert network.header.sample.numbers == 9
    right = network(network.input.prepare(ROWS.int())).argmax(1) == Y
    assert float(right.double().mean()) == run.evaluate().scores[-1].test == run.summary.scores.test
    assert [tuple(each.shape) for each in run.activations(ROWS)] == [(60, 4), (60, 8)]
    whole = alray.train(model, (ROWS, Y), method="backpropagation", **TINY)
    torch.testing.assert_close(whole.model()(ROWS), whole.network()(ROWS))


def test_the_fastest_way_is_searched_for_objects() -> None:
    found = alray.map_ways(
        SPEC, model=net(), data=(X, Y), devices=[1, 2], micro_batches=[2], link="host", progress=False
    )
    assert {each["method"] for each in found.values["ways"]} == {"decoupled_greedy", "backpropagation"}


def test_layouts_are_searched_for_objects() -> None:
    keys = {"pipeline": {"costs": [COST, COST]}}
    found = alray.ways({**SPEC, **keys}, model=net(), data=(X, Y), devices="2x1GB", progress=False)
    assert found.best is not None and {row.stages for row in found.rows} == {1, 2}


def test_an_object_of_any_size_is_the_same_where_its_bytes_are_only_seen() -> None:
    """As in Ray's object store, which has them once."""
    given = taken({}, None, model=net()).objects.values["model"]
    buffers: list[pickle.PickleBuffer] = []
    seen = pickle.loads(pickle.dumps(given, 5, buffer_callback=buffers.append), buffers=buffers)
    assert len(buffers) == 1 and isinstance(seen.content, memoryview | pickle.PickleBuffer | bytes)
    for each in (seen, copy.deepcopy(seen), pickle.loads(pickle.dumps(seen, 4))):
        assert torch.equal(each.unpickled()[0].weight, net()[0].weight)  # type: ignore[index]


def train(module: Any, samples: Any, **keys: Any) -> alray.Run:
    return alray.train(module, samples, **{**TINY, "stages": 1, "method": "backpropagation", **keys})


class Centred(nn.Module):
    def forward(self, s: torch.Tensor) -> torch.Tensor:
        return s - s.mean(0)


def ending_in(last: nn.Module) -> nn.Sequential:
    return nn.Sequential(*net(), last)


def drawn(**keys: Any) -> DataLoader[Any]:
    return DataLoader(Points(), **keys)


def test_the_loader_of_the_training_set_says_the_batch_size() -> None:
    """And what a spec says of another source holds no longer."""
    loaders = [drawn(batch_size=size, shuffle=True) for size in (20, 30)]
    of_other = {"data": {"source": "synthetic", "shape": (2,)}}
    for train_set, size in ((loaders[0], 20), (drawn(batch_sampler=loaders[1].batch_sampler), 30), ((X, Y), None)):
        found = taken(of_other, None, data=(train_set, None, loaders[1])).spec
        assert found["data"].get("batch_size") == size and "shape" not in found["data"]


@pytest.mark.parametrize(
    ("keys", "spec", "last_batch"),
    [
        ({"shuffle": True}, {}, "keep"),
        ({"batch_sampler": BatchSampler(RandomSampler(range(60)), 8, drop_last=False)}, {}, "keep"),
        ({"batch_sampler": BatchSampler(RandomSampler(range(60)), 8, drop_last=True)}, {}, "drop"),
        ({"shuffle": True}, {"data": {"last_batch": "drop"}}, "drop"),
        ({"shuffle": True, "drop_last": True}, {"data": {"last_batch": "keep"}}, "keep"),
    ],
)
def test_the_loader_of_the_training_set_says_what_becomes_of_the_last_mini_batch(
    keys: dict[str, Any], spec: dict[str, Any], last_batch: str
) -> None:
    """Unless the spec does."""
    found = taken({**SPEC, **spec}, None, model=net(), data=drawn(**keys))
    assert load_spec(found.spec).spec.data.last_batch == last_batch
    assert found.objects.values["data"].notes == ()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (drawn(), "leaves their order"),
        ((torch.zeros(9, 4, dtype=torch.uint8), torch.arange(9) % 3), "divided by 255"),
        (Draws(), "is another one when it is read again"),
    ],
)
def test_what_a_run_makes_of_data_is_told(given: Any, said: str) -> None:
    (note,) = taken(SPEC, None, data=given).objects.values["data"].notes
    assert said in note


def test_components_that_the_number_of_stages_made_are_told() -> None:
    """Local losses train other weights with other components."""
    model = nn.Sequential(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8)), nn.ReLU(), nn.Linear(8, 3))
    for method, told in (("decoupled_greedy", 1), ("backpropagation", 0)):
        keys = {"method": method, "pipeline": {"stages": 2, "costs": [COST] * 2}}
        found, watching = taken({**SPEC, **keys}, None, model=model, data=(X, Y)), Watching()
        finished = run_spec(found.spec, [], Options(inline=True, pages=False, objects=found.objects), watching, Asked())
        assert finished.error is None
        assert ["unless model.components=2" in line for line in watching.notes].count(True) == told


def test_a_pipeline_tells_that_it_drops_the_last_mini_batch_of_a_loader() -> None:
    of_pipeline = {"method": "backpropagation", "pipeline": {"stages": 2, "costs": [COST, COST]}}
    found = taken({**SPEC, **of_pipeline}, None, model=net(), data=drawn(shuffle=True))
    options, watching = Options(inline=True, pages=False, objects=found.objects), Watching()
    finished = run_spec(found.spec, [], options, watching, Asked())
    assert finished.error is None and any("a smaller last one is dropped" in line for line in watching.notes)


def test_a_class_is_made_with_arguments_and_weights_of_the_spec(folder: Path) -> None:
    """A module that replaces a model of a spec keeps its own."""
    torch.save(net(1).state_dict(), "first.pt")
    run = train(net, (X, Y), model={"weights": "first.pt", "with": {"seed": 3}})
    assert run.spec.model.weights == str(folder / "first.pt")
    assert sha256(run) == sha256(train(net(1), (X, Y))) == sha256(train(net(), (X, Y), model={"weights": "first.pt"}))
    replaced = {"model": {"from": "torchvision:resnet18", "weights": "DEFAULT", "freeze": ["0"]}}
    for model in (net(), net, partial(net)):
        made = taken(replaced, None, model=model).spec["model"]
        assert made.keys() == {"from", "freeze"} and made["from"] != "torchvision:resnet18"
    again = {"model": {"from": f"python:{__name__}.net", "weights": "first.pt"}}  # the spec names the same function
    assert taken(again, None, model=net).spec["model"] == again["model"]


def test_a_class_whose_name_names_no_folder_trains() -> None:
    class _Net(nn.Sequential): ...

    assert train(_Net(*net()), (X, Y)).spec.name == "model"


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (X[:, :2], "regression"),
        (1000.0 * Y, "regression"),
        (torch.stack([Y > 0, Y > 1], 1), "multi_label"),
        (Y, ""),
        (Y > 0, ""),
    ],
)
def test_a_task_that_is_guessed_is_told(labels: torch.Tensor, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By one line, whatever shows the run; and by none where the spec says it."""
    for data in ((X, labels), Labelled(labels)):
        taken({}, None, data=data)
        lines = capsys.readouterr().err.splitlines()
        assert [f"the task is {said};" in line for line in lines] == [True] * bool(said)
    taken({"task": "regression"}, None, data=(X, labels))
    assert not capsys.readouterr().err


def test_labels_say_the_task_unless_the_spec_does() -> None:
    found = {
        name: taken({"task": name} if name != "none" else {}, None, data=(X, labels))
        for name, labels in (("none", X[:, :2]), ("regression", Y), ("multi_label", Y > 1))
    }
    assert [each.spec["task"] for each in found.values()] == ["regression", "regression", "multi_label"]
    assert [each.objects.values["data"].classes for each in found.values()] == [
        ("target_0", "target_1"),
        ("target_0",),
        ("label_0",),
    ]


def test_a_metric_that_a_set_does_not_define_is_told_and_chooses_nothing(folder: Path) -> None:
    """R² of equal targets is none, and neither is the best; a label that no sample of a set has is left out."""
    equal = (X, torch.full((60, 1), 0.1))
    tiny = {**TINY, "run": {**TINY["run"], "evaluate_every": "2 steps"}, "optimizer": {"lr": 1e-4}}
    run = alray.train(with_outputs(1), (X, X[:, :1]), equal, (X, X[:, :1]), task="regression", **tiny)
    evaluations = [record for record in read(run.folder / "records.jsonl") if isinstance(record, EvaluationRecord)]
    assert {record.validation for record in evaluations} == {None} and evaluations[-1].test is not None
    assert run.summary.best is None
    (told,) = warnings_of(run)
    assert told.message == "R² is not defined for the validation split: target `target_0` has one value"
    assert told.step == evaluations[0].step
    flags = torch.stack([Y > 0, Y > 1, Y < 0], 1).float()
    run = alray.train(net(), (X, flags), test=(X, flags), task="multi_label", **TINY)
    lines = [record.message for record in warnings_of(run)]
    assert ["label `label_2` has no sample in the test split" in line for line in lines] == [False, True]
    found = run.evaluate()
    assert found.notes == lines and found.scores[-1].test > 0.3


def test_objects_stand_in_the_spec_as_its_overrides_make_it() -> None:
    """Where it has no task, where a base has blocks, and where an override gives a section of theirs as a whole."""
    Path("blocks.yaml").write_text("{name: x, model: {components: [{block: linear, width: 4}]}}", encoding="utf-8")
    Path("spec.yaml").write_text("{name: x, data: {batch_size: 10}, run: {steps: 8}}", encoding="utf-8")
    task = {"kind": "regression", "metric": "mean_absolute_error"}
    for spec in ("spec.yaml", {"base": "blocks.yaml", "run": {"steps": 8}}):
        for labels in (X[:, :1], Y):
            found = taken(spec, {"task": task, "data": {"batch_size": 20}}, model=net(), data=(X, labels))
            made = load_spec(found.spec, found.overrides).spec
            assert found.objects.values["data"].label == "numbers"
            assert made.task.model_dump(include={"kind", "metric"}) == task
            assert (made.data.source, made.data.batch_size) == ("object:data", 20)
            assert (made.model.source, made.model.blocks) == ("object:model", ())


def test_labels_say_the_task_of_which_the_spec_has_other_keys() -> None:
    metric = {"metric": "mean_absolute_error"}
    for spec, overrides in ((SPEC, {"task.metric": metric["metric"]}), ({**SPEC, "task": metric}, {})):
        found = taken(spec, overrides, model=net(), data=(X, X[:, :1]))
        made = load_spec(found.spec, found.overrides).spec
        assert made.task.model_dump(include={"kind", "metric"}) == {"kind": "regression", **metric}


def test_an_override_of_objects_that_cannot_be_applied_is_refused() -> None:
    twice = ["data={batch_size: 20}", "data={batch_size: 30}"]
    for overrides, said in (
        ("data={batch_size: 20", "data: `{batch"),
        (twice, "twice"),
        ("data.batch_size", "key=value"),
    ):
        with pytest.raises(alray.AlrayError, match=said):
            alray.run(SPEC, overrides, model=net(), data=(X, Y), inline=True, progress=False)


@pytest.mark.parametrize("method", ["backpropagation", "decoupled_greedy", "associated_learning"])
def test_a_task_of_the_users_with_classes_brings_loss_and_metric_alone(method: str) -> None:
    """With those of classification it trains the same bits. Its data are given again: its labels are what they were."""
    text = (
        "from torch.nn.functional import cross_entropy\n"
        "from alray import Task, WholeTally\n\n"
        "class Mine(Task):\n"
        "    metrics = ('score',)\n\n"
        "    def loss(self, scores, target, label_smoothing=0.0):\n"
        "        return cross_entropy(scores, target)\n\n"
        "    def tally(self):\n"
        "        return Right()\n\n"
        "class Right(WholeTally):\n"
        "    def metric_of(self, scores, labels):\n"
        "        return float((scores.argmax(1) == labels).double().mean())\n"
    )
    Path("own_task.py").write_text(text, encoding="utf-8")
    own = {"task": {"kind": "python:own_task.Mine", "metric": "score"}}
    objects = {"model": net(), "data": ((X, Y), None, (X, Y))}
    like, run = (alray.run({**SPEC, "method": method, **task}, **objects, inline=True) for task in ({}, own))
    assert (sha256(run), run.summary.scores.test) == (sha256(like), like.summary.scores.test)
    assert alray.load_run(run.folder, **objects).evaluate().scores[-1].test == run.summary.scores.test


class Counts(alray.Task):
    """A task of one's own that is right; those below are not."""

    metrics = ("cost",)

    def loss(self, scores: torch.Tensor, target: torch.Tensor, label_smoothing: float = 0.0) -> torch.Tensor:
        return nn.functional.cross_entropy(scores, target)

    def tally(self) -> Any:
        raise AssertionError("it is not measured")


class Wants(Counts):
    def __init__(self, alpha: float) -> None:
        self.alpha = alpha


class Refuses(Counts):
    def __init__(self, *given: Any, **fields: Any) -> None:
        raise ValueError("not today")


class Alone(Counts):
    def __init__(self, section: Any, width: int, sample: tuple[int, ...]) -> None:
        self.alpha = 1.0


class Fails(Counts):
    def loss(self, scores: torch.Tensor, target: torch.Tensor, label_smoothing: float = 0.0) -> torch.Tensor:
        raise ValueError("no loss")


class Lists(Counts):
    metrics = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("kind", "key", "said", "at"),
    [
        (Wants, "task", "takes 2 positional arguments", Wants.__init__),
        (Refuses, "task", "not today", Refuses.__init__),
        (Alone, "task.kind", "constructor", Alone.__init__),
        (Fails, "task", "no loss", Fails.loss),
        (Lists, "task.metric", "`metrics`", None),
    ],
)
def test_a_task_of_ones_own_that_is_wrong_is_told_with_its_line(kind: type, key: str, said: str, at: Any) -> None:
    with pytest.raises(alray.AlrayError) as caught:
        alray.train(net(), (X, Y), task={"kind": kind, "metric": "cost"}, method="backpropagation", **NO_COSTS)
    (problem,) = caught.value.problems
    assert problem.key == key and said in str(problem)
    if at is not None:
        assert problem.file == __file__ and problem.line in range(
            at.__code__.co_firstlineno, at.__code__.co_firstlineno + 3
        )


def test_a_training_that_is_shown_ends_with_its_results(capsys: pytest.CaptureFixture[str]) -> None:
    run = alray.train(net(), (X, Y), **{**TINY, "progress": True})
    shown = capsys.readouterr().err.splitlines()
    hashed = next(number for number, line in enumerate(shown) if line.startswith("weights_sha256 "))
    assert str(run.summary.weights_sha256) in shown[hashed] and any("run.model()" in line for line in shown[hashed:])
    alray.train(net(), (X, Y), **TINY)
    assert capsys.readouterr().err == ""


def test_pictures_and_parts_of_a_set() -> None:
    """As torchvision gives them: pictures, and the names of the classes."""

    class Pictures(Points):
        def __getitem__(self, index: int) -> Any:
            return Image.fromarray(numpy.full((4, 5, 3), index, dtype="uint8")), numpy.int64(Y[index])

    data = taken({}, None, data=Subset(Pictures(), range(50))).objects.values["data"]
    sample, label = data.open("train")[7]
    assert data.classes == ("none", "one", "both")
    assert (tuple(sample.shape), sample.dtype, label) == ((3, 4, 5), torch.uint8, int(Y[7]))


def test_the_set_of_the_program_is_not_read() -> None:
    """It could not be sent any more, and would be another set where it is given again."""
    for make in (Draws, lambda: DataLoader(Draws(), collate_fn=stacked)):
        found = [taken({}, None, data=given).objects.values["data"] for given in (make(), make())]
        assert found[0].contents == found[1].contents


def test_labels_are_known_where_something_tells_them() -> None:
    """`targets` with a whole number for each sample; else all samples are read, where that is asked for."""
    keys = {"data": {"batch_size": 10, "split_by_classes": True}}
    task = {"kind": "classification", "class_weights": "balanced"}
    one_hot, texts = nn.functional.one_hot(Y), ["a"] * 60
    changed = Told(targets=[5] * 60, target_transform=abs)
    of_others = (Y + 5).tolist()  # of which the set makes its labels itself
    given = ((X, Y), Points(), changed, *(Told(targets=each) for each in (Y.tolist(), one_hot, texts, of_others)))
    runs = [train(net(), each, task=task, **keys) for each in given]
    assert len({sha256(run) for run in runs}) == 1
    part = taken({}, None, data=Subset(Told(targets=Y.tolist()), range(20, 30))).objects.values["data"].open("train")
    assert torch.equal(part.class_numbers(read=False), Y[20:30])
    part = taken({}, None, data=Subset(Told(targets=of_others, classes=None), range(30))).objects.values["data"]
    assert part.classes == ("0", "1", "2")
    copied = pickle.loads(pickle.dumps(part.open("train")))
    assert torch.equal(copied.class_numbers(read=False), Y[:30])


def test_scalars_and_arrays_are_values_of_a_spec() -> None:
    """In sections, as arguments and in overrides."""
    task = {"kind": "classification", "class_weights": torch.tensor([1.0, 2.0, 4.0])}
    optimizer = {"kind": "sgd", "lr": numpy.float64(0.125)}
    run = train(net(), (X, Y), task=task, optimizer=optimizer, stages=numpy.int64(1))
    assert run.spec.task.weights_of_classes == (1.0, 2.0, 4.0) and run.spec.optimizer.lr == 0.125
    overrides = {"run.steps": numpy.int64(3), "optimizer": {"lr": torch.tensor(0.5)}}
    plan = alray.plan(SPEC, overrides, model=net(), data=(X, Y), progress=False)
    assert plan.total_steps == 3


def test_tensors_are_kept_as_they_were_given() -> None:
    """What the program does with its own later is none of the run's business."""
    whole = alray.train(net(), (X, Y), **TINY)
    samples, labels = X.numpy().copy(), Y.clone()
    run = alray.train(net(), (samples, labels), **{**TINY, "run": {"steps": 4, "train": "never"}})
    samples /= 2
    labels.zero_()
    assert sha256(run.resume({"run.steps": 8}, inline=True, progress=False)) == sha256(whole)


def test_other_models_and_other_data_are_other_rows() -> None:
    """Though their specs name all of them alike. A model that each seed draws anew is the same one."""

    def trained(model: nn.Module, labels: torch.Tensor, seed: int) -> Path:
        return alray.train(model, (X, labels), seed=seed, **TINY).folder

    other = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    of_seeds = [trained(net(seed), Y, seed) for seed in range(2)]
    comparison = compare_runs([*of_seeds, trained(other, Y, 0), trained(net(), 2 - Y, 0)])
    assert [len(group.runs) for group in comparison.groups] == [2, 1, 1]
    assert set(comparison.differences) == {"data.source", "model.from"}
    assert len({group.label for group in comparison.groups}) == 3


def test_the_validation_set_of_a_run_is_not_needed_to_evaluate_another_set() -> None:
    model = net()
    run = alray.train(model, (X, Y), validation=(X, Y), test=(X, Y), **TINY)
    again = alray.load_run(run.folder, model=model, data=((X, Y), None, (X, Y)))
    assert again.evaluate().scores
    with pytest.raises(alray.AlrayError, match="0 validation samples, before 60"):
        again.resume({"run.steps": 9}, inline=True, progress=False)


class Documents:
    classes = ("few", "many")

    def open(self, split: str) -> list[tuple[str, int]]:
        return [(" ".join(f"w{number}" for number in range(each, each + 4)), each % 2) for each in range(40)]


def test_seeds_of_documents_are_one_row() -> None:
    """Though each has another vocabulary, which is that of its training split."""
    Local = type("Local", (Documents,), {"__module__": "__main__"})
    spec = {
        "name": "x",
        "method": "associated_learning",
        "data": {"batch_size": 10, "validation_fraction": 0.25, "text": {"max_tokens": 4}},
        "model": {"components": [{"block": "embedding", "dim": 4}, {"block": "linear", "width": 4}]},
        "run": {"steps": 4},
    }
    made = [alray.run(spec, {"seed": seed}, data=Local, inline=True, progress=False).folder for seed in range(2)]
    assert len({json.loads((each / "environment.json").read_text())["data_sha256"] for each in made}) == 2
    assert [len(group.runs) for group in compare_runs(made).groups] == [2]


class Promised(Points):
    def open(self, split: str) -> Points | None:
        return self if split == "train" else None


def test_sets_that_are_not_there_end_no_run() -> None:
    """A spec cannot tell whether objects bring them."""
    stopping = {"run": {"epochs": 9, "stop_at": {"metric": "test_accuracy", "above": 0.1}}}
    with pytest.raises(alray.AlrayError, match=r"run\.stop_at\.metric: there is no test set"):
        alray.train(net(), (X, Y), **{**TINY, **stopping})
    assert alray.train(net(), (X, Y), test=(X, Y), **{**TINY, **stopping}).summary.epochs < 9
    promised = {**SPEC["data"], "brings_validation": True}
    with pytest.raises(alray.AlrayError, match=r"data\.brings_validation: there is no validation set; return"):
        alray.run({**SPEC, "data": promised}, model=net(), data=Promised, inline=True, progress=False)


def test_the_hint_how_to_give_objects_again_is_python() -> None:
    """Also of one whose name is no argument's."""
    spec = {**SPEC, "model": {"components": [{"block": own_block}, {"block": own_block}]}}
    run = alray.run(spec, data=(X, Y), inline=True, progress=False)
    with pytest.raises(RequestError) as caught:
        alray.load_run(run.folder).resume({"run.steps": 9}, progress=False)
    call = caught.value.problems[0].hint.partition(": ")[2].partition(" resumes")[0]
    given = call.replace("data=...", "data=(X, Y)").replace("...", "own_block")
    resumed = eval(given, {"alray": alray, "X": X, "Y": Y, "own_block": own_block})
    assert resumed.resume({"run.steps": 9}, inline=True, progress=False).summary.steps == 9
