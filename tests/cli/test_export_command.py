"""An exported route predicts what its run predicts, without the run folder and its data; a graph needs no alray."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import onnxruntime
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file

from alray.cli.main import execute
from alray.data.batches import Batch, EvaluationBatches
from alray.inference.network import TrainedNetwork
from alray.inference.route_header import HEADER, parse_header

IMAGES = """\
name: images
data: {source: synthetic, shape: [3, 8, 8], classes: 4, samples: 60, batch_size: 12}
model:
  components:
    - {block: "python:own_blocks.Doubled"}
    - {block: residual, channels: 6, layers: 1, stride: 2}
    - {block: vgg, channels: [5], pool: true}
method: {kind: associated_learning, label_dim: 6}
pipeline: {costs: [&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost, *cost]}
run: {epochs: 1}
"""
OWN_BLOCKS = """\
from torch import nn


class Doubled(nn.Module):
    '''Writes on its input.'''

    def __init__(self, input):
        super().__init__()

    def forward(self, s, mask=None):
        return s.mul_(2.0)
"""
TEXT = """\
name: text
data: {source: text_csv, train: train.csv, batch_size: 6, text: {max_tokens: 9, vocabulary_size: 20}}
model:
  components:
    - {block: embedding, dim: 8}
    - {block: transformer, heads: 2, feedforward: 6, dropout: 0.2}
    - {block: lstm, hidden: 5, hand_on_state: true}
    - {block: lstm, hidden: 5, hand_on_state: true}
method: {kind: associated_learning, label_dim: 6}
pipeline: {costs: [&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost, *cost, *cost]}
run: {epochs: 1}
"""
LINES = ("the cat sat on the mat", "dogs run", "", "a cat and a dog ran to the mat and then they all sat down")


def documents(folder: Path) -> None:
    words = ["the", "a", "cat", "dog", "mat", "sat", "ran", "on", "to", "and", "dogs", "run"]
    drawn = torch.Generator().manual_seed(0)
    with (folder / "train.csv").open("w", newline="", encoding="utf-8") as file:
        for number in range(48):
            chosen = torch.randint(len(words), (2 + number % 7,), generator=drawn).tolist()
            csv.writer(file, quoting=csv.QUOTE_ALL).writerow([number % 2 + 1, " ".join(words[at] for at in chosen)])


def trained(folder: Path, text: str, *overrides: str) -> Path:
    """A run folder whose data is gone."""
    (folder / "x.yaml").write_text(text, encoding="utf-8")
    (folder / "own_blocks.py").write_text(OWN_BLOCKS, encoding="utf-8")
    documents(folder)
    assert execute(["run", str(folder / "x.yaml"), *overrides, "--inline", "--output", str(folder / "run")]) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("images"), IMAGES)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("text"), TEXT)


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    pixels = numpy.arange(12 * 10 * 3, dtype=numpy.uint8).reshape(12, 10, 3)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    return tmp_path / "a.png"


def batch_of(run: Path) -> tuple[TrainedNetwork, list[torch.Tensor]]:
    """The run's network, and a mini-batch of its data as a route takes it."""
    network = TrainedNetwork(run, allow_code=False)
    batch = next(iter(EvaluationBatches(network.workload.data, "validation")))
    return network, [batch.samples] if batch.mask is None else [batch.samples, batch.mask]


def padded(tensors: list[torch.Tensor], length: int | None) -> list[torch.Tensor]:
    """Rows made as long as a graph wants them; None: as they are."""
    if length is None:
        return tensors
    return [torch.nn.functional.pad(tensor, (0, length - tensor.shape[1])) for tensor in tensors]


@pytest.mark.few
@pytest.mark.parametrize("depth", [1, 3])
def test_an_exported_file_of_pictures_predicts_as_the_run(
    alray: Callable[..., Any], images: Path, picture: Path, tmp_path: Path, depth: int
) -> None:
    file = tmp_path / "moved" / "route.safetensors"
    said = alray("export", images, "--format", "safetensors", "--depth", depth, "--output", file, "--json").json
    assert (said["file"], said["depth"], said["inputs"]) == (str(file), depth, {"samples": ["batch", 3, 8, 8]})
    assert said["bytes"] == file.stat().st_size
    shutil.copy(images / "code" / "own_blocks.py", file.parent)
    of_run = alray("predict", images, picture, "--depth", depth, "--json").json
    assert alray("predict", file, picture, "--allow-code", "--json").json["predictions"] == of_run["predictions"]


@pytest.mark.full
def test_an_exported_file_of_text_needs_neither_run_nor_data(
    alray: Callable[..., Any], text: Path, tmp_path: Path
) -> None:
    of_run = alray("predict", text, *LINES, "--json").json
    written = alray("export", text, "--format=safetensors").out.splitlines()
    moved = tmp_path / "route.safetensors"
    shutil.move(text / "export" / "route-4.safetensors", moved)
    data = text.parent / "train.csv"
    data.rename(data.with_suffix(".gone"))
    try:
        of_file = alray("predict", moved, *LINES, "--json").json
    finally:
        data.with_suffix(".gone").rename(data)
    assert of_file["predictions"] == of_run["predictions"]
    assert [entry["input"] for entry in of_file["predictions"]] == list(LINES)
    assert written[-1] == "takes samples [batch, T], mask [batch, T]"


@pytest.mark.full
def test_an_exported_file_prepares_a_document_as_in_training(alray: Callable[..., Any], tmp_path: Path) -> None:
    run = trained(tmp_path, TEXT, "data.text.prepare=thesis")
    given, prepared = ("The CAT<br/>, and the dogs <i>ran</i>!", "cat dogs ran")
    file = tmp_path / "route.safetensors"
    assert alray("export", run, "--format", "safetensors", "--output", file).code == 0
    answers = [alray("predict", where, given, prepared, "--json").json["predictions"] for where in (run, file)]
    assert answers[0] == answers[1]
    raw, bare = ({key: value for key, value in answer.items() if key != "input"} for answer in answers[0])
    assert raw == bare


@pytest.mark.few
@pytest.mark.parametrize("method", ["backpropagation", "supervised_contrastive"])
def test_methods_without_a_label_chain(alray: Callable[..., Any], picture: Path, tmp_path: Path, method: str) -> None:
    run = trained(tmp_path, IMAGES, f"method={method}")
    assert alray("export", run, "--format", "safetensors").code == 0
    shutil.copy(run / "code" / "own_blocks.py", run / "export")
    file = run / "export" / "route-3.safetensors"
    answers = (alray("predict", given, picture, "--allow-code", "--json").json for given in (file, run))
    of_file, of_run = (answer["predictions"] for answer in answers)
    assert of_file == of_run
    with safe_open(file, "pt") as opened:
        assert not [name for name in opened.keys() if name.split(".")[0] not in ("f", "turn")]  # noqa: SIM118
    refused = alray("export", run, "--format", "safetensors", "--depth", "2", "--json")
    assert (refused.code, refused.json["errors"][0]["key"]) == (2, "--depth")


@pytest.mark.few
def test_a_probability_of_scores_that_were_fitted_to_0_and_1(
    alray: Callable[..., Any], picture: Path, tmp_path: Path
) -> None:
    """Of the run and of the exported file."""
    run = trained(tmp_path, IMAGES, "method.first_label_loss=mse")
    assert alray("export", run, "--format", "safetensors").code == 0
    shutil.copy(run / "code" / "own_blocks.py", run / "export")
    files = (run, run / "export" / "route-3.safetensors")
    answers = (alray("predict", given, picture, "--allow-code", "--json").json for given in files)
    of_run, of_file = (answer["predictions"] for answer in answers)
    network = TrainedNetwork(run, allow_code=True)
    (_, sample), *_ = network.inputs.read(str(picture))
    scores = network.scores(Batch(0, sample.unsqueeze(0), torch.zeros(1, dtype=torch.int64), None), 0)[-1][0].double()
    assert of_run[0]["score"] == pytest.approx(float(scores.max() / scores[scores > 0].sum()))
    assert of_file == of_run


GRAPHS = [
    ("images", None, 3),
    pytest.param("text", None, 2, marks=pytest.mark.full),
    pytest.param("text", 9, 4, marks=pytest.mark.full),
]


@pytest.mark.full
@pytest.mark.parametrize(("which", "length", "depth"), GRAPHS)
def test_a_graph_of_torch_gives_the_runs_scores(
    request: pytest.FixtureRequest, alray: Callable[..., Any], tmp_path: Path, which: str, length: int, depth: int
) -> None:
    run = request.getfixturevalue(which)
    file = tmp_path / "route.pt2"
    said = alray("export", run, "--format", "torch_export", "--depth", depth, "--output", file, "--json").json
    network, tensors = batch_of(run)
    if which == "text":
        assert said["inputs"]["mask"] == ["batch", length or "T"]
    extra = {f"{HEADER}.json": ""}
    graph = torch.export.load(file, extra_files=extra).module()
    assert parse_header(extra[f"{HEADER}.json"], "").classes == network.workload.data.classes
    with torch.no_grad():
        for rows in (tensors, [tensor[:1] for tensor in tensors]):
            expected = network.route(depth)(*[tensor.clone() for tensor in rows])
            torch.testing.assert_close(graph(*padded(rows, length)), expected, rtol=0, atol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize(("which", "length", "depth"), GRAPHS)
def test_a_graph_of_onnx_gives_the_runs_scores(
    request: pytest.FixtureRequest, alray: Callable[..., Any], tmp_path: Path, which: str, length: int, depth: int
) -> None:
    run = request.getfixturevalue(which)
    file = tmp_path / "route.onnx"
    assert alray("export", run, "--format", "onnx", "--depth", depth, "--output", file).code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["route.onnx"]
    network, tensors = batch_of(run)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    assert parse_header(session.get_modelmeta().custom_metadata_map[HEADER], "").depth == depth
    assert [given.name for given in session.get_inputs()] == ["samples", "mask"][: len(tensors)]
    assert {given.shape[0] for given in (*session.get_inputs(), *session.get_outputs())} == {"batch"}
    for rows in (tensors, [tensor[:1] for tensor in tensors]):
        given = padded(rows, length)
        fed = {entry.name: tensor.numpy() for entry, tensor in zip(session.get_inputs(), given, strict=True)}
        (scores,) = session.run(["scores"], fed)
        with torch.no_grad():
            expected = network.route(depth)(*[tensor.clone() for tensor in rows])
        torch.testing.assert_close(torch.from_numpy(scores), expected, rtol=0, atol=1e-5)


@pytest.mark.full
def test_a_missing_extra_is_named(
    alray: Callable[..., Any], text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib

    found = importlib.import_module

    def without(name: str, package: str | None = None) -> Any:
        if name == "onnxscript":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return found(name, package)

    monkeypatch.setattr(importlib, "import_module", without)
    refused = alray("export", text, "--format", "onnx", "--depth", "1", "--output", tmp_path / "x.onnx", "--json")
    (problem,) = refused.json["errors"]
    assert (refused.code, problem["key"], problem["hint"]) == (2, "--format", "pip install 'alray[onnx]'")
    assert list(tmp_path.iterdir()) == []


def test_a_block_that_cannot_be_traced_is_told(alray: Callable[..., Any], tmp_path: Path) -> None:
    run = trained(tmp_path, IMAGES)
    code = run / "code" / "own_blocks.py"
    code.write_text(
        OWN_BLOCKS.replace("return", "assert s.is_meta or float(s.sum()) < 1e9\n        return"), encoding="utf-8"
    )
    refused = alray("export", run, "--format", "torch_export", "--allow-code", "--json")
    (problem,) = refused.json["errors"]
    assert (refused.code, problem["key"], "safetensors" in problem["hint"]) == (2, "--format", True)


def test_requests_that_are_wrong(
    alray: Callable[..., Any], images: Path, picture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def problem(*arguments: str | Path) -> dict[str, Any]:
        said = alray(*arguments, "--json")
        assert said.code == 2
        return said.json["errors"][0]

    def file_of(*arguments: str | Path) -> Path:
        return Path(problem(*arguments)["file"])

    assert problem("export", images, "--format", "zip")["key"] == "--format"
    assert file_of("export", images, "--format", "safetensors", "--output", picture / "x") == picture / "x"
    file = tmp_path / "route.safetensors"
    alray("export", images, "--format", "safetensors", "--depth", "2", "--output", file)
    (tmp_path / "own_blocks.py").write_text(OWN_BLOCKS, encoding="utf-8")
    assert problem("predict", file, picture)["key"] == "--allow-code"
    assert problem("predict", file, picture, "--allow-code", "--depth", "1")["key"] == "--depth"
    assert file_of("predict", file, tmp_path / "b.png", "--allow-code") == tmp_path / "b.png"
    assert file_of("predict", picture, picture) == picture
    with safe_open(file, "pt") as opened:
        weights, header = {name: opened.get_tensor(name) for name in opened.keys()}, opened.metadata()[HEADER]  # noqa: SIM118
    save_file(weights, file)
    assert "`alray export`" in problem("predict", file, picture)["message"]
    save_file(weights, file, metadata={HEADER: json.dumps({**json.loads(header), "format": 2})})
    assert "header" in problem("predict", file, picture)["message"]
    weights.pop("h.0.0.weight")
    save_file(weights, file, metadata={HEADER: header})
    assert "weights do not fit" in problem("predict", file, picture, "--allow-code")["message"]
