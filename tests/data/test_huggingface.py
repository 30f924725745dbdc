"""Sets and tokenizers of the extra `hub`, all from files on disk: no network."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from alray.core.errors import DataError
from alray.data.batches import TrainBatches
from alray.data.dataset import Dataset
from alray.data.form import DataForm
from alray.data.opening import make_source, open_data
from alray.data.source import TextSource
from alray.data.vocabulary import make_tokenizer, own_numbers
from tests.data import sections as spec
from tests.data.predicted import inputs

ROWS = [{"text": f"word{index} again", "title": "On", "label": ("neg", "pos")[index % 2]} for index in range(12)]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "hf_cache")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "set", {"train": ROWS, "test": ROWS[:4]})


def write(folder: Path, splits: dict[str, list[dict[str, Any]]]) -> Path:
    folder.mkdir()
    for split, rows in splits.items():
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{split}.jsonl").write_text(text, encoding="utf-8")
    return folder


def source(path: Path | None, **keys: Any) -> TextSource:
    made = make_source(spec.HuggingFace(source="huggingface", path=path, **keys), lambda reference: None)
    assert isinstance(made, TextSource)
    return made


def test_a_folder_of_json(folder: Path) -> None:
    opened = source(folder, text_columns=("title", "text"))
    assert opened.classes == ("neg", "pos")
    train, test = opened.open("train"), opened.open("test")
    assert train is not None
    assert test is not None
    assert train.texts[:2] == ["On word0 again", "On word1 again"]
    assert list(train.labels)[:4] == [0, 1, 0, 1]
    assert len(test) == 4
    assert source(folder, test_split=None).open("test") is None


def test_the_label_is_no_text(folder: Path) -> None:
    with pytest.raises(DataError, match=r"data\.text_columns: .*`label`"):
        source(folder, text_columns=("text", "label"))


@pytest.mark.parametrize("name", ["label", "label ", "label\u00a0"])
def test_a_label_column_whose_name_looks_equal(tmp_path: Path, name: str) -> None:
    rows = [{"text": "a", "label ": "x"}, {"text": "b", "label ": "y"}]
    assert source(write(tmp_path / "set", {"train": rows}), label_column=name, test_split=None).classes == ("x", "y")


def test_a_folder_of_parquet_with_class_labels(tmp_path: Path) -> None:
    import datasets

    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["x", "y", "z"])}
    )
    table = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [2, 0]}, features=features)
    (tmp_path / "set").mkdir()
    table.to_parquet(tmp_path / "set" / "train.parquet")
    opened = source(tmp_path / "set", test_split=None)
    assert opened.classes == ("x", "y", "z")
    train = opened.open("train")
    assert train is not None
    assert (train.texts, list(train.labels)) == (["a", "b"], [2, 0])


def test_a_folder_of_csv_with_integer_labels(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "train.csv").write_text("text,label\na,10\nb,9\nc,10\n")
    opened = source(tmp_path / "set", test_split=None)
    assert opened.classes == ("9", "10")
    train = opened.open("train")
    assert train is not None
    assert list(train.labels) == [1, 0, 1]


def test_from_a_spec_to_mini_batches(folder: Path) -> None:
    section = spec.HuggingFace(source="huggingface", path=folder, batch_size=4)
    data = open_data(section, seed=0, load=lambda reference: None)
    assert data.train.take([0, 1])[0].shape == (2, 2)
    assert data.sample_shape.words is not None
    assert data.sample_shape.words[2] == "again"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"label_column": "x"},
            "data.label_column: {folder}: there is no column `x`; the columns are text, ",
        ),
        ({"text_columns": ("text", "y")}, "data.text_columns: {folder}: there is no column `y`; "),
        ({"train_split": "dev"}, "data.train_split: {folder}: there is no split `dev`; the splits are train, test"),
    ],
)
def test_names_that_are_not_there(folder: Path, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError) as caught:
        source(folder, **keys)
    assert str(caught.value).startswith(message.format(folder=folder))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": None, "title": "", "label": "neg"}, "row 1 of split `test` has no text in text"),
        (
            {"text": "a", "title": "", "label": "so"},
            "row 1 of split `test` has the label 'so', which is not",
        ),
        ({"text": "a", "title": "", "label": None}, "row 1 of split `test` has the label None"),
    ],
)
def test_a_row_that_is_not_whole(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    folder = write(tmp_path / "set", {"train": ROWS, "test": [ROWS[0], row]})
    with pytest.raises(DataError, match=message):
        source(folder).open("test")


def test_labels_that_are_no_classes(tmp_path: Path) -> None:
    folder = write(tmp_path / "set", {"train": [{"text": "a", "label": 0.5}]})
    with pytest.raises(DataError, match="the column `label` does not contain classes"):
        source(folder, test_split=None)


def test_a_damaged_file_and_a_missing_folder(folder: Path) -> None:
    (folder / "train.jsonl").write_text('{"text": "a", "label": "neg"}\n{"text": "b", "la')
    with pytest.raises(DataError) as caught:
        source(folder)
    assert caught.value.problems[0].key == "data.path"
    assert "JSON parse error" in str(caught.value)
    with pytest.raises(DataError, match="folder not found"):
        source(folder / "none")


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """Splits words at hyphens."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    made = Tokenizer(models.WordLevel({"word": 0, "part": 1, "-": 2, "[UNK]": 3}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


def test_a_tokenizer_of_a_file(tokenizer: Path, folder: Path) -> None:
    assert make_tokenizer(str(tokenizer))("word-part other") == ["word", "-", "part", "[UNK]"]
    section = spec.HuggingFace(source="huggingface", path=folder, batch_size=4, text={"tokenizer": str(tokenizer)})
    data = open_data(section, seed=0, load=lambda reference: None)
    assert data.sample_shape.words == ("<pad>", "<unk>", "[UNK]")
    assert next(inputs(data, "")).tolist() == [1]


def test_a_tokenizer_that_is_not_there_or_damaged(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.text\.tokenizer: tokenizer not found"):
        make_tokenizer(str(tmp_path / "none.json"))
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(DataError, match="cannot load the tokenizer"):
        make_tokenizer(str(tmp_path / "bad.json"))


def test_documents_with_the_numbers_of_a_tokenizer(tmp_path: Path, folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    made = Tokenizer(models.WordLevel({"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, "[UNK]": 3, "good": 4, "bad": 5}, "[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.add_special_tokens(["[PAD]", "[CLS]", "[SEP]", "[UNK]"])
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    file = tmp_path / "tokenizer.json"
    made.save(str(file))
    text = {"tokenizer": str(file), "numbering": "tokenizer", "max_tokens": 4}
    data = open_data(
        spec.HuggingFace(source="huggingface", path=folder, batch_size=4, text=text),
        seed=0,
        load=lambda reference: None,
    )
    read = [next(inputs(data, each)).tolist() for each in ("bad good", "good good good good", "")]
    assert read == [[1, 5, 4, 2], [1, 4, 4, 2], [1, 2]]
    assert data.sample_shape.words == ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "good", "bad")
    samples, _ = data.train.take(range(len(data.train)))
    assert (samples[:, 0] == 1).all() and ((samples == 2).sum(1) == 1).all()  # each document with its special tokens
    assert DataForm.of(data).input.inputs().vocabulary == data.inputs.vocabulary


@pytest.mark.parametrize(
    ("tokens", "first", "said"),
    [
        (["word", "[UNK]"], "", "token 0 of the tokenizer is `word`"),
        (
            ["<s>", "<pad>", "</s>", "<unk>"],
            "<s>",
            "token 0 of the tokenizer is `<s>`, the tokenizer pads with `<pad>`",
        ),
        (["</s>", "<unk>"], "</s>", "token 0 of the tokenizer is `</s>`, which documents contain"),
    ],
    ids=["words", "RoBERTa", "no padding"],
)
def test_a_tokenizer_whose_token_0_is_not_for_padding(tmp_path: Path, tokens: list[str], first: str, said: str) -> None:
    """A mask would leave out the first token of every document."""
    from tokenizers import Tokenizer, models, processors

    made = Tokenizer(models.WordLevel({token: number for number, token in enumerate(tokens)}, tokens[-1]))
    if first:
        made.add_special_tokens(tokens)
        made.post_processor = processors.TemplateProcessing(single=f"{first} $A", special_tokens=[(first, 0)])
    made.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(DataError, match=said):
        own_numbers(str(tmp_path / "tokenizer.json"), 4)


def test_a_tokenizer_that_changed_is_read_again(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models

    file = str(tmp_path / "tokenizer.json")
    for words in (["a"], ["a", "b"]):
        made = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1} | {w: 2 + n for n, w in enumerate(words)}, "[UNK]"))
        made.add_special_tokens(["[PAD]", "[UNK]"])
        made.save(file)
        assert own_numbers(file, 4).words == ("[PAD]", "[UNK]", *words)
        assert make_tokenizer(file)("b") == (["b"] if "b" in words else ["[UNK]"])


@pytest.mark.parametrize("library", ["datasets", "tokenizers"])
def test_without_the_extra(library: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(DataError) as caught:
        if library == "datasets":
            source(folder)
        else:
            make_tokenizer(str(tmp_path / "any.json"))
    message = str(caught.value)
    assert message.startswith("data: ") and f"`{library}`" in message and "pip install 'alray[hub]'" in message


def pictures(folder: Path, splits: dict[str, list[tuple[Any, str]]]) -> Path:
    """A folder of parquet files with the columns `image` and `label`."""
    import datasets

    folder.mkdir()
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
    for split, rows in splits.items():
        columns = {"image": [{"bytes": image, "path": None} for image, _ in rows], "label": [name for _, name in rows]}
        datasets.Dataset.from_dict(columns, features=features).to_parquet(folder / f"{split}.parquet")
    return folder


def png(grey: int, size: tuple[int, int] = (7, 5)) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, (grey,) * 3).save(file, "PNG")
    return file.getvalue()


def images(path: Path, **keys: Any) -> Dataset:
    section = {"source": "huggingface_images", "path": path, "image_size": [3, 4], "batch_size": 2}
    return open_data(spec.HuggingFaceImages(**{**section, **keys}), seed=0, load=lambda reference: None)


@pytest.mark.full
def test_images(tmp_path: Path) -> None:
    rows = [(png(0), "cat"), (png(255, (9, 9)), "dog"), (png(51), "dog")]
    folder = pictures(tmp_path / "set", {"train": rows, "validation": rows[:1], "test": rows[1:]})
    data = images(folder, validation_split="validation")
    assert (data.classes, data.sample_shape) == (("cat", "dog"), (3, 3, 4))
    assert (len(data.train), len(data.validation or ()), len(data.test or ())) == (3, 1, 2)
    assert [(float(sample.mean()), label) for sample, label in (data.train[place] for place in range(2))] == [
        (-1.0, 0),
        (1.0, 1),
    ]
    assert float(data.train[2][0].mean()) == pytest.approx(-0.6)
    assert data.contents is not None
    with TrainBatches(data, seed=0, start_step=0, end_step=1, workers=1) as batches:
        assert next(batches).samples.shape == (2, 3, 3, 4)


def test_images_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have the limits of picture files."""
    rows = [(png(0), "cat"), (b"no picture", "dog")]
    folder = pictures(tmp_path / "set", {"train": rows})
    data = images(folder, test_split=None, validation_fraction=0.0)
    with pytest.raises(DataError, match="row 1: this is not a picture"):
        data.train[1]
    monkeypatch.setattr("alray.data.picture._MOST_PIXELS", 30)
    with pytest.raises(DataError, match="row 0: the picture has 7 x 5 pixels"):
        data.train[0]
    with pytest.raises(DataError, match=r"data.image_column: .*the column `label` is ClassLabel"):
        images(folder, test_split=None, image_column="label")
    with pytest.raises(DataError, match=r"data.validation_split: .*there is no split `valid`"):
        images(folder, test_split=None, validation_split="valid")


@pytest.mark.parametrize("hidden", [[-1, -1], [-1], [None, None]])
def test_a_test_split_whose_labels_are_hidden(tmp_path: Path, hidden: list[Any]) -> None:
    import datasets

    folder = tmp_path / "set"
    folder.mkdir()
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])})
    for split, labels in (("train", [0, 1]), ("test", hidden)):
        columns = {"text": ["a"] * len(labels), "label": labels}
        datasets.Dataset.from_dict(columns, features=features).to_parquet(folder / f"{split}.parquet")
    with pytest.raises(DataError, match=r"data\.test_split: .*has a label.*data\.test_split=null"):
        source(folder).open("test")
