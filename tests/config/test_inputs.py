"""What a spec names outside itself is looked for: files, folders, and the modules of classes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from alray.config.loading.inputs import input_checks
from alray.config.loading.load import load_spec
from alray.config.loading.own_files import module_fault
from alray.core.errors import SpecError

from .conftest import SMALL


@pytest.fixture
def said(write: Callable[[str], Path], tmp_path: Path) -> Callable[[str], list[str]]:
    """The errors of a spec of which one line is changed."""

    def load(text: str) -> list[str]:
        try:
            load_spec(write(text), also=input_checks(tmp_path, allow_elsewhere=False))
        except SpecError as error:
            return str(error).replace(f"{tmp_path}/", "").split("\n")
        return []

    return load


def with_data(data: str) -> str:
    return SMALL.replace("{source: digits}", f"{{{data}}}")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("source: image_folder, train: a, image_size: 8", ["train: there is no folder `a`"]),
        ("source: image_folder, train: file, image_size: 8", ["train: `file` is not a folder"]),
        (
            "source: image_folder, train: folder, validation: b, image_size: 8",
            ["validation: there is no folder `b`"],
        ),
        ("source: text_folder, train: folder, test: b", ["test: there is no folder `b`"]),
        (
            "source: text_csv, train: a.csv, test: b.csv",
            ["train: there is no file `a.csv`", "test: there is no file `b.csv`"],
        ),
        ("source: text_csv, train: folder", ["train: `folder` is not a file"]),
        ("source: tiny_imagenet, root: a", ["root: there is no folder `a`"]),
        ("source: huggingface, path: a", ["path: there is no folder `a`"]),
        ("source: torchvision, dataset: MNIST, root: a", ["root: there is no folder `a`"]),
        ("source: docstrings, text: {tokenizer: a.json}", ["text.tokenizer: there is no file `a.json`"]),
        ("source: image_folder, train: folder, test: folder, image_size: 8", []),
        ("source: torchvision, dataset: CIFAR10, root: a, download: true", []),
        ("source: huggingface, dataset: ag_news", []),
        ("source: docstrings, text: {tokenizer: bert-base-uncased}", []),
    ],
)  # fmt: skip
def test_files_and_folders(said: Callable[[str], list[str]], tmp_path: Path, data: str, expected: list[str]) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    assert [line.partition("; ")[0] for line in said(with_data(data))] == [
        f"x.yaml:2: data.{line}" for line in expected
    ]


def test_all_that_is_not_there_is_told_at_once(said: Callable[[str], list[str]]) -> None:
    text = with_data("source: text_csv, train: a.csv").replace(
        "{block: vgg, channels: [4]}", "{block: embedding, dim: 3, vectors: words.txt}"
    )
    assert [line.split(": ")[1] for line in said(text)] == ["data.train", "model.components[0].vectors"]


def test_every_place_for_a_class(said: Callable[[str], list[str]], tmp_path: Path) -> None:
    text = with_data("source: 'python:away.Data'").replace("{block: vgg, channels: [4]}", "{block: 'python:away.Gate'}")
    text = text.replace("{kind: associated_learning}", "{kind: 'python:away.Method'}")
    text = text.replace("run: {epochs: 1}", "run: {epochs: 1, trackers: ['python:away.Tracker']}")
    found = said(text)
    assert [" ".join(line.split(": ")[:2]) for line in found] == [
        "x.yaml:2 data.source",
        "x.yaml:5 model.components[0].block",
        "x.yaml:7 method.kind",
        "x.yaml:10 run.trackers[0].kind",
    ]
    assert all("no module `away`" in line and "--allow-code" in line for line in found)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("package.A", None),
        ("package.deep.A", None),
        ("plain.deep.A", None),
        ("package.gone.A", "there is no module `package.gone` in "),
        ("gone.A", "there is no module `gone` in "),
        ("json.A", "`json` is also a module of Python or of an installed package"),
        ("torch.A", "there is no module `torch` in "),
    ],
)
def test_the_file_of_a_class(tmp_path: Path, name: str, message: str | None) -> None:
    for file in ("package/__init__.py", "package/deep.py", "plain/deep.py"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    fault = module_fault(f"python:{name}", tmp_path, allow_elsewhere=False)
    assert (fault is None) == (message is None)
    if fault is not None and message is not None:
        assert fault[1] and fault[0].startswith(f"`python:{name}`: ") and message in fault[0]


def test_code_from_elsewhere_is_not_read(tmp_path: Path) -> None:
    assert module_fault("python:torch.nn.Nothing", tmp_path, allow_elsewhere=True) is None
    assert module_fault("python:nowhere_at_all.A", tmp_path, allow_elsewhere=True) is not None
