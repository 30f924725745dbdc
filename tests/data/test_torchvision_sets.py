"""Torchvision's sets from files the tests make; nothing is fetched."""

from __future__ import annotations

import gzip
import json
import pickle
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy
import pytest
import torch
from PIL import Image

from alray.core.errors import DataError
from alray.data.dataset import Dataset
from alray.data.opening import check_pictures, open_data
from alray.parts.sources.torchvision.keys import SIZES, _names_of_torchvision
from tests.data import sections as spec
from tests.data.predicted import inputs

from .bad_data import idx


def opened(dataset: str, root: Path, **keys: Any) -> Dataset:
    section = {"batch_size": 2, "validation_fraction": 0.0, "root": root, "dataset": dataset, **keys}
    return open_data(spec.Torchvision(source="torchvision", **section), seed=0, load=spec.no_code)


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
    assert (len(data.train), data.sample_shape) == (6, (1, 28, 28))
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
    assert torch.equal(next(inputs(data, str(tmp_path / "two.png"))), data.train[2][0])


def test_cifar10_from_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cifar10(tmp_path, monkeypatch)
    data = opened("CIFAR10", tmp_path)
    assert (len(data.train), data.sample_shape, len(data.classes)) == (10, (3, 32, 32), 10)
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

    monkeypatch.setattr(f"torchvision.datasets.{dataset}.download", no_network)
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

    monkeypatch.setattr("torchvision.datasets.MNIST.download", download)
    assert len(opened("MNIST", tmp_path, download=True).train) == 6
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "fetching\n")


def test_the_classes_that_are_named_are_those_of_torchvision() -> None:
    from torchvision import datasets

    from alray.parts.sources.torchvision.idx import IDX
    from alray.parts.sources.torchvision.sets import _VALIDATED, ARRAYS, arguments

    names = {*SIZES, *ARRAYS, *IDX, *_VALIDATED}
    assert names <= _names_of_torchvision()
    for name in names:
        takes = arguments(getattr(datasets, name))
        assert ("loader" in takes) == (name not in (*ARRAYS, *IDX)), name


def write_pictures(folder: Path, names: Iterable[str]) -> None:
    """Pictures of several sizes; the one at place i has the grey 10 * i."""
    for place, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (6 + place, 5), (10 * place,) * 3).save(path, format="PNG")


def write_dtd(root: Path) -> None:
    folder = root / "dtd" / "dtd"
    names = [f"{name}/{name}_{number}.jpg" for name in ("banded", "woven") for number in range(3)]
    write_pictures(folder / "images", names)
    (folder / "labels").mkdir()
    for place, split in enumerate(("train", "val", "test")):
        (folder / "labels" / f"{split}1.txt").write_text("".join(f"{names[at]}\n" for at in (place, 3 + place)))


def write_eurosat(root: Path) -> None:
    write_pictures(root / "eurosat" / "2750", ["Forest/1.jpg", "River/1.jpg", "River/2.jpg"])


def write_imagenette(root: Path) -> None:
    names = ("n01440764/1.jpeg", "n02102040/1.jpeg")
    for split in ("train", "val"):
        write_pictures(root / "imagenette2-160" / split, names)


def write_imagenet(root: Path) -> None:
    names = {"n01440764": ("tench", "Tinca tinca"), "n02102040": ("English springer",)}
    torch.save((names, []), root / "meta.bin")
    for split in ("train", "val"):
        write_pictures(root / split, [f"{number}/1.JPEG" for number in names])


FILES: dict[str, tuple[Callable[[Path], None], dict[str, Any], tuple[int, int, int], tuple[str, ...]]] = {
    "DTD": (write_dtd, {}, (2, 0, 2), ("banded", "woven")),
    "EuroSAT": (write_eurosat, {}, (3, 0, 0), ("Forest", "River")),
    "Imagenette": (write_imagenette, {"options": {"size": "160px"}}, (2, 0, 2), ("tench", "English springer")),
    "ImageNet": (write_imagenet, {}, (2, 0, 2), ("tench", "English springer")),
}
"""How its files are written, the keys it needs, and what is found: the sizes of its sets, and its classes."""


@pytest.mark.parametrize("dataset", FILES)
def test_a_set_of_picture_files(tmp_path: Path, dataset: str) -> None:
    write, keys, sizes, classes = FILES[dataset]
    write(tmp_path)
    data = opened(dataset, tmp_path, image_size=[3, 4], **keys)
    assert (len(data.train), len(data.validation or ()), len(data.test or ())) == sizes
    assert (data.classes, data.sample_shape) == (classes, (3, 3, 4))
    sample, label = data.train[len(data.train) - 1]
    assert label == len(classes) - 1
    grey = {"DTD": 30, "EuroSAT": 20}.get(dataset, 10)
    assert torch.allclose(
        sample[:, 1, 1], (grey / 255 - torch.tensor([0.485, 0.456, 0.406])) / torch.tensor([0.229, 0.224, 0.225])
    )
    assert data.contents is not None


def test_a_set_that_alray_does_not_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its class says itself how its parts are chosen, which options it has and what its classes are called."""
    folder = tmp_path / "lfw-py"
    write_pictures(folder / "lfw", ["Ann/Ann_0001.jpg", "Bo/Bo_0001.jpg", "Bo/Bo_0002.jpg"])
    for name, text in {
        "lfw-names.txt": "Ann\t1\nBo\t2\n",
        "peopleDevTrain.txt": "2\nAnn\t1\nBo\t2\n",
        "peopleDevTest.txt": "1\nBo\t2\n",
        "lfw.tgz": "",
    }.items():
        (folder / name).write_text(text)
    no_checksums(monkeypatch, "torchvision.datasets.lfw")
    data = opened("LFWPeople", tmp_path, image_size=[3, 4], options={"image_set": "original"})
    assert (data.classes, len(data.train), len(data.test), data.sample_shape) == (("Ann", "Bo"), 3, 2, (3, 3, 4))
    assert data.train[2][1] == 1 and data.contents is not None


@pytest.mark.parametrize("dataset", ["LSUN", "FER2013", "FakeData"])
def test_a_class_of_another_form_is_not_called(tmp_path: Path, dataset: str) -> None:
    """LSUN unpickles a file of its folder."""
    with pytest.raises(DataError, match=f"alray cannot read torchvision's {dataset}: "):
        opened(dataset, tmp_path, image_size=8)


def test_a_set_whose_labels_are_no_classes(tmp_path: Path) -> None:
    """The labels of CLEVR's test set are not public."""
    folder = tmp_path / "clevr" / "CLEVR_v1.0"
    write_pictures(folder / "images", ["train/1.png", "test/1.png"])
    (folder / "scenes").mkdir()
    scene = {"image_filename": "1.png", "objects": [{}, {}]}
    (folder / "scenes" / "CLEVR_train_scenes.json").write_text(json.dumps({"scenes": [scene]}))
    with pytest.raises(DataError, match="cannot read CLEVRClassification: its entries are not"):
        opened("CLEVRClassification", tmp_path, image_size=8)


def test_a_broken_picture_of_torchvision_is_found_before_the_run(tmp_path: Path) -> None:
    """It is alray that reads the files, with its limits."""
    write_eurosat(tmp_path)
    (tmp_path / "eurosat" / "2750" / "River" / "2.jpg").write_bytes(b"no picture")
    section = spec.Torchvision(source="torchvision", dataset="EuroSAT", root=tmp_path, image_size=8)
    with pytest.raises(DataError, match="not a picture in a known format"):
        check_pictures(section, spec.no_code)


def no_checksums(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setattr(f"{module}.check_integrity", lambda path, md5=None: Path(path).is_file())


def write_svhn(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from scipy.io import savemat

    for split, count in (("train", 4), ("test", 2)):
        pixels = numpy.zeros((32, 32, 3, count), dtype=numpy.uint8)
        pixels[..., 1, 1] = 255  # the green plane of the second one
        labels = numpy.array([[10 if number == 0 else number] for number in range(count)])
        savemat(root / f"{split}_32x32.mat", {"X": pixels, "y": labels})
    no_checksums(monkeypatch, "torchvision.datasets.svhn")


def write_emnist(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = root / "EMNIST" / "raw"
    folder.mkdir(parents=True)
    for split, count in (("train", 4), ("test", 2)):
        pixels = numpy.stack([numpy.full((28, 28), number) for number in range(count)])
        (folder / f"emnist-balanced-{split}-images-idx3-ubyte").write_bytes(idx(pixels))
        (folder / f"emnist-balanced-{split}-labels-idx1-ubyte").write_bytes(idx(numpy.arange(count)))


def write_stl10(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = root / "stl10_binary"
    folder.mkdir()
    for split, count in (("train", 4), ("test", 2)):
        numpy.zeros((count, 3, 96, 96), dtype=numpy.uint8).tofile(folder / f"{split}_X.bin")
        (numpy.arange(count, dtype=numpy.uint8) + 1).tofile(folder / f"{split}_y.bin")
    (folder / "unlabeled_X.bin").write_bytes(b"")
    (folder / "class_names.txt").write_text("airplane\nbird\ncar\ncat\n")
    no_checksums(monkeypatch, "torchvision.datasets.stl10")


ARRAYS: dict[str, tuple[Callable[[Path, pytest.MonkeyPatch], None], tuple[int, ...], str]] = {
    "SVHN": (write_svhn, (3, 32, 32), "3"),
    "EMNIST": (write_emnist, (1, 28, 28), "3"),
    "STL10": (write_stl10, (3, 96, 96), "cat"),
}


@pytest.mark.parametrize("dataset", ARRAYS)
def test_a_set_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dataset: str) -> None:
    write, shape, third = ARRAYS[dataset]
    write(tmp_path, monkeypatch)
    data = opened(dataset, tmp_path)
    assert (len(data.train), len(data.test or ()), data.sample_shape) == (4, 2, shape)
    assert data.classes[3] == third
    assert [data.train[place][1] for place in range(4)] == [0, 1, 2, 3]
    middle = data.train[1][0][:, 5, 5]
    expected = {"SVHN": [-1.0, 1.0, -1.0], "EMNIST": [2 / 255 - 1]}.get(dataset, [-1.0] * shape[0])
    assert torch.allclose(middle, torch.tensor(expected), atol=0.01)
    assert opened(dataset, tmp_path, image_size=[7, 9]).sample_shape == (shape[0], 7, 9)


def test_a_download_is_asked_for_each_missing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def download(self: Any) -> None:
        asked.append(self.split)
        write_svhn(tmp_path, monkeypatch)

    monkeypatch.setattr("torchvision.datasets.SVHN.download", download)
    assert len(opened("SVHN", tmp_path, download=True).train) == 4
    assert len(opened("SVHN", tmp_path, download=True).train) == 4
    assert asked == ["train"]


@pytest.mark.parametrize(
    ("dataset", "keys", "said"),
    [
        ("EuroSAT", {}, "EuroSAT is missing or damaged"),
        ("Places365", {"image_size": 8}, "torchvision cannot read Places365: .*train"),
        ("SVHN", {"options": {"what": "train"}}, "SVHN has no option `what`"),
        ("EMNIST", {"options": {"split": "small"}}, "EMNIST has no split `small`"),
        ("Imagenette", {"image_size": 8, "options": {"size": "9px"}}, "torchvision cannot read Imagenette: .*9px"),
        ("ImageNet", {"image_size": 8, "download": True}, "torchvision cannot download ImageNet"),
    ],
)
def test_what_is_missing_or_unknown(tmp_path: Path, dataset: str, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        opened(dataset, tmp_path, **keys)
    assert not (tmp_path / "nowhere").exists()
