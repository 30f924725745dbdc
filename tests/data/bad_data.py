"""Data with something wrong, each with the file, line and key at which it is refused.

`tests/test_messages.py` checks them.
"""

from __future__ import annotations

import gzip
import io
import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy
from PIL import Image

Files = Mapping[str, str | bytes]
"""Their contents, by path below the folder of the spec."""


class BadData(NamedTuple):
    """place: file, line and key of the problem, if there are any. data: the section of the spec."""

    place: str
    data: str
    files: Files = MappingProxyType({})


def idx(values: numpy.ndarray) -> bytes:
    header = bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape)
    return header + values.astype(numpy.uint8).tobytes()


def picture(ending: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.fromarray(numpy.zeros((8, 8, 3), numpy.uint8)).save(file, ending)
    return file.getvalue()


def csv(place: str, train: str | bytes, *, keys: str = "", **others: str) -> BadData:
    test = (", test: test.csv" if "test" in others else "") + keys
    files: Files = {f"{name}.{'txt' if name == 'classes' else 'csv'}": text for name, text in others.items()}
    return BadData(place, f"source: text_csv, train: train.csv{test}", {"train.csv": train, **files})


def table(place: str, train: str, *, keys: str = "", **others: str) -> BadData:
    test = (", test: test.csv" if "test" in others else "") + keys
    files: Files = {f"{name}.csv": text for name, text in others.items()}
    return BadData(place, f"source: table, train: train.csv, batch_size: 1{test}", {"train.csv": train, **files})


def own(place: str, body: str, *, keys: str = "") -> BadData:
    """A class of the user with two classes."""
    code = f"import torch\n\n\nclass Own:\n    classes = ('a', 'b')\n    {body}\n"
    return BadData(place, f"source: 'python:own_data.Own', batch_size: 1{keys}", {"own_data.py": code})


def second_sample(place: str, sample: str) -> BadData:
    """A set whose second sample is wrong."""
    return own(place, f"def open(self, split): return [(torch.zeros(1, 2, 2), 0), {sample}] * 8")


def documents(place: str, entry: str) -> BadData:
    return own(place, f"def open(self, split): return [('a b', 0), {entry}] * 8", keys=", text: {}")


OPEN = "def open(self, split): return [(torch.zeros(1, 2, 2), 0)] * 8"
CLASSES = {"train/cat/0.png": picture(), "train/dog/0.png": picture(), "test/cat/0.png": picture()}
FOLDER = "source: image_folder, train: train, image_size: 4, batch_size: 1, validation_fraction: 0.0"
REVIEWS = "source: text_folder, train: train"
TINY = "source: tiny_imagenet, root: tiny, batch_size: 1, validation_fraction: 0.0"
TINY_FILES: Files = {
    "tiny/wnids.txt": "n01\n",
    "tiny/train/n01/images/0.JPEG": picture("JPEG"),
    "tiny/val/images/0.JPEG": picture("JPEG"),
    "tiny/val/val_annotations.txt": "0.JPEG\tn01\t0\t0\t1\t1\n",
}
MNIST = "source: torchvision, dataset: MNIST, root: sets, batch_size: 1"
MNIST_FILES: Files = {
    f"sets/{split}-{part}": idx(numpy.zeros(shape))
    for split in ("train", "t10k")
    for part, shape in (("images-idx3-ubyte", (6, 28, 28)), ("labels-idx1-ubyte", (6,)))
}

BAD_DATA = (
    # Too few samples, or samples of another kind.
    BadData(
        "data.batch_size", "source: table, train: a.csv, batch_size: 91", {"a.csv": "x,label\n" + "1,a\n2,b\n" * 50}
    ),
    BadData("data", "source: synthetic, samples: 100, classes: 3, shape: [1], train_fraction: 0.001"),
    BadData("data.augment", "source: synthetic, samples: 100, shape: [1], augment: strong, batch_size: 1"),
    BadData("data.samples", "source: synthetic, shape: [3, 256, 256], samples: 100000"),
    BadData("data.classes", "source: synthetic, shape: [3, 4, 4], samples: 99, classes: 1000000000000000"),
    BadData("data.image_size", "source: synthetic, shape: [20], image_size: 8"),
    # Documents in CSV files.
    BadData("train.csv data.train", "source: text_csv, train: train.csv"),
    csv("train.csv:2", '"1","a","b"\n"2","a"\n'),
    csv("train.csv:2", '"1","a","b"\n"2","a","b","c"\n'),
    csv("train.csv:1", '"1"\n'),
    csv("train.csv data.train", "Class Index,Title,Description\n"),
    csv("train.csv data.train", ""),
    csv("train.csv:2", '"1","a","b"\n"-1","a","b"\n'),
    csv("train.csv:2", '"1","a","b"\n"²","a","b"\n'),
    csv("train.csv:3", '"1","a","b"\n"2","a","b"\n"3a","a","b"\n'),
    csv("train.csv:2", b'"1","a","b"\n"2","a\xff","b"\n'),
    csv("train.csv:5", b'"1","a","b\n\n"\n"2","a","b"\n"1","\xe9t\xe9","b"\n'),
    csv("train.csv:2", '"1","a","b"\n"2","left open\n"1","a","b"\n'),
    csv("train.csv:3", '"1","a","b"\n\n"2","a","left open\n1,2,3\n'),
    csv("train.csv:2", '"1","a","b"\n"999","a","b"\n'),
    csv("test.csv:2", "1,a,b\n2,a,b\n", test="1,a,b\n3,a,b\n"),
    csv("test.csv:1", "1,a,b\n2,a,b\n", test="1,a\n"),
    csv("train.csv:1 data.label_column", "text,class\na,good\n", keys=", label_column: sentiment"),
    csv("train.csv:1 data.text_columns", "1,a\n", keys=", text_columns: [1, 2]"),
    csv("train.csv:1 data.text_columns", "text,label\na,good\n", keys=", label_column: label, text_columns: [0, 1]"),
    csv("train.csv:1 data.text_columns", "1,a\n2,b\n", keys=", text_columns: [0, 1]"),
    csv("train.csv:3", "text,label\na,good\nb,\n"),
    csv("train.csv:2", "good,a\nbda,b\n", keys=", header: false, classes: [good, bad]"),
    csv("test.csv:3", "text,label\na,good\nb,bad\n", test="text,label\na,good\nb,worse\n"),
    csv(
        "test.csv:1 data.test",
        "text,label\na,good\nb,bad\n",
        test="text,class\na,good\n",
        keys=", label_column: label",
    ),
    csv("classes.txt", "1,a\n", classes="\n"),
    csv("classes.txt", "1,a\n", classes="a\na\n"),
    # Tables of numbers.
    BadData("train.csv data.train", "source: table, train: train.csv, label_column: 0"),
    BadData("train.parquet data.train", "source: table, train: train.parquet, label_column: 0"),
    table("train.csv data.train", ""),
    table("train.csv data.train", "x,label\n"),
    table("train.csv data.label_column", "x,y\n1,2\n"),
    table("train.csv data.columns", "label\n1\n"),
    table("train.csv:1 data.label_column", "x,y\n1,2\n", keys=", label_column: z"),
    table("train.csv:1 data.columns", "x,label\n1,2\n", keys=", columns: [0, 2]"),
    table("train.csv:1 data.columns", "x,y\n1,0\n2,1\n", keys=", label_column: y, columns: [0, 1]"),
    table("train.csv:1 data.columns", "x,y\n1,0\n2,1\n", keys=", label_column: 1, columns: [x, y]"),
    table("train.csv:1 data.columns", "x,label\n1,0\n2,1\n", keys=", columns: [x, label]"),
    table("train.csv:3", "x,label\n1,0\n2,1,3\n"),
    table("train.csv:3", "x,label\n1,0\n,1\n"),
    table("train.csv:3", "x,label\n1,0\n1_000,1\n"),
    table("train.csv:2", "x,label\nnan,0\n2,1\n"),
    table("train.csv:2", "x,label\n1e39,0\n2,1\n"),
    table("train.csv:2", "1,0\nx,1\n", keys=", label_column: 1"),
    table("train.csv:3", "x,label\n1,0\n2,2\n"),
    table("train.csv:2", "x,label\n1,a\n2,b\n", keys=", classes: [b, c]"),
    table("train.csv:3", "x,label\n1,01\n2,1\n3,02\n"),
    table("train.csv:4", "x,label\n1,1.0\n2,a\n3,1\n4,b\n"),
    table("test.csv:1 data.test", "x,y,label\n1,1,0\n2,3,1\n", test="x,z,label\n1,1,0\n"),
    table("test.csv:2", "x,label\n1,0\n2,1\n", test="x,label\n1,2\n"),
    # Folders with one subfolder for each class.
    BadData("train data.train", FOLDER),
    BadData("test data.test", FOLDER + ", test: test", {"train/cat/0.png": picture()}),
    BadData("train data.train", FOLDER, {"train/0.png": picture()}),
    BadData("train/cat data.train", FOLDER, {"train/cat/notes.txt": ""}),
    BadData("test/emu data.test", FOLDER + ", test: test", {**CLASSES, "test/emu/0.png": picture()}),
    BadData("train/dog/0.png", FOLDER, {**CLASSES, "train/dog/0.png": "not a picture"}),
    BadData("train/dog/0.bmp", FOLDER, {**CLASSES, "train/dog/0.bmp": picture("BMP")[:-8]}),
    BadData("train/neg data.train", REVIEWS, {"train/neg/0.md": ""}),
    BadData("train data.train", REVIEWS, {"train/unsup/0.txt": "a"}),
    BadData("train/neg/0.txt:2", REVIEWS, {"train/neg/0.txt": b"good\nbad \x80 byte"}),
    # Tiny-ImageNet.
    BadData("tiny/wnids.txt data.root", TINY),
    BadData("tiny/wnids.txt", TINY, {**TINY_FILES, "tiny/wnids.txt": ""}),
    BadData("tiny/train/n02/images data.root", TINY, {**TINY_FILES, "tiny/wnids.txt": "n01 n02"}),
    BadData("tiny/val/val_annotations.txt:1", TINY, {**TINY_FILES, "tiny/val/val_annotations.txt": "0.JPEG\tn09\t0"}),
    BadData("tiny/val/val_annotations.txt:1", TINY, {**TINY_FILES, "tiny/val/val_annotations.txt": "7.JPEG\tn01\t0"}),
    # Sets of torchvision.
    BadData("sets data.root", MNIST),
    BadData("sets data.root", "source: torchvision, dataset: CIFAR10, root: sets"),
    BadData("sets/train-images-idx3-ubyte", MNIST, {**MNIST_FILES, "sets/train-images-idx3-ubyte": b"\0\0\x08\x01"}),
    BadData(
        "sets/train-images-idx3-ubyte",
        MNIST,
        {**MNIST_FILES, "sets/train-images-idx3-ubyte": idx(numpy.zeros((6, 28, 28)))[:-1]},
    ),
    BadData(
        "sets/train-labels-idx1-ubyte", MNIST, {**MNIST_FILES, "sets/train-labels-idx1-ubyte": idx(numpy.zeros(5))}
    ),
    BadData(
        "sets/train-images-idx3-ubyte.gz",
        MNIST,
        {"sets/train-images-idx3-ubyte.gz": gzip.compress(idx(numpy.zeros((6, 28, 28))), mtime=0)[:-20]}
        | {name: content for name, content in MNIST_FILES.items() if "train-images" not in name},
    ),
    # Classes of the user.
    own("data.source", "pass"),
    own("data.source", OPEN, keys=", colour: red"),
    own("data.source", f"classes = (1, 2)\n    {OPEN}"),
    own("data.source", "def open(self, split): return 7"),
    own("data.source", f"normalisation = 0.5\n    {OPEN}"),
    own(
        "data.source",
        f"from alray.data.dataset import Normalisation\n    normalisation = Normalisation((0, 0), (1, 1))\n    {OPEN}",
    ),
    own("data", "def open(self, split): return None"),
    own("data", "def open(self, split): return []"),
    own("data", "def open(self, split): return [('a', 0)] * 8"),
    second_sample("data", "(torch.zeros(1, 2, 2), 2)"),
    second_sample("data", "(torch.zeros(1, 2, 2), 'cat')"),
    second_sample("data", "(torch.zeros(1, 2, 3), 0)"),
    second_sample("data", "(torch.full((1, 2, 2), float('nan')), 0)"),
    second_sample("data", "([0.0], 0)"),
    own("data", "def open(self, split): return [(torch.zeros(2, dtype=torch.int32), 0)] * 8"),
    own(
        "data.augment",
        "def open(self, split): return [(torch.full((1, 4, 4), 2.0), 0)] * 8",
        keys=", augment: strong",
    ),
    documents("data.source", "('a', 'b')"),
    documents("data", "('a', 2)"),
    own("data", "def open(self, split): return [('', 0)] * 8", keys=", text: {}"),
)
