"""CIFAR and the MNIST family from files the tests make; nothing is fetched."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy
import pytest
import torch
from PIL import Image
from torchvision import datasets

from alray.data.dataset import Dataset, open_data
from alray.errors import DataError
from alray.spec import data as spec

from .bad_data import idx


def no_code(reference: str) -> type:
    raise AssertionError(f"nothing to load: {reference}")


def opened(dataset: str, root: Path, **keys: Any) -> Dataset:
    section = {"batch_size": 2, "validation_fraction": 0.0, "root": root, "dataset": dataset, **keys}
    return open_data(spec.Torchvision(source="torchvision", **section), seed=0, load=no_code)


def write_idx(folder: Path, *, compressed: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for prefix, count in (("train", 6), ("t10k", 3)):
        pictures = numpy.arange(count * 784).reshape(count, 28, 28) % 256
        for name, values in (
            (f"{prefix}-images-idx3-ubyte", pictures),
            (f"{prefix}-labels-idx1-ubyte", numpy.arange(count) % 10),
        ):
            if compressed:
                (folder / f"{name}.gz").write_bytes(gzip.compress(idx(values)))
            else:
                (folder / name).write_bytes(idx(values))


def write_cifar10(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = root / "cifar-10-batches-py"
    folder.mkdir()
    pixels = numpy.zeros((2, 3072), dtype=numpy.uint8)
    pixels[:, 1024:2048] = 255  # the green plane
    for name in ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"):
        (folder / name).write_bytes(pickle.dumps({"data": pixels, "labels": [3, 9]}))
    names = {"label_names": [f"name_{number}" for number in range(10)]}
    (folder / "batches.meta").write_bytes(pickle.dumps(names))
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda path, md5=None: Path(path).is_file())


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("below", ["", "FashionMNIST/raw"])
def test_idx_files_in_the_root_or_where_torchvision_puts_them(tmp_path: Path, compressed: bool, below: str) -> None:
    write_idx(tmp_path / below, compressed=compressed)
    data = opened("FashionMNIST", tmp_path)
    assert (data.num_train, data.sample_shape) == (6, (1, 28, 28))
    assert data.classes[9] == "Ankle boot"
    sample, label = data.train[4]
    assert label == 4
    expected = (torch.arange(4 * 784, 5 * 784).remainder(256) / 255 - 0.2860) / 0.3530
    assert torch.allclose(sample.flatten(), expected)
    assert data.test is not None
    assert len(data.test) == 3
    assert opened("FashionMNIST", tmp_path, image_size=32).sample_shape == (1, 32, 32)


def test_a_picture_to_predict(tmp_path: Path) -> None:
    write_idx(tmp_path, compressed=False)
    data = opened("MNIST", tmp_path, image_size=32)
    pixels = (numpy.arange(2 * 784, 3 * 784) % 256).astype(numpy.uint8).reshape(28, 28)
    Image.fromarray(pixels).save(tmp_path / "two.png")
    assert torch.equal(data.read_image(tmp_path / "two.png"), data.train[2][0])


def test_cifar10_from_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cifar10(tmp_path, monkeypatch)
    data = opened("CIFAR10", tmp_path)
    assert (data.num_train, data.sample_shape, data.num_classes) == (10, (3, 32, 32), 10)
    sample, label = data.train[1]
    assert label == 9
    assert data.classes[9] == "name_9"
    assert sample.stride() == (1024, 32, 1)
    expected = torch.tensor([-0.4914 / 0.2470, (1 - 0.4822) / 0.2435, -0.4465 / 0.2616])
    assert torch.allclose(sample[:, 5, 5], expected)
    assert data.test is not None
    assert len(data.test) == 2


@pytest.mark.parametrize(
    ("dataset", "looked_for"),
    [
        ("CIFAR10", "the folder cifar-10-batches-py"),
        ("MNIST", "train-images-idx3-ubyte, train-labels-idx1-ubyte"),
    ],
)
def test_a_download_without_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dataset: str, looked_for: str
) -> None:
    def no_network(self: object) -> None:
        raise URLError("no network")

    monkeypatch.setattr(getattr(datasets, dataset), "download", no_network)
    with pytest.raises(DataError) as caught:
        opened(dataset, tmp_path, download=True)
    (problem,) = caught.value.problems
    assert (problem.file, problem.key) == (str(tmp_path), "data.download")
    assert f"(looked for {looked_for})" in problem.message
    assert problem.message.endswith("<urlopen error no network>")


def test_what_a_download_prints_goes_to_standard_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def download(self: object) -> None:
        print("fetching")  # noqa: T201
        write_idx(tmp_path / "MNIST" / "raw", compressed=False)

    monkeypatch.setattr(datasets.MNIST, "download", download)
    assert opened("MNIST", tmp_path, download=True).num_train == 6
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "fetching\n")
