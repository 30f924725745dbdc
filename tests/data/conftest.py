"""Small data sets on disk, made by the tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
from PIL import Image


@pytest.fixture
def image_folder(tmp_path: Path) -> Path:
    """A folder with train/ (12 pictures of 2 classes) and test/ (4), of several formats, sizes and modes."""
    numbers = numpy.random.default_rng(0)
    for split, count in (("train", 6), ("test", 2)):
        for name in ("cat", "dog"):
            folder = tmp_path / "pictures" / split / name
            folder.mkdir(parents=True)
            for index in range(count):
                pixels = numbers.integers(0, 256, (10 + index, 12, 3), dtype=numpy.uint8)
                picture = Image.fromarray(pixels)
                if index == 1:
                    picture.convert("L").save(folder / f"{index}.png")
                else:
                    picture.save(folder / f"{index}.{'png' if index % 2 else 'jpg'}")
    return tmp_path / "pictures"


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Writes a module `own_data` that can be imported, by loader workers too."""

    def write(text: str) -> None:
        (tmp_path / "own_data.py").write_text(text, encoding="utf-8")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(__import__("sys").modules, "own_data", raising=False)

    return write


@pytest.fixture
def text_files(tmp_path: Path) -> Path:
    """A folder with train.csv (60 documents of 3 classes, of 0 to 14 words) and test.csv (15)."""
    folder = tmp_path / "texts"
    folder.mkdir()
    numbers = numpy.random.default_rng(0)
    for split, count in (("train", 60), ("test", 15)):
        lines = []
        for index in range(count):
            words = " ".join(f"w{number}" for number in numbers.integers(0, 40, numbers.integers(0, 12)))
            lines.append(f'"{index % 3 + 1}","Title, ""{index % 5}""","{words}"\n')
        (folder / f"{split}.csv").write_text("".join(lines), encoding="utf-8")
    return folder
