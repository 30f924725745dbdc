"""Tiny-ImageNet's layout, whole and damaged."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest
import torch
from PIL import Image

from alray.data.opening import open_data
from alray.parts.sources.tiny_imagenet.source import TinyImagenetSource
from tests.data import sections as spec
from tests.data.predicted import inputs


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three classes of two training pictures, three pictures of validation; one of them is gray."""
    numbers = numpy.random.default_rng(0)
    folder = tmp_path / "tiny-imagenet-200"
    wnids = ("n02", "n01", "n03")

    def picture(path: Path, *, gray: bool = False) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        made = Image.fromarray(numbers.integers(0, 256, (64, 64, 3), dtype=numpy.uint8))
        (made.convert("L") if gray else made).save(path)

    for wnid in wnids:
        for index in range(2):
            picture(folder / "train" / wnid / "images" / f"{wnid}_{index}.JPEG")
        (folder / "train" / wnid / "images" / f"._{wnid}_0.JPEG").write_text("of macOS")
        (folder / "train" / wnid / f"{wnid}_boxes.txt").write_text("n02_0.JPEG\t0\t0\t63\t63\n")
    for index in range(3):
        picture(folder / "val" / "images" / f"val_{index}.JPEG", gray=index == 1)
    (folder / "wnids.txt").write_text("\n".join(wnids))
    lines = [f"val_{index}.JPEG\t{wnid}\t0\t0\t62\t62\n" for index, wnid in enumerate(("n03", "n03", "n01"))]
    (folder / "val" / "val_annotations.txt").write_text("".join(lines))
    (folder / "words.txt").write_text("n00\tentity\nn01\tgoldfish, Carassius\nn02\tcrane\nn03\tcrane, bird\n")
    return folder


def test_the_layout(root: Path) -> None:
    source = TinyImagenetSource(root=root, size=(32, 32))
    assert source.classes == ("goldfish", "crane (n02)", "crane (n03)")
    train, test = source.open("train"), source.open("test")
    assert train.labels == (0, 0, 1, 1, 2, 2)
    assert test.labels == (2, 2, 0)
    assert train.paths[2].name == "n02_0.JPEG"
    sample, label = test[1]
    assert (sample.shape, sample.dtype, label) == ((3, 32, 32), torch.uint8, 2)
    (root / "words.txt").unlink()
    assert TinyImagenetSource(root=root, size=None).classes == ("n01", "n02", "n03")


def test_from_a_spec_to_mini_batches(root: Path) -> None:
    section = spec.TinyImagenet(source="tiny_imagenet", root=root, batch_size=2, augment="strong")
    data = open_data(section, seed=0, load=lambda reference: None)
    assert data.sample_shape == (3, 64, 64)
    assert next(inputs(data, str(root / "val" / "images" / "val_1.JPEG"))).shape == (3, 64, 64)
    assert data.sample_shape.words is None
