"""`data`: where samples come from, and how they become mini-batches."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from alray.spec.choice import OPEN_TAG, Choice
from alray.spec.own_code import OwnCode, Reference
from alray.spec.section import (
    Counts,
    NonNegativeInt,
    PositiveInt,
    Section,
    SpecPath,
    describe,
    located,
    refusal,
)


class DataSection(Section):
    """What every source has."""

    source: str
    """Where the samples come from."""
    batch_size: PositiveInt = 64
    """Samples in one mini-batch, over all replicas."""
    validation_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the training set kept aside for validation, split by the seed. Zero: no validation."""
    train_fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of what is left of the training set that is used, chosen by the seed."""
    last_batch: Literal["drop", "keep"] = "drop"
    """What becomes of an epoch's last mini-batch where it is smaller than the others."""
    workers: NonNegativeInt = 0
    """Processes that load samples. Zero: the stage itself. The mini-batches are the same for every number."""
    augment: Literal["none", "strong"] = "none"
    """`strong`: training samples are cropped at random (4 pixels of padding), flipped, recoloured."""
    image_size: PositiveInt | None = None
    """Height and width the images are resized to, pixels. null: as they are."""


class Digits(DataSection):
    """The 1,797 handwritten digits that come with scikit-learn: 1 x 8 x 8, 10 classes, no download.

    A fixed 360 of them are the test set.
    """

    source: Literal["digits"]
    """`digits`."""


class Synthetic(DataSection):
    """Samples made from random numbers around one mean per class, for tests and timings."""

    source: Literal["synthetic"]
    """`synthetic`."""
    shape: Counts = (3, 32, 32)
    """Shape of one sample: channels, height, width."""
    classes: Annotated[int, Field(ge=2)] = 10
    """Number of classes."""
    samples: PositiveInt = 10000
    """Samples in the training set, before the validation split; the test set has a fifth as many."""


class ImageFolder(DataSection):
    """Image files on disk, one folder per class."""

    source: Literal["image_folder"]
    """`image_folder`."""
    train: SpecPath
    """Folder of the training set: it holds one folder per class."""
    test: SpecPath | None = None
    """Folder of the test set, with the same classes. null: there is none."""
    image_size: PositiveInt
    """Height and width the images are resized to, pixels."""


class TinyImagenet(DataSection):
    """Tiny-ImageNet as it is unpacked: 3 x 64 x 64, 200 classes; the validation folder of 10,000 is the test set."""

    source: Literal["tiny_imagenet"]
    """`tiny_imagenet`."""
    root: SpecPath
    """The folder that holds `wnids.txt`, `train` and `val` (the archive's `tiny-imagenet-200`)."""


class Torchvision(DataSection):
    """One of torchvision's data sets, downloaded or read from disk."""

    source: Literal["torchvision"]
    """`torchvision`."""
    dataset: Literal["CIFAR10", "CIFAR100", "MNIST", "FashionMNIST"]
    """Which one."""
    root: SpecPath
    """Folder that holds the data set's files, or will after the download."""
    download: bool = False
    """Whether to download it where it is not in `root`. Default: no."""


def _tokenizer(value: Any, info: ValidationInfo) -> Any:
    if not isinstance(value, str) or not value.strip():
        raise refusal(
            f"expected the name of a tokenizer, got {describe(value)}",
            "`basic_english`, the path of a tokenizer's .json file, or a name on the hub",
        )
    return str(located(value, info)) if value.endswith(".json") else value


class Text(Section):
    """How documents become rows of word numbers: 0 is padding, 1 every word that is not in the vocabulary."""

    tokenizer: Annotated[str, BeforeValidator(_tokenizer)] = "basic_english"
    """`basic_english` (torchtext's: lower case, split at spaces and punctuation), the path of a tokenizer's .json file,
    or its name on the Hugging Face hub. The last two need `alray[hub]`."""
    vocabulary_size: Annotated[int, Field(ge=3, le=10_000_000)] = 30_000
    """Rows of the vocabulary at most: padding, unknown, and the most frequent words of the training split."""
    max_tokens: Annotated[int, Field(ge=1, le=100_000)] = 128
    """Words of a document that are read; the rest is cut off."""


class TextSection(DataSection):
    """What every source of documents has."""

    text: Text = Text()
    """How documents become rows of word numbers."""

    @field_validator("augment", "image_size")
    @classmethod
    def _for_pictures(cls, value: Any, info: ValidationInfo) -> Any:
        if value not in (None, "none"):
            mend = "set data.augment=none" if info.field_name == "augment" else "leave it out"
            raise refusal("this is for pictures, and the samples of this source are documents", mend)
        return value


class TextCsv(TextSection):
    """Documents in CSV files without a header: class (1 to n), then one or more columns of text.

    The layout of AG News and DBpedia. Class names come from a file `classes.txt` beside the training file, a name a
    line, where there is one.
    """

    source: Literal["text_csv"]
    """`text_csv`."""
    train: SpecPath
    """File of the training set."""
    test: SpecPath | None = None
    """File of the test set, with the same classes and columns. null: there is none."""


class TextFolder(TextSection):
    """Documents in .txt files, one folder per class: the layout of IMDb. A folder `unsup` is passed over."""

    source: Literal["text_folder"]
    """`text_folder`."""
    train: SpecPath
    """Folder of the training set: it holds one folder per class."""
    test: SpecPath | None = None
    """Folder of the test set, with the same classes. null: there is none."""


class Docstrings(TextSection):
    """Which library is it from? Docstrings of the standard library, NumPy, SciPy and scikit-learn as installed here.

    About 13,000 documents, no download; made at first use and kept in a cache. A fixed 15 % are the test set.
    """

    source: Literal["docstrings"]
    """`docstrings`."""
    cache: SpecPath | None = None
    """Folder of the cache. null: `alray` in the user's cache folder ($XDG_CACHE_HOME, else ~/.cache)."""


class HuggingFace(TextSection):
    """A text set of the Hugging Face hub, or a folder of csv, json or parquet files; needs `alray[hub]`."""

    source: Literal["huggingface"]
    """`huggingface`."""
    dataset: str | None = None
    """Name on the hub, such as `ag_news`. Either this or `path`."""
    path: SpecPath | None = None
    """Folder on disk, as `datasets.load_dataset` reads it. Needs no network."""
    config: str | None = None
    """Configuration of the set, where it has several. Default: its own."""
    train_split: str = "train"
    """Name of the training split."""
    test_split: str | None = "test"
    """Name of the test split. null: there is none."""
    text_columns: Annotated[tuple[str, ...], Field(strict=False, min_length=1)] = ("text",)
    """Columns that make a document, joined by a space."""
    label_column: str = "label"
    """Column of the class: a class label, an integer or a text."""

    @model_validator(mode="after")
    def _one_place(self) -> HuggingFace:
        if (self.dataset is None) == (self.path is None):
            raise refusal(
                "exactly one of `dataset` and `path` is needed",
                "`dataset` is a name on the hub, `path` a folder on disk",
            )
        return self


class OwnData(OwnCode, DataSection):
    """A data source of one's own; the keys that are not listed here go to its constructor."""

    model_config = ConfigDict(extra="allow")

    source: Reference
    """The class, as `python:package.module.Class`."""
    text: Text | None = None
    """How documents become rows of word numbers, where the class has documents. null: it has pictures or vectors."""

    @field_validator("text")
    @classmethod
    def _documents(cls, value: Text | None, info: ValidationInfo) -> Text | None:
        for field in ("augment", "image_size"):
            if value is not None and info.data.get(field) not in (None, "none"):
                raise refusal(
                    f"`{field}` is for pictures, and samples with a `text` are documents", f"leave out {field}"
                )
        return value


Data = Annotated[
    Annotated[Digits, Tag("digits")]
    | Annotated[Synthetic, Tag("synthetic")]
    | Annotated[ImageFolder, Tag("image_folder")]
    | Annotated[TinyImagenet, Tag("tiny_imagenet")]
    | Annotated[Torchvision, Tag("torchvision")]
    | Annotated[TextCsv, Tag("text_csv")]
    | Annotated[TextFolder, Tag("text_folder")]
    | Annotated[Docstrings, Tag("docstrings")]
    | Annotated[HuggingFace, Tag("huggingface")]
    | Annotated[OwnData, Tag(OPEN_TAG)],
    Discriminator(Choice("source")),
]
