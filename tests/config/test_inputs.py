"""What a spec names outside itself is looked for: files, folders, and classes by the text of their modules."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from alray.config.loading.find_class import class_fault
from alray.config.loading.inputs import input_checks
from alray.config.loading.load import load_spec
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
    (tmp_path / "ran.py").write_text("raise RuntimeError('this module was run')\n\nclass Gated: pass\n")
    text = with_data("source: 'python:ran.Data'").replace("{block: vgg, channels: [4]}", "{block: 'python:ran.Gate'}")
    text = text.replace("{kind: associated_learning}", "{kind: 'python:away.Method'}")
    text = text.replace("run: {epochs: 1}", "run: {epochs: 1, trackers: ['python:ran.Tracker']}")
    found = said(text)
    assert [" ".join(line.split(": ")[:2]) for line in found] == [
        "x.yaml:2 data.source",
        "x.yaml:5 model.components[0].block",
        "x.yaml:7 method.kind",
        "x.yaml:10 run.trackers[0].kind",
    ]
    assert found[1].endswith("did you mean `Gated`?") and "--allow-code" in found[2]
    assert "ran" not in sys.modules


PLAIN = """
class A:
    inner = 1
def b(): c = 1
d = e = 2
f: int = 3
if d:
    class G: pass
else:
    H = 1
try:
    import numpy.linalg as I
except ImportError:
    I = None
def set_j():
    global J
    J = 1
(K, L) = 1, 2
"""
MODULES: dict[str, str | bytes] = {
    "plain.py": PLAIN,
    "again.py": "from plain import A, b as B\nfrom torch.nn import Module as M",
    "stars.py": "from plain import *",
    "made.py": "globals()['Made'] = type('Made', (), {})",
    "filled.py": "def fill(): globals()['Made'] = type('Made', (), {})\nfill()",
    "lazy.py": "def __getattr__(name): return name",
    "object.py": "class A:\n    def __getattr__(self, name): return setattr(self, name, 1)",
    "broken.py": "class A:\n  def",
    "latin.py": b"# caf\xe9\nclass A: pass",
    "package/__init__.py": "from .deep import Deep",
    "package/deep.py": "class Deep: pass",
    "package/other/more.py": "from ..deep import Deep as More",
}
Find = Callable[[str], tuple[str, str] | None]


@pytest.fixture
def find(tmp_path: Path) -> Find:
    for name, text in MODULES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return lambda name: class_fault(f"python:{name}", tmp_path, allow_elsewhere=False)


@pytest.mark.parametrize(
    "name",
    [
        *(f"plain.{name}" for name in ("A", "b", "d", "e", "f", "G", "H", "I", "J", "K", "L")),
        "again.A", "again.B", "again.M", "stars.A", "made.Made", "filled.Made", "lazy.Any",
        "package.Deep", "package.deep", "package.deep.Deep", "package.other.more.More",
    ],
)  # fmt: skip
def test_a_class_that_is_there_or_may_be(find: Find, name: str) -> None:
    assert find(name) is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("plain.inner", "module `plain` has no `inner`"),
        ("plain.c", "module `plain` has no `c`"),
        ("again.Gone", "module `again` has no `Gone`"),
        ("object.B", "module `object` has no `B`"),
        ("broken.A", "/broken.py:2 cannot be read as Python: "),
        ("latin.A", "/latin.py"),
        ("package.gone.A", "there is no module `package.gone` in "),
        ("package.other.Gone", "module `package.other` has no `Gone`"),
        ("json.A", "`json` is also a module of Python or of an installed package"),
        ("torch.A", "there is no module `torch` in "),
    ],
)
def test_a_class_that_is_not_there(find: Find, name: str, message: str) -> None:
    fault = find(name)
    assert fault is not None and fault[1]
    assert fault[0].startswith(f"`python:{name}`: ") and message in fault[0]


def test_code_from_elsewhere_is_not_read(tmp_path: Path) -> None:
    assert class_fault("python:torch.nn.Nothing", tmp_path, allow_elsewhere=True) is None
    assert class_fault("python:nowhere_at_all.A", tmp_path, allow_elsewhere=True) is not None
