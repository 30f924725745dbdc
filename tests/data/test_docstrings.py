"""The set made of docstrings: what is a document, and the cache it is kept in."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

from alray.core.errors import DataError
from alray.data import docstrings
from alray.data.docstrings import LONGEST, SHORTEST, DocstringSource, Library, documents

LONG = "Return the sum of what is given, one by one, and then once more, as a float."


@pytest.fixture
def libraries(tmp_path: Path) -> tuple[Library, Library]:
    """Two packages: of one a module with docstrings of all kinds, of the other twenty functions."""
    first, second = tmp_path / "first", tmp_path / "second"
    (first / "tests").mkdir(parents=True)
    second.mkdir()
    (first / "a.py").write_text(
        f'"""Module. {LONG}"""\n\n'
        f'class A:\n    """Class. {LONG}\n\n    >>> import numpy as np\n    """\n\n'
        f'    async def run(self):\n        """Coroutine. {LONG}"""\n\n'
        'def short():\n    """Too short."""\n\n'
        f'def copied():\n    """Copied. {LONG}"""\n\n'
        f'add_newdoc("x", "y", """\n    Added. {LONG}\n    """)\n'
        f'_core.add_newdoc("x", ("z", """Added too. {LONG}"""))\n'
        'raise RuntimeError("imported")\n'
    )
    (first / "long.py").write_text(f'"""Long. {"word " * 1000}"""\n')
    (first / "broken.py").write_text('"""Broken. ' + LONG + '"""\n{% template %}\n')
    (first / "tests" / "test_a.py").write_text(f'"""A test. {LONG}"""\n')
    functions = [f'def f{number}():\n    """Number {number}. {LONG}"""\n\n' for number in range(20)]
    (second / "b.py").write_text("".join(functions) + f'def copied():\n    """Copied. {LONG}"""\n')
    return Library("first", "1.0", first), Library("second", "2.0", second)


def test_what_is_a_document(libraries: tuple[Library, Library]) -> None:
    found = documents(libraries)
    of_first = [text for text, label in found if label == 0]
    assert (
        " | ".join(text.partition(".")[0] for text in of_first)
        == "Added too | Added | Class | Coroutine | Long | Module"
    )
    assert of_first[2] == f"Class. {LONG}\n\n>>> import  as"
    assert of_first[1] == f"Added. {LONG}"
    assert len(of_first[4]) == LONGEST
    assert sum(label == 1 for _, label in found) == 20
    assert found == sorted(found)
    assert all(len(text) >= SHORTEST for text, _ in found)


def test_names_that_tell_the_library_are_removed(tmp_path: Path) -> None:
    for name in ("numpy", "NumPy", "np", "SciPy", "sklearn", "scikit-learn", "scikit", "Python"):
        (tmp_path / "a.py").write_text(f'"""With {name}: {LONG} inputs, pythonic."""\n')
        assert documents([Library("a", "1", tmp_path)]) == [(f"With : {LONG} inputs, pythonic.", 0)]


def test_the_split_is_fixed_and_the_documents_come_from_the_cache(
    libraries: tuple[Library, Library], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = DocstringSource(cache=tmp_path / "cache", libraries=libraries)
    assert first.classes == ("first", "second")
    train, test = first.open("train"), first.open("test")
    assert (len(train), len(test)) == (22, 4)
    assert not set(train.texts) & set(test.texts)
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".json"]

    monkeypatch.setattr(docstrings, "documents", lambda libraries: pytest.fail("not read off the cache"))
    again = DocstringSource(cache=tmp_path / "cache", libraries=libraries)
    assert (again.open("train"), again.open("test")) == (train, test)


def test_another_version_is_another_set(libraries: tuple[Library, Library], tmp_path: Path) -> None:
    first, second = libraries
    DocstringSource(cache=tmp_path / "cache", libraries=libraries)
    DocstringSource(cache=tmp_path / "cache", libraries=(Library(first.name, "1.1", first.folder), second))
    assert len(list((tmp_path / "cache").iterdir())) == 2


@pytest.mark.parametrize("damage", ["cut", "changed", "empty"])
def test_a_damaged_cache_is_noticed_and_made_anew(
    libraries: tuple[Library, Library], tmp_path: Path, damage: str
) -> None:
    whole = DocstringSource(cache=tmp_path / "cache", libraries=libraries).open("train")
    (path,) = (tmp_path / "cache").iterdir()
    content = path.read_bytes()
    path.write_bytes({"cut": content[:-40], "changed": content.replace(b"Number 7", b"Number 8"), "empty": b""}[damage])
    with pytest.warns(UserWarning, match="is damaged and is made again"):
        remade = DocstringSource(cache=tmp_path / "cache", libraries=libraries).open("train")
    assert remade == whole
    assert path.read_bytes() == content
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DocstringSource(cache=tmp_path / "cache", libraries=libraries)


def test_where_the_cache_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, libraries: tuple[Library, ...]) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    DocstringSource(libraries=libraries)
    assert len(list((tmp_path / "home" / ".cache" / "alray").iterdir())) == 1
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    DocstringSource(libraries=libraries)
    assert len(list((tmp_path / "xdg" / "alray").iterdir())) == 1


def test_a_cache_that_cannot_be_written(libraries: tuple[Library, Library], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError) as caught:
        DocstringSource(cache=tmp_path / "file", libraries=libraries)
    assert caught.value.problems[0].key == "data.source"


def test_a_package_without_source_files(tmp_path: Path, libraries: tuple[Library, Library]) -> None:
    (tmp_path / "bare").mkdir()
    with pytest.raises(DataError, match="no docstrings of bare in the source files"):
        DocstringSource(cache=tmp_path / "cache", libraries=(*libraries, Library("bare", "1", tmp_path / "bare")))
    assert not (tmp_path / "cache").exists()


@pytest.mark.full  # which reads the source files of four libraries, in ten seconds
def test_the_real_set_is_a_task_with_room_above_it(tmp_path: Path) -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import SGDClassifier

    source = DocstringSource(cache=tmp_path)
    train, test = source.open("train"), source.open("test")
    assert source.classes == ("standard_library", "numpy", "scipy", "scikit_learn")
    labels = torch.tensor([*train.labels, *test.labels])
    assert 11_000 < len(labels) < 15_000
    assert len(test) == round(0.15 * len(labels))
    assert 0.35 < torch.bincount(labels).max() / len(labels) < 0.45
    words = TfidfVectorizer(sublinear_tf=True)
    linear = SGDClassifier(loss="log_loss", alpha=1e-5, random_state=0)
    linear.fit(words.fit_transform(train.texts), train.labels)
    right = linear.score(words.transform(test.texts), test.labels)
    assert 0.88 < right < 0.95
