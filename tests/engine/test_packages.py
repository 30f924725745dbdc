"""Installed packages provide parts of every kind under names of their own, and these do as classes next to a spec."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from alray.cli.main import execute
from alray.config.loading.load import load_spec
from alray.core import packages
from alray.core.errors import SpecError, UserCodeError
from alray.core.run_folder.records import read_environment
from alray.inference.export import export_route
from alray.inference.exported import ExportedRoute
from alray.inference.network import TrainedNetwork
from alray.inference.requests import evaluate

from .conftest import Watching, Workshop
from .test_same_bits import same

DOCS = Path(__file__).parents[2] / "docs"
SOURCE = '''
"""Noisy pictures of four classes."""

import torch


class Noisy:
    classes = ("a", "b", "c", "d")

    def __init__(self, samples):
        self.samples = samples

    def open(self, split):
        labels = torch.arange(self.samples) % 4
        draw = torch.Generator().manual_seed(0 if split == "train" else 1)
        return [(torch.randn(2, 8, 8, generator=draw) + float(label), int(label)) for label in labels]
'''
BLOCK = '''
"""A block that draws."""

import torch
from torch import nn


class Dropped(nn.Module):
    def __init__(self, input, width):
        super().__init__()
        self.conv = nn.Conv2d(input[0], width, 3, padding=1)
        self.dropout = nn.Dropout(0.2)

    def forward(self, s, mask=None):
        return torch.relu(self.conv(self.dropout(s)))
'''


def of_page(page: str, before: str) -> str:
    """The code of a page that comes after a line."""
    (found,) = re.findall(rf"{before}:\n\n```\w+\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    return str(found)


MODULES = {
    "learning": of_page("extending.md", r"`one_hot\.py`"),
    "layers": BLOCK,
    "pictures": SOURCE,
    "quantile": of_page("extending.md", r"`quantile\.py`"),
    "order": of_page("extending.md", r"`parts/schedules/paired\.py` is new"),
    "sums": of_page("extending.md", r"`parts/all_reduces/everyone/algorithm\.py` is new"),
    "signs": of_page("extending.md", r"`parts/compressions/signs/compression\.py` is new"),
}
NAMES = {"method": "one_hot", "block": "dropped", "source": "noisy"}
CLASSES = {
    "method": "python:learning.OneHot",
    "block": "python:layers.Dropped",
    "source": "python:pictures.Noisy",
}


TASK = ["task={kind: quantile, metric: cost, share: 0.8}", "model.components.2={block: dropped, width: 6}"]


def overrides(named: dict[str, str]) -> list[str]:
    """Everything of the user, by these names."""
    return [
        f"data={{source: '{named['source']}', samples: 90, batch_size: 16, validation_fraction: 0.2}}",
        f"model.components.2={{block: '{named['block']}', width: 6}}",
        f"model.components.3={{block: '{named['block']}', width: 7}}",
        f"method={{kind: '{named['method']}', pool: 4}}",
    ]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which pip has installed the package of the documentation."""
    project = tmp_path_factory.mktemp("project")
    (project / "pyproject.toml").write_text(of_page("extending.md", r"`pyproject\.toml`"), encoding="utf-8")
    (project / "my_package").mkdir()
    for name, text in MODULES.items():
        (project / "my_package" / f"{name}.py").write_text(text, encoding="utf-8")
    (project / "my_package" / "__init__.py").touch()
    folder = tmp_path_factory.mktemp("installed") / "site-packages"
    alone = ("--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "-q")
    subprocess.run([sys.executable, "-m", "pip", "install", *alone, "--target", folder, project], check=True)
    return folder


@pytest.fixture
def there(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, where Python finds packages."""
    monkeypatch.syspath_prepend(installed)
    return installed


def other(folder: Path, package: str, version: str, names: str) -> Path:
    """A folder with the metadata of a package and no code."""
    info = folder / f"{package.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(names, encoding="utf-8")
    return folder


def names_of(installed: Path) -> str:
    return (installed / "my_package-1.0.dist-info" / "entry_points.txt").read_text(encoding="utf-8")


@pytest.fixture
def own(workshop: Workshop) -> Iterator[Workshop]:
    """A workshop with the same classes next to its spec."""
    for name, text in MODULES.items():
        (workshop.folder / f"{name}.py").write_text(text, encoding="utf-8")
    yield workshop
    for name in list(sys.modules):
        if name.partition(".")[0] == "my_package":
            del sys.modules[name]


@pytest.mark.full
def test_the_bits_of_the_same_classes_next_to_the_spec(own: Workshop, there: Path) -> None:
    one = own.run(*overrides(CLASSES), "pipeline.stages=1", "pipeline.schedule=sequential", name="one")
    two = own.run(*overrides(NAMES), "pipeline.partition=[1,3]", name="two")
    same(two, one)
    assert not (own.folder / "two" / "code").exists() and (own.folder / "one" / "code").is_dir()
    own.run(*overrides(NAMES), "pipeline.partition=[2,2]", "run.epochs=1", name="resumed")
    watching = Watching()
    same(own.resume("run.epochs=3", "pipeline.partition=[1,1,2]", name="resumed", watching=watching), one)
    assert not [note for note in watching.notes if "my-package" in note]
    tested = evaluate(TrainedNetwork(own.folder / "two", allow_code=False)).scores
    assert [entry.test for entry in tested] == [entry.test for entry in two.summary.accuracy_per_depth]


def test_a_task_in_the_same_bits(own: Workshop, there: Path) -> None:
    task, *others = TASK
    by_class = task.replace("quantile", "'python:quantile.Quantile'")
    one = own.run(by_class, *others, "pipeline.stages=1", "pipeline.schedule=sequential", name="one")
    assert one.summary.metric == "cost" and (own.folder / "one" / "code" / "quantile.py").is_file()
    two = own.run(*TASK, "pipeline.partition=[1,3]", "pipeline.schedule=streamed", name="two")
    same(two, one)
    assert two.summary.best is not None and one.summary.best is not None
    assert two.summary.best.validation == one.summary.best.validation
    own.run(*TASK, "pipeline.partition=[2,2]", "run.epochs=1", name="resumed")
    same(own.resume("run.epochs=3", "pipeline.partition=[1,1,2]", name="resumed"), one)
    exported = export_route(TrainedNetwork(own.folder / "two", allow_code=False), 2, "safetensors", own.folder / "r.st")
    assert ExportedRoute(Path(exported.file), allow_code=False).header.depth == 2
    stopped = own.run(*TASK, "run.stop_at={metric: validation_cost, below: 1e9}", name="stopped")
    assert stopped.summary.steps < one.summary.steps


def test_an_all_reduce_and_a_compression_in_the_same_bits(own: Workshop, there: Path) -> None:
    by_class = (
        "replicas={count: 2, all_reduce: 'python:sums.EveryoneAllReduce', compression: 'python:signs.SignsCompression'}"
    )
    one = own.run(by_class, "run.epochs=1", name="one")
    assert (own.folder / "one" / "code" / "sums.py").is_file()
    two = own.run("replicas={count: 2, all_reduce: everyone, compression: signs}", "run.epochs=1", name="two")
    same(two, one)
    assert two.summary.all_reduce_bytes > 0
    of_run = read_environment(own.folder / "two")
    assert of_run is not None
    assert list(of_run["brought_by"]) == ["alray.all_reduces:everyone", "alray.compressions:signs"]
    failed = own.run("replicas={count: 2, all_reduce: {kind: everyone, root: 1}}", name="wrong")
    assert "all-reduce `everyone` cannot be made: TypeError" in str(failed.error)


@pytest.mark.filterwarnings("error")
def test_a_schedule_in_the_same_bits(own: Workshop, there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = own.run("pipeline.stages=2", "run.epochs=1", name="one")
    two = own.run("pipeline.stages=2", "pipeline.schedule=paired", "run.epochs=1", name="two")
    same(two, one)
    assert two.summary.schedule == "paired"
    of_run = read_environment(own.folder / "two")
    assert of_run is not None and list(of_run["brought_by"]) == ["alray.schedules:paired"]
    names = "[alray.schedules]\nwrong = json:JSONDecoder\nlost = my_package.nowhere:SCHEDULE\nill = ill:SCHEDULE\n"
    (own.folder / "ill.py").write_text("raise RuntimeError('boom')\n", encoding="utf-8")
    monkeypatch.syspath_prepend(other(own.folder / "c", "broken", "1", names))
    monkeypatch.syspath_prepend(str(own.folder))
    for name, said in (
        ("wrong", "is no schedule of this name"),
        ("lost", "cannot be imported"),
        ("ill", "cannot be imported: RuntimeError: boom"),
        ("pared", "expected"),
    ):
        with pytest.raises(SpecError, match=said):
            load_spec(own.spec, [f"pipeline.schedule={name}"])


def test_an_error_in_the_loss_of_a_task_names_it(own: Workshop) -> None:
    text = MODULES["quantile"].replace("above = targets - scores", "above = targets - missing")
    (own.folder / "faulty.py").write_text(text, encoding="utf-8")
    with pytest.raises(UserCodeError, match="raised NameError in the losses of component 0") as caught:
        own.run("task={kind: 'python:faulty.Quantile', metric: cost, share: 0.8}", "pipeline.costs=null")
    (problem,) = caught.value.problems
    assert (problem.file, problem.key) == (str(own.folder / "faulty.py"), "task")
    assert problem.message.startswith("task `python:faulty.Quantile` raised")


def test_another_version_is_noted_and_a_missing_package_refused(
    own: Workshop, there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own.run(*overrides(NAMES), "run.epochs=1")
    of_run = read_environment(own.folder / "run")
    assert of_run is not None
    assert of_run["brought_by"] == {
        f"alray.{kind}s:{name}": "my-package 1.0" for kind, name in sorted(NAMES.items(), key=lambda each: each[0])
    }
    with monkeypatch.context() as newer:
        newer.syspath_prepend(other(tmp_path / "newer", "my-package", "2.0", names_of(there)))
        watching = Watching()
        own.resume("run.epochs=2", watching=watching)
    (note,) = [note for note in watching.notes if "my-package" in note]
    assert "alray.methods:one_hot was of my-package 1.0, is of my-package 2.0" in note
    monkeypatch.delitem(sys.modules, "my_package")
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(there)])
    said = r"no installed package provides `\w+` to alray.\w+; this run had it from my-package 2.0"
    with pytest.raises(SpecError, match=said):
        own.resume("run.epochs=3")
    with pytest.raises(SpecError, match=said):
        evaluate(TrainedNetwork(own.folder / "run", allow_code=True), 1)


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, Any]]:
    def say(*arguments: str) -> tuple[int, Any]:
        capsys.readouterr()
        code = execute([*arguments, "--json"])
        told = capsys.readouterr()
        return code, json.loads(told.out or told.err)

    return say


def test_they_are_listed_with_their_package(there: Path, said: Callable[..., tuple[int, Any]], capsys: Any) -> None:
    code, told = said("methods")
    assert code == 0 and {each["name"] for each in told["of_packages"]} >= set(NAMES.values())
    (method,) = [each for each in told["of_packages"] if each["group"] == "alray.methods"]
    assert method == {
        "group": "alray.methods",
        "name": "one_hot",
        "module": "my_package.learning",
        "attribute": "OneHot",
        "package": "my-package",
        "version": "1.0",
    }
    capsys.readouterr()
    assert execute(["methods"]) == 0
    assert re.search(r"one_hot +methods, my-package 1.0: my_package.learning:OneHot", capsys.readouterr().out)


def test_an_editor_knows_their_names(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["$defs"]["OwnBlock"]["properties"]["block"]["pattern"] == "^python:|^dropped$"
    method = schema["$defs"]["Spec"]["properties"]["method"]
    assert {"type": "string", "pattern": "^python:|^one_hot$"} in method["anyOf"]


def test_what_is_refused(own: Workshop, there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*changes: str) -> tuple[str, str]:
        with pytest.raises(SpecError) as caught:
            own.run(*changes)
        (problem,) = caught.value.problems
        assert problem.hint is not None
        return problem.message, problem.hint

    message, hint = refused("method=one_hott")
    assert message == "unknown kind `one_hott`"
    assert hint.startswith("did you mean `one_hot`? known: associated_learning,") and ", one_hot" in hint
    assert refused("model.components.0={block: one_hot}")[0] == "unknown block `one_hot`"  # a method, and no block
    names = "[alray.methods]\none_hot = x:Y\nmono_forward = x:Y\nnone = x:Y\n"
    clashing = other(tmp_path / "c", "another", "0.3", names)
    clashing = other(clashing, "broken", "1", "[alray.methods]\nwrong = json:JSONDecoder\nlost = json:Lost\n")
    monkeypatch.syspath_prepend(clashing)
    message, hint = refused("method={kind: one_hot, pool: 4}")
    assert message == "several packages provide `one_hot`: another 0.3 and my-package 1.0"
    assert hint == "uninstall all but one of them"
    assert refused("method=none")[0].startswith("`none of another 0.3` cannot be imported: ModuleNotFoundError")
    assert refused("method=wrong")[0] == "`wrong` is not a subclass of alray.Method"
    assert refused("method=lost")[0] == "`lost of broken 1`: module `json` has no `Lost`"
    own.run("method=mono_forward", "run.epochs=1", name="alrays")  # its own
    assert refused(TASK[0].replace("cost", "r2"))[0] == "task `quantile` does not measure r2"
    assert "unexpected keyword argument" in refused(TASK[0].replace("share", "shared"))[0]
    assert refused("task={kind: quantile, share: 0.8}")[0] == "this key is required"
    one_hot = ("method={kind: 'python:learning.OneHot', pool: 4}", TASK[0])
    assert refused(*one_hot)[0].startswith("method `python:learning.OneHot` does not know the task quantile")
    assert refused("method=mono_forward", TASK[0])[0].startswith("mono_forward does not know the task quantile")


def test_packages_are_looked_for_only_where_a_name_is_unknown(
    own: Workshop, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    found = packages.entry_points
    monkeypatch.setattr(packages, "entry_points", lambda group: asked.append(group) or found(group=group))
    packages._provided.cache_clear()
    load_spec(own.spec, overrides(CLASSES))
    load_spec(own.spec, ["method=mono_forward"])
    assert not asked
    load_spec(own.spec, overrides(NAMES))
    assert sorted(set(asked)) == ["alray.blocks", "alray.methods", "alray.sources"]
    assert "my_package" not in sys.modules  # nothing is imported to validate


def test_a_run_folder_from_elsewhere_runs_what_is_installed_here(own: Workshop, there: Path, tmp_path: Path) -> None:
    """As it runs what alray itself brings. Its metadata of a package count for nothing."""
    own.run(*overrides(NAMES), "run.epochs=1")
    strangers = tmp_path / "strangers"
    shutil.copytree(own.folder / "run", strangers)
    other(strangers, "evil", "1.0", "[alray.methods]\none_hot = evil:Evil\n")
    (strangers / "evil.py").write_text("raise SystemExit", encoding="utf-8")
    assert evaluate(TrainedNetwork(strangers, allow_code=False), 1).scores
