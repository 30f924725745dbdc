"""What a job takes along, and what it refuses to."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from alray.config.loading.load import load_spec
from alray.config.study.load import load_study
from alray.core.errors import RequestError, SpecError
from alray.submit.package import LARGEST_PACKAGE_BYTES, Package, package

SPEC = """\
name: mine
data: {source: image_folder, train: ../photos, image_size: 8, batch_size: 4}
model: {components: [{block: "python:blocks.Wide", width: 3}, {block: linear, width: 3}]}
method: {kind: associated_learning, label_dim: 4}
run: {epochs: 1}
"""
FILES = {
    "specs/mine.yaml": SPEC,
    "specs/study.yaml": "study: two\nbase: mine.yaml\naxes: {pipeline.stages: [1, 2]}\n",
    "specs/blocks.py": "import json\nfrom parts.layers import Wide\n",
    "specs/parts/__init__.py": "",
    "specs/parts/layers.py": "def late():\n    from . import shapes\nclass Wide: ...\n",
    "specs/parts/shapes.py": "import nowhere_at_all\n",
    "specs/parts/unused.py": "",
    "specs/table.csv": "1\n",
    "photos/cat/1.png": "",
    "photos/dog/2.png": "",
    "other/3.png": "",
}
CODE = {"specs/blocks.py", "specs/parts/__init__.py", "specs/parts/layers.py", "specs/parts/shapes.py"}
PHOTOS = {"photos/cat/1.png", "photos/dog/2.png"}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a spec, code and pictures; the current one."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def unpacked(project: Path) -> Callable[[Package], tuple[Path, set[str]]]:
    """Unpacks a package into another folder; returns its spec and the names of its files."""

    def unpack(packed: Package) -> tuple[Path, set[str]]:
        packed.write(project / "package.zip")
        with zipfile.ZipFile(project / "package.zip") as archive:
            archive.extractall(project / "there")
            names = set(archive.namelist())
        return project / "there" / packed.inside(packed.spec), names

    return unpack


def test_the_spec_finds_everything_it_names(unpacked: Callable[[Package], tuple[Path, set[str]]]) -> None:
    Path("photos/cat/again").symlink_to("..")
    Path("round").mkdir()
    Path("round/back").symlink_to("../photos")
    Path("photos/cat/round").symlink_to("../../round")
    packed = package(Path("specs/mine.yaml"), ["run.epochs=2"], [], allow_code=False)
    spec, names = unpacked(packed)
    assert (packed.command, packed.name) == ("run", "mine")
    assert names == {"specs/mine.yaml"} | CODE | PHOTOS
    assert sorted(load_spec(spec).spec.data.train.resolve().rglob("*.png"))[0].name == "1.png"


def test_what_no_key_names_is_sent_too(unpacked: Callable[[Package], tuple[Path, set[str]]]) -> None:
    """The names of the classes beside a table, and the folder of a model."""
    Path("specs/classes.txt").write_text("b\na\n", encoding="utf-8")
    Path("specs/gpt").mkdir()
    Path("specs/gpt/config.json").write_text("{}", encoding="utf-8")
    overrides = ["data={source: table, train: table.csv}", "model={from: 'transformers:./gpt'}"]
    _, names = unpacked(package(Path("specs/mine.yaml"), overrides, [], allow_code=False))
    assert names == {"mine.yaml", "table.csv", "classes.txt", "gpt/config.json"}
    Path("specs/gpt/config.json").unlink()
    Path("specs/gpt").rmdir()
    with pytest.raises(SpecError, match="there is no folder"):
        package(Path("specs/mine.yaml"), overrides, [], allow_code=False)


@pytest.mark.parametrize("text", ["", "text: {max_tokens: 8}, ", "text: {tokenizer: words.json}, "])
def test_a_spec_on_text(project: Path, text: str) -> None:
    """The name of a tokenizer is no file, and need not be given."""
    data = f"data: {{source: text_csv, {text}train: table.csv, batch_size: 4}}\n"
    lines = SPEC.splitlines(keepends=True)
    (project / "specs/text.yaml").write_text("".join([lines[0], data, *lines[2:]]))
    (project / "specs/words.json").write_text("{}")
    packed = package(Path("specs/text.yaml"), [], [], allow_code=False)
    sent = {packed.inside(file) for file in packed.files} - {name.removeprefix("specs/") for name in CODE}
    assert sent == {"text.yaml", "table.csv"} | ({"words.json"} if "words" in text else set())


def test_a_file_that_cannot_be_sent_is_named(project: Path) -> None:
    (project / "photos/cat/caf\udce9.png").touch()
    with pytest.raises(RequestError, match=r"cat/caf.*\.png: the name of this file is not UTF-8"):
        package(Path("specs/mine.yaml"), [], [], allow_code=False).write(project / "package.zip")
    with pytest.raises(RequestError, match="mem: a file to be sent cannot be read: Input/output error"):
        package(Path("specs/mine.yaml"), ["data.train=../other"], [Path("/proc/self/mem")], allow_code=False).write(
            project / "package.zip"
        )


def test_a_study_takes_its_base_along(unpacked: Callable[[Package], tuple[Path, set[str]]]) -> None:
    packed = package(Path("specs/study.yaml"), ["axes.data.train=[../photos,../other]"], [], allow_code=False)
    spec, names = unpacked(packed)
    assert (packed.command, packed.name) == ("study", "two")
    assert names == {"specs/study.yaml", "specs/mine.yaml", "other/3.png"} | CODE | PHOTOS
    assert len(load_study(spec).trials) == 2


@pytest.mark.parametrize("kind", ["random", "optuna"])
def test_a_search_takes_along_what_its_choices_name(
    unpacked: Callable[[Package], tuple[Path, set[str]]], kind: str
) -> None:
    """Its trials may draw any of them, and a resume with more trials those that none has drawn so far."""
    choice = "choice: [{block: linear, width: 3}, {block: 'python:blocks.Wide', width: 3}]"
    search = f"search: {{kind: {kind}, trials: 1, space: {{model.components.0: {{{choice}}}, data.train: "
    text = "study: two\nbase: mine.yaml\n" + search + "{choice: [../photos, ../other]}}}\n"
    Path("specs/study.yaml").write_text(text, encoding="utf-8")
    base = SPEC.replace('"python:blocks.Wide"', "linear")
    Path("specs/mine.yaml").write_text(base, encoding="utf-8")
    _, names = unpacked(package(Path("specs/study.yaml"), [], [], allow_code=False))
    assert names == {"specs/study.yaml", "specs/mine.yaml", "other/3.png"} | CODE | PHOTOS


def test_a_link_that_is_included_has_its_own_name_there(unpacked: Callable[[Package], tuple[Path, set[str]]]) -> None:
    Path("specs/words.txt").symlink_to("../other/3.png")
    Path("specs/more").symlink_to("../other")
    include = [Path("specs/words.txt"), Path("specs/more")]
    _, names = unpacked(package(Path("specs/mine.yaml"), [], include, allow_code=False))
    assert names == {"specs/mine.yaml", "specs/words.txt", "specs/more/3.png"} | CODE | PHOTOS


def test_an_absolute_path_is_one_of_the_cluster() -> None:
    packed = package(
        Path("specs/mine.yaml"), ["data.train=/scratch/photos"], [Path("specs/table.csv")], allow_code=False
    )
    assert {packed.inside(file) for file in packed.files} == {
        name.removeprefix("specs/") for name in {"specs/mine.yaml", "specs/table.csv"} | CODE
    }
    assert package(Path("specs/mine.yaml"), ["data.train=~/photos"], [], allow_code=False).name == "mine"


def test_equal_files_make_equal_packages(project: Path) -> None:
    package(Path("specs/mine.yaml"), [], [], allow_code=False).write(project / "one.zip")
    (project / "specs/mine.yaml").touch()
    package(Path("specs/mine.yaml"), [], [], allow_code=False).write(project / "two.zip")
    assert (project / "one.zip").read_bytes() == (project / "two.zip").read_bytes()


def test_what_is_missing_here_is_told_before_anything_is_sent() -> None:
    with pytest.raises(SpecError) as caught:
        package(
            Path("specs/mine.yaml"),
            ["data.train=../nowhere", "model.components.0.block=python:no.Such"],
            [],
            allow_code=False,
        )
    assert [problem.key for problem in caught.value.problems] == ["data.train", "model.components[0].block"]
    with pytest.raises(RequestError, match="--include: there is no such file"):
        package(Path("specs/mine.yaml"), [], [Path("nothing")], allow_code=False)


def test_too_large_a_package_is_refused_and_the_large_files_are_named(project: Path) -> None:
    with (project / "photos/cat/large.png").open("wb") as large:
        large.truncate(LARGEST_PACKAGE_BYTES)  # takes no room on the disk
    with pytest.raises(RequestError) as caught:
        package(Path("specs/mine.yaml"), [], [], allow_code=False)
    assert str(caught.value).startswith(
        f"8 files of 105 MB would be sent, and Ray takes at most 105 MB: {project}/photos/cat/large.png (105 MB), "
    )


pytestmark = pytest.mark.usefixtures("project")


def test_the_base_of_a_spec_travels_with_it(
    project: Path, unpacked: Callable[[Package], tuple[Path, set[str]]]
) -> None:
    (project / "above.yaml").write_text("base: specs/mine.yaml\nmodel: {components: [{block: linear, width: 3}]}\n")
    spec, names = unpacked(package(Path("above.yaml"), [], [], allow_code=False))
    assert names == {"above.yaml", "specs/mine.yaml", *PHOTOS}
    assert load_spec(spec).spec.data.train.resolve() == project / "there" / "photos"
