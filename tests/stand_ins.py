"""Small data in the real formats and layouts, so that every committed spec can be opened where its data is not."""

from __future__ import annotations

import json
import os
import pickle
import runpy
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy
import pytest
from PIL import Image
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import BertProcessing

from alray.config.loading.load import LoadedSpec, load_spec
from alray.config.sections.data import DataSection
from alray.data import docstrings
from alray.parts.sources.huggingface.keys import HuggingFace
from alray.parts.sources.huggingface_images.keys import HuggingFaceImages
from alray.parts.sources.image_folder.keys import ImageFolder
from alray.parts.sources.table.keys import TableFiles
from alray.parts.sources.text.keys import TokenText
from alray.parts.sources.text_csv.keys import TextCsv
from alray.parts.sources.text_folder.keys import TextFolder
from alray.parts.sources.tiny_imagenet.keys import TinyImagenet
from alray.parts.sources.torchvision.keys import Torchvision

NUM_WORDS = 30_000
"""Different words of a training set of text, its validation split left out: as many as the vocabularies hold."""

_WHOLE = "data.train_fraction=1.0"
Overrides = tuple[str, ...]
"""As on the command line: where a data set's stand-in lies."""


def write_stand_ins(folder: Path) -> Mapping[str, Overrides]:
    """A stand-in for every data set that a spec under specs/ names; by that name, the overrides that point to it.

    Each has at least one mini-batch of the spec's own size left after the validation split. Docstrings are found where
    XDG_CACHE_HOME is the folder.
    """
    return {
        "FashionMNIST": fashion_mnist(folder / "fashion-mnist", num_train=4600, num_test=40),
        "CIFAR10": cifar10(folder, num_per_file=30),
        "CIFAR100": cifar100(folder, num_train=150, num_test=100),
        "tiny-imagenet-200": tiny_imagenet(folder / "tiny-imagenet-200", num_train_per_class=1),
        "ag_news": text_csv(folder / "ag_news", num_classes=4, num_train=300, columns=3),
        "dbpedia": text_csv(folder / "dbpedia", num_classes=14, num_train=300, columns=3),
        "aclImdb": imdb(folder / "aclImdb", num_train_per_class=160),
        "dogs_vs_cats": dogs_vs_cats(folder / "dogs_vs_cats", num_train_per_class=1150),
        "vectors": word_vectors(folder / "vectors.txt", width=300),
        "tokenizer": tokenizer_of_bert(folder / "tokenizer.json"),
        "EMNIST": emnist(folder / "emnist", num_train=200, num_test=40),
        "flowers": flowers(folder / "flowers", num_train_per_class=20),
        "nyu-mll/glue": sst2(folder / "sst2", num_train=300),
        "AI-Lab-Makerere/beans": beans(folder / "beans", num_train_per_class=12),
        **own_files(folder / "files"),
        "docstrings": docstrings_cache(folder / "alray", num_documents=1000),
    }


def on_stand_in(file: Path, stand_ins: Mapping[str, Overrides], *overrides: str) -> LoadedSpec:
    """The spec of a file with overrides, its data a stand-in where it wants any."""
    return load_spec(file, overrides_on_stand_in(file, stand_ins, *overrides))


def overrides_on_stand_in(file: Path, stand_ins: Mapping[str, Overrides], *overrides: str) -> list[str]:
    """These overrides, and those with which the spec of a file finds its data's stand-in.

    Texts that an LSTM reads are cut shorter: its shapes and its costs are found word by word. A small share of a data
    set is all of its stand-in, and a tokenizer of the hub is a small one.
    """
    spec = load_spec(file, overrides).spec
    shorter = ["data.text.max_tokens=10"] if any(entry.block == "lstm" for entry in spec.model.blocks) else []
    vectors = stand_ins["vectors"] if any(getattr(entry, "vectors", None) for entry in spec.model.blocks) else ()
    tokenizer = getattr(getattr(spec.data, "text", None), "tokenizer", None)
    from_the_hub = tokenizer is not None and tokenizer != "basic_english" and not tokenizer.endswith(".json")
    own = stand_ins["tokenizer"] if from_the_hub else ()
    if spec.data.train_fraction < 0.01:
        overrides = (*(each for each in overrides if not each.startswith("data.train_fraction=")), _WHOLE)
    return [*overrides, *shorter, *vectors, *own, *stand_ins.get(_data_set_of(spec.data), ())]


def find_stand_ins(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the libraries of data look for what `write_stand_ins` wrote into a folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    if "datasets" in sys.modules:  # it reads the variable when it is imported
        monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", folder / "hf_cache")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(folder / "hf_cache"))
    # torchvision reads no file of CIFAR that has another MD5 than the real one.
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda path, md5=None: Path(path).is_file())


def _data_set_of(data: DataSection) -> str:
    """The data set a spec wants, by the name of its stand-in; the name of its source where it needs none."""
    if isinstance(data, Torchvision):
        return data.dataset
    if isinstance(data, TinyImagenet):
        return data.root.name
    if isinstance(data, TableFiles | TextCsv | TextFolder | ImageFolder):
        return data.train.parent.name
    if isinstance(data, HuggingFace | HuggingFaceImages):
        return data.dataset or data.path.name
    if isinstance(data, TokenText):
        return "docstrings" if data.docstrings else "text" if data.file is None else data.file.stem
    return data.source


def docstrings_cache(folder: Path, *, num_documents: int) -> Overrides:
    """The cache file of the installed libraries, as if their source files had been read, which takes ten seconds."""
    libraries = docstrings.installed_libraries()
    texts = (" ".join(f"w{number * 30 + word}" for word in range(30)) for number in range(num_documents))
    made = [(text, number % len(libraries)) for number, text in enumerate(texts)]
    docstrings._write(folder / f"docstrings-{docstrings._key(libraries)}.json", made)
    return ()


def fashion_mnist(root: Path, *, num_train: int, num_test: int) -> Overrides:
    """The four files as they are unpacked."""
    root.mkdir(parents=True)
    numbers = numpy.random.default_rng(0)
    for prefix, count in (("train", num_train), ("t10k", num_test)):
        images = numbers.integers(0, 256, (count, 28, 28), dtype=numpy.uint8)
        labels = numpy.arange(count, dtype=numpy.uint8) % 10
        for name, values in ((f"{prefix}-images-idx3-ubyte", images), (f"{prefix}-labels-idx1-ubyte", labels)):
            _write_idx(root / name, values)
    return (f"data.root={root}",)


def emnist(root: Path, *, num_train: int, num_test: int) -> Overrides:
    """The files of the letters, which are counted from 1, in the folder that torchvision makes for them."""
    raw = root / "EMNIST" / "raw"
    raw.mkdir(parents=True)
    for split, count in (("train", num_train), ("test", num_test)):
        pictures = numpy.random.default_rng(0).integers(0, 256, (count, 28, 28), dtype=numpy.uint8)
        letters = numpy.arange(count, dtype=numpy.uint8) % 26 + 1
        for name, values in (("images-idx3", pictures), ("labels-idx1", letters)):
            _write_idx(raw / f"emnist-letters-{split}-{name}-ubyte", values)
    return (f"data.root={root}", "data.download=false")


def word_vectors(file: Path, *, width: int) -> Overrides:
    """The vectors of a few words, in the text format of GloVe."""
    file.write_text("".join(f"word{word} {' '.join(['0.1'] * width)}\n" for word in range(3)), encoding="utf-8")
    return (f"model.components.0.vectors={file}",)


def tokenizer_of_bert(file: Path) -> Overrides:
    """Words of letters, between [CLS] and [SEP]."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    vocabulary = {token: number for number, token in enumerate([*special, *(f"w{number}" for number in range(40))])}
    made = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = Whitespace()
    made.add_special_tokens(special)
    made.post_processor = BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.save(str(file))
    return (f"data.text.tokenizer={file}",)


def cifar10(root: Path, *, num_per_file: int) -> Overrides:
    """Five pickles of training pictures and one of test pictures, planes red, green, blue."""
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        labels = [index % 10 for index in range(num_per_file)]
        _pickle(folder / name, {"data": _planes(num_per_file), "labels": labels})
    _pickle(folder / "batches.meta", {"label_names": _classes(10)})
    return (f"data.root={root}", "data.download=false")


def cifar100(root: Path, *, num_train: int, num_test: int) -> Overrides:
    """One pickle of training pictures and one of test pictures, with fine labels."""
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    for name, count in (("train", num_train), ("test", num_test)):
        _pickle(folder / name, {"data": _planes(count), "fine_labels": [index % 100 for index in range(count)]})
    _pickle(folder / "meta", {"fine_label_names": _classes(100)})
    return (f"data.root={root}", "data.download=false")


def tiny_imagenet(root: Path, *, num_train_per_class: int) -> Overrides:
    """200 classes by WordNet number; one picture on disk, named many times."""
    wnids = [f"n{number:08d}" for number in range(200)]
    original = _picture(root / "original.JPEG", 64, 64)
    for wnid in wnids:
        for index in range(num_train_per_class):
            _same_file(original, root / "train" / wnid / "images" / f"{wnid}_{index}.JPEG")
    lines = []
    for index, wnid in enumerate(wnids):
        _same_file(original, root / "val" / "images" / f"val_{index}.JPEG")
        lines.append(f"val_{index}.JPEG\t{wnid}\t0\t0\t62\t62\n")
    (root / "wnids.txt").write_text("\n".join(wnids) + "\n")
    (root / "val" / "val_annotations.txt").write_text("".join(lines))
    return (f"data.root={root}",)


def text_csv(folder: Path, *, num_classes: int, num_train: int, columns: int, num_test: int = 40) -> Overrides:
    """AG News's and DBpedia's files: class from 1, then columns of text in quotes."""
    folder.mkdir(parents=True)
    for split, count in (("train", num_train), ("test", num_test)):
        rows = []
        for index in range(count):
            texts = [f"Title {index}" for _ in range(columns - 2)] + [_document(index, num_train)]
            rows.append(",".join(f'"{value}"' for value in (index % num_classes + 1, *texts)) + "\n")
        (folder / f"{split}.csv").write_text("".join(rows), encoding="utf-8")
    return (f"data.train={folder / 'train.csv'}", f"data.test={folder / 'test.csv'}", "data.assume=null")


def imdb(folder: Path, *, num_train_per_class: int, num_test_per_class: int = 20) -> Overrides:
    """aclImdb as it unpacks: reviews named number_rating.txt, those without a class in `unsup`. Four fifths of all are
    the training set of the specs."""
    num_train = round(0.8 * 2 * (num_train_per_class + num_test_per_class))
    for split, count in (("train", num_train_per_class), ("test", num_test_per_class)):
        for label, name in enumerate(("neg", "pos", *(("unsup",) if split == "train" else ()))):
            (folder / split / name).mkdir(parents=True)
            for index in range(count):
                number = 2 * (index if split == "train" else num_train_per_class + index) + label
                review = _document(number, num_train) + "<br /><br />It's over."
                (folder / split / name / f"{index}_{9 * label + 1}.txt").write_text(review, encoding="utf-8")
        (folder / split / "labeledBow.feat").write_text("")
    return (f"data.train={folder / 'train'}", f"data.test={folder / 'test'}", "data.assume=null")


def dogs_vs_cats(folder: Path, *, num_train_per_class: int, num_test_per_class: int = 10) -> Overrides:
    """Photographs of any size and mode, named cat.0.jpg and so on, with the leftovers of a file browser between."""
    for split, count in (("train", num_train_per_class), ("test", num_test_per_class)):
        for animal, tint in (("cat", 90), ("dog", 160)):
            originals = [
                _picture(folder / f"{split}-{animal}-{number}.jpg", 40 + 8 * number, 56, tint=tint, mode=mode)
                for number, mode in enumerate(("RGB", "L", "RGB"))
            ]
            for index in range(count):
                _same_file(originals[index % 3], folder / split / f"{animal}s" / f"{animal}.{index}.jpg")
            (folder / split / f"{animal}s" / "Thumbs.db").write_bytes(b"\xd0\xcf")
    return (f"data.train={folder / 'train'}", f"data.test={folder / 'test'}")


def flowers(folder: Path, *, num_train_per_class: int, num_test_per_class: int = 4) -> Overrides:
    """Photographs in a folder for each kind. No weights are downloaded."""
    original = _picture(folder / "original.jpg", 180, 160)
    for split, count in (("train", num_train_per_class), ("test", num_test_per_class)):
        for kind in ("rose", "tulip", "violet"):
            for index in range(count):
                _same_file(original, folder / split / kind / f"{index}.jpg")
    return (f"data.train={folder / 'train'}", f"data.test={folder / 'test'}", "model.weights=null")


def sst2(folder: Path, *, num_train: int, num_validation: int = 40) -> Overrides:
    """The columns of SST-2, as lines of JSON."""
    folder.mkdir(parents=True)
    for split, count in (("train", num_train), ("validation", num_validation)):
        rows = [{"sentence": _document(index, num_train), "label": index % 2} for index in range(count)]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return ("data.dataset=null", "data.config=null", f"data.path={folder}", "data.assume=null")


def beans(folder: Path, *, num_train_per_class: int, num_other_per_class: int = 3) -> Overrides:
    """Photographs in a folder for each class, whose column `datasets` calls label."""
    original = _picture(folder.with_suffix(".jpg"), 80, 80)
    splits = {"train": num_train_per_class, "validation": num_other_per_class, "test": num_other_per_class}
    for split, count in splits.items():
        for kind in ("angular_leaf_spot", "bean_rust", "healthy"):
            for index in range(count):
                _same_file(original, folder / split / kind / f"{index}.jpg")
    return ("data.dataset=null", f"data.path={folder}", "data.label_column=label", "data.assume=null")


def own_files(folder: Path) -> dict[str, Overrides]:
    """The files of the specs in examples/files, which are no stand-ins."""
    runpy.run_path(str(Path(__file__).parents[1] / "examples/files/write_files.py"))["main"](folder)
    endings = {"diabetes": ".csv", "digit_rows": ".csv", "texts": ".csv", "scans": ""}
    found: dict[str, Overrides] = {
        name: tuple(f"data.{split}={folder / name / split}{ending}" for split in ("train", "test"))
        for name, ending in endings.items()
    }
    for name in ("diabetes", "scans"):
        found[name] = (*found[name], f"data.validation={folder / name / 'validation'}{endings[name]}")
    return {
        **found,
        "texts_json": (f"data.path={folder / 'texts_json'}",),
        "code": (f"data.file={folder / 'code.txt'}",),
    }


def _write_idx(file: Path, values: numpy.ndarray) -> None:
    """An IDX file: a big-endian header of magic number and sizes, then bytes."""
    header = bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape)
    file.write_bytes(header + values.tobytes())


def _planes(count: int) -> numpy.ndarray:
    return numpy.random.default_rng(0).integers(0, 256, (count, 3 * 32 * 32), dtype=numpy.uint8)


def _pickle(path: Path, value: object) -> None:
    path.write_bytes(pickle.dumps(value))


def _classes(count: int) -> Sequence[str]:
    return [f"class_{number}" for number in range(count)]


def _picture(path: Path, width: int, height: int, *, tint: int = 128, mode: str = "RGB") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = numpy.random.default_rng(len(path.name)).integers(tint - 80, tint + 80, (height, width, 3))
    Image.fromarray(noise.astype(numpy.uint8)).convert(mode).save(path, format="JPEG")
    return path


def _same_file(original: Path, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.link(original, path)


def _document(index: int, num_documents: int) -> str:
    """Document `index` of a training set: words that no other has, enough that nine tenths of them fill the
    vocabulary."""
    num_words = -(-NUM_WORDS * 10 // (9 * num_documents))
    return " ".join(f"word{number}" for number in range(index * num_words, (index + 1) * num_words))
