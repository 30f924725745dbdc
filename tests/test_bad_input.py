"""What a user does wrong, through the real command line: the whole of what is said, and the exit code."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from PIL import Image
from torchvision import datasets

from alray.cli.main import execute
from alray.run import memory

SPEC = """\
name: tiny
data: {source: synthetic, shape: [1, 4, 4], classes: 3, samples: 100, batch_size: 10}
model:
  components:
    - {block: vgg, channels: [2]}
    - {block: vgg, channels: [2]}
    - {block: vgg, channels: [4], pool: true}
method: {kind: associated_learning, label_dim: 4}
pipeline: {stages: 2, costs: [&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost, *cost]}
run: {epochs: 1}
"""
MEASURED = "pipeline.costs=null"
"""Without given costs the probe reads the first mini-batch, before there is a run."""
DATA = "{source: synthetic, shape: [1, 4, 4], classes: 3, samples: 100, batch_size: 10}"
IMAGES = "{source: image_folder, train: images, image_size: 4, batch_size: 4}"
SOURCE = """\
import torch


class Samples:
    classes = ("cat", "dog")

    def open(self, split):
        return [(torch.zeros(1, 4, 4), number % 3) for number in range(30)] if split == "train" else None
"""


class Said(NamedTuple):
    """What one command line came to."""

    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the test's own, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def alray(capsys: pytest.CaptureFixture[str], one_thread: None) -> Callable[..., Said]:
    """`alray(*arguments)`: one command line."""

    def run(*arguments: str) -> Said:
        capsys.readouterr()
        code = execute(list(arguments))
        return Said(code, *capsys.readouterr())

    return run


@pytest.fixture
def refusal(alray: Callable[..., Said]) -> Callable[..., str]:
    """`refusal(*overrides, text=SPEC)`: what `alray run x.yaml` says; it ends with 2 and leaves no run behind."""

    def run(*overrides: str, text: str | bytes = SPEC, file: str = "x.yaml") -> str:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_bytes(text if isinstance(text, bytes) else text.encode())
        said = alray("run", file, *overrides, "--inline")
        assert (said.code, said.out) == (2, "")
        assert not (Path("runs").exists() and list(Path("runs").glob("*/summary.json")))
        return said.err

    return run


def spec(old: str, new: str) -> str:
    """The spec with one place changed."""
    assert SPEC.count(old) == 1
    return SPEC.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("stages: 2", "stagse: 2", "x.yaml:9: pipeline.stagse: unknown key; did you mean `stages`?"),
        ("epochs: 1", "epochs: ten", "x.yaml:10: run.epochs: expected an integer, got the text `ten`"),
        (
            "{block: vgg, channels: [4], pool: true}",
            "{block: resnet}",
            "x.yaml:7: model.components[2].block: unknown block `resnet`; "
            "known: vgg, stem, residual, embedding, lstm, transformer, linear, mlp, "
            "and classes of your own as python:package.module.Class",
        ),
        (
            "stages: 2",
            "partition: [1, 1]",
            "x.yaml:9: pipeline.partition: [1, 1] covers 2 components, but the model has 3; "
            "give the number of components of each stage, with `repeat` counted",
        ),
        (
            "stages: 2",
            "stages: 4",
            "x.yaml:9: pipeline.stages: 4 stages, but the model has only 3 components; "
            "give at most 3: a stage holds at least one component",
        ),
        (
            "stages: 2",
            "stages: 2, stages: 3",
            "x.yaml:9: pipeline.stages: this key stands in line 9 already; keep one of them",
        ),
    ],
    ids=["unknown key", "wrong type", "unknown block", "partition", "stages", "duplicate key"],
)
def test_a_spec_with_one_fault(refusal: Callable[..., str], old: str, new: str, message: str) -> None:
    assert refusal(text=spec(old, new)) == message + "\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "x.yaml:1: not text in UTF-8; name a spec file"),
        (
            b"PK\x03\x04",
            "x.yaml:1: not YAML: the character U+0003 cannot stand in it; "
            "write it as an escape in a double-quoted text, or remove it",
        ),
        (SPEC.encode("utf-16"), "x.yaml:1: not text in UTF-8; name a spec file"),
        (
            SPEC.replace("  components", "\tcomponents").encode(),
            "x.yaml:4: not YAML: a tab cannot begin a value or indent a line; indent with spaces",
        ),
        (b"", "x.yaml: the file says nothing; `alray init` writes a spec to begin with"),
        (
            f"{SPEC}---\n{SPEC}".encode(),
            "x.yaml:12: a second document begins here; a spec file holds one document: give each its own file",
        ),
    ],
    ids=["picture", "zip", "UTF-16", "tab", "empty", "two documents"],
)
def test_a_file_that_is_no_spec(refusal: Callable[..., str], content: bytes, message: str) -> None:
    assert refusal(text=content) == message + "\n"


def test_windows_line_ends_are_taken_and_counted_as_lines(
    refusal: Callable[..., str], alray: Callable[..., Said]
) -> None:
    wrong = spec("epochs: 1", "epochs: 0").replace("\n", "\r\n")
    assert refusal(text=wrong.encode()) == "x.yaml:10: run.epochs: must be at least 1, got 0\n"
    Path("x.yaml").write_bytes(SPEC.replace("\n", "\r\n").encode())
    assert alray("validate", "x.yaml").code == 0


def test_a_path_with_spaces_and_letters_of_any_alphabet(refusal: Callable[..., str]) -> None:
    file = "mein Ordner/größe 試.yaml"
    wrong = spec("epochs: 1", "epochs: 0")
    assert refusal(text=wrong, file=file) == f"{file}:10: run.epochs: must be at least 1, got 0\n"


def test_a_model_without_components(refusal: Callable[..., str]) -> None:
    before, _, after = SPEC.partition("  components:\n")
    text = before + "  components: []\n" + after[after.index("method:") :]
    assert refusal(text=text) == "x.yaml:4: model.components: expected at least 1 entry, got 0\n"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "optimizer.learning_rate=0.1",
            "optimizer.learning_rate: unknown key; known: kind, lr, label_lr, weight_decay, clip_norm, accumulate, "
            "betas, eps",
        ),
        ("optimiser.lr=0.1", "optimiser: unknown key; did you mean `optimizer`?"),
        ("seed=-1", "seed: must be at least 0, got -1"),
        ("run.epochs: 3", "`run.epochs: 3` is not of the form key=value; write such as optimizer.lr=3e-4"),
        ("run.epochs==3", "run.epochs: expected an integer, got the text `=3`"),
        ("method.label_dim='4'", "method.label_dim: expected an integer, got the text `4`"),
        (
            'name="tiny',
            'name: `"tiny`: not YAML: found unexpected end of stream '
            "(while scanning a quoted scalar that begins in line 1)",
        ),
        (
            "model.components[7].channels=[2]",
            "model.components[7].channels: `model.components` has no entry 7; the last one is 2",
        ),
        (
            "name=../tiny",
            "name: the text `../tiny` cannot name a run folder; "
            "use up to 100 letters, digits, `.`, `_` and `-`, a letter or digit first",
        ),
        (
            "resources.device=cuda",
            "resources.device: stage 0 is to compute on cuda, but asks for no GPU; "
            "add GPU: 1 to resources.per_stage, or choose cpu",
        ),
    ],
)
def test_an_override_that_cannot_be(refusal: Callable[..., str], override: str, message: str) -> None:
    assert refusal(override) == f"command line: {message}\n"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("method.label_dim=100000000000", "method.label_dim: must be at most 1000000, got 100000000000"),
        ("resources.threads=100000", "resources.threads: must be at most 1024, got 100000"),
        ("pipeline.in_flight=1000000000000", "pipeline.in_flight: must be at most 1024, got 1000000000000"),
        ("model.components[0].repeat=1000000000", "model.components[0].repeat: must be at most 1000, got 1000000000"),
        (
            "data.batch_size=1000000000000000000000",
            "data.batch_size: 90 of 100 training samples are left after data.validation_fraction and "
            "data.train_fraction: fewer than one mini-batch of 1000000000000000000000; "
            "at most data.batch_size=90, or data.last_batch=keep",
        ),
        (
            "data.samples=100000000000000",
            "data.samples: 100000000000000 samples of shape [1, 4, 4] take 5960464.5 GiB, and synthetic samples are "
            "held in memory (at most 8 GiB); at most 134217728 samples fit",
        ),
    ],
)
def test_a_number_too_large(refusal: Callable[..., str], override: str, message: str) -> None:
    assert refusal(override) == f"command line: {message}\n"


def test_a_component_that_no_memory_holds(refusal: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alray.orchestrate.machine_memory_bytes", lambda: 16_000_000_000)
    assert refusal("method.label_dim=1000000") == (
        "x.yaml:6: model.components[1]: its weights take 8,000.1 GB and their gradients as much again, "
        "and this machine has 16.0 GB; make the component smaller, or the layers beside it (`method`)\n"
    )
    assert memory.machine_memory_bytes() > 0


def test_stages_on_gpus_where_there_are_none(refusal: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert refusal("resources.per_stage={CPU: 1, GPU: 1}") == (
        "command line: resources.device: this machine has no GPU that torch can use; "
        "set resources.device=cpu, or run where there are GPUs\n"
    )


def test_a_folder_of_pictures_that_is_not_there(refusal: Callable[..., str], folder: Path) -> None:
    assert refusal(text=spec(DATA, IMAGES)) == (
        f"{folder / 'images'}: data.train: folder not found; give a folder that has one subfolder per class\n"
    )


@pytest.mark.parametrize(
    ("dataset", "looked_for", "address"),
    [
        (
            "MNIST",
            "MNIST is not there: looked for train-images-idx3-ubyte (or train-images-idx3-ubyte.gz) "
            "here and in MNIST/raw",
            datasets.MNIST.mirrors[0],
        ),
        (
            "CIFAR10",
            "CIFAR10 is not there, or damaged: looked for the folder cifar-10-batches-py",
            datasets.CIFAR10.url,
        ),
    ],
)
def test_a_data_set_that_is_not_there(
    refusal: Callable[..., str], folder: Path, dataset: str, looked_for: str, address: str
) -> None:
    text = spec(DATA, f"{{source: torchvision, dataset: {dataset}, root: sets}}")
    assert refusal(text=text) == (
        f"{folder / 'sets'}: data.root: {looked_for}; data.download=true fetches it where there is a network, "
        f"or copy it there from {address}\n"
    )


def test_a_picture_that_is_cut_off(refusal: Callable[..., str], folder: Path) -> None:
    for name in ("cat", "dog"):
        (folder / "images" / name).mkdir(parents=True)
        for number in range(4):
            Image.new("L", (4, 4), number).save(folder / "images" / name / f"{number}.png")
    broken = folder / "images" / "dog" / "3.png"
    broken.write_bytes(broken.read_bytes()[:-20])
    text = spec(DATA, IMAGES.replace("}", ", validation_fraction: 0.0}"))
    assert refusal(MEASURED, text=text) == (
        f"{broken}: damaged picture (image file is truncated); remove the file or replace it with a whole picture\n"
    )


def test_a_label_out_of_range(refusal: Callable[..., str], folder: Path) -> None:
    (folder / "own_samples.py").write_text(SOURCE)
    text = spec(DATA, "{source: 'python:own_samples.Samples', batch_size: 27}")
    message = refusal(MEASURED, text=text)
    number = int(message.split()[3])
    assert number % 3 == 2
    assert message == (
        f"x.yaml:2: data: sample {number} of split `train` has label 2, and there are 2 classes; "
        "labels go from 0 to 1\n"
    )


_OTHER_HASH = (
    "this file was damaged after it was written: its SHA-256 is not the manifest's; "
    "restore it, or delete the folder step-00000009 to use the checkpoint before it"
)
_NO_JSON = (
    "this manifest is damaged: Expecting value: line 1 column 1 (char 0); "
    "delete the folder step-00000009 to use the checkpoint before it"
)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that has finished."""
    folder = tmp_path_factory.mktemp("ended")
    (folder / "x.yaml").write_text(SPEC)
    assert execute(["run", str(folder / "x.yaml"), "--inline", "--run-dir", str(folder / "run")]) == 0
    return folder / "run"


@pytest.mark.parametrize(
    ("part", "offset", "message"),
    [
        ("component-01.safetensors", -1, _OTHER_HASH),
        ("component-02.safetensors", 9, _OTHER_HASH),
        ("manifest.json", 0, _NO_JSON),
    ],
)
def test_a_checkpoint_with_a_flipped_byte(
    alray: Callable[..., Said], ended: Path, folder: Path, part: str, offset: int, message: str
) -> None:
    run_dir = folder / "damaged"
    shutil.copytree(ended, run_dir)
    (damaged,) = run_dir.glob(f"checkpoints/*/{part}")
    content = bytearray(damaged.read_bytes())
    content[offset] ^= 1
    damaged.write_bytes(content)
    assert alray("evaluate", "damaged") == (2, "", f"{damaged}: {message}\n")


def test_what_is_no_run_folder(alray: Callable[..., Said], ended: Path, folder: Path) -> None:
    (folder / "empty").mkdir()
    assert alray("evaluate", "empty") == (
        2,
        "",
        "empty: this is not a run folder: it has no spec.yaml; "
        "name a folder that `alray run` made, such as runs/<name>-<time>\n",
    )
    shutil.copytree(ended, folder / "bare")
    shutil.rmtree(folder / "bare" / "checkpoints")
    assert alray("evaluate", "bare") == (
        2,
        "",
        f"{folder / 'bare'}: this run has no complete checkpoint; go on with it: `alray resume`\n",
    )
